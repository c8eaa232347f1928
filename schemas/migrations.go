package schemas

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migration is one step of the database schema and whether it was applied.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// Migrate brings the schema "settleonce" of the database to this binary's
// version and returns the steps it took. It may run from several processes at
// once: an advisory lock, one per database, lets one of them work. It is safe
// to repeat.
func Migrate(ctx context.Context, dsn string) ([]Migration, error) {
	provider, db, err := migrator(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	results, err := provider.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	steps := make([]Migration, 0, len(results))
	for _, r := range results {
		steps = append(steps, Migration{Version: r.Source.Version, Name: r.Source.Path, Applied: true})
	}
	return steps, nil
}

// MigrationStatus lists the steps this binary knows and which of them the
// database has.
func MigrationStatus(ctx context.Context, dsn string) ([]Migration, error) {
	provider, db, err := migrator(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	statuses, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	steps := make([]Migration, 0, len(statuses))
	for _, s := range statuses {
		steps = append(steps, Migration{Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied})
	}
	return steps, nil
}

func migrator(ctx context.Context, dsn string) (*goose.Provider, *sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the database address: %w", err)
	}
	db := stdlib.OpenDB(*config)
	provider, err := newProvider(ctx, db, config.Database)
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return provider, db, nil
}

func newProvider(ctx context.Context, db *sql.DB, name string) (*goose.Provider, error) {
	// goose keeps its version table inside the schema, so the schema comes first.
	if err := ensureSchema(ctx, db); err != nil {
		return nil, err
	}
	store, err := database.NewStore(database.DialectPostgres, "settleonce.schema_migrations")
	if err != nil {
		return nil, fmt.Errorf("prepare the version table: %w", err)
	}
	// goose's default lock id is one for all databases of a server: ours is per
	// database, so that tests and neighbours do not wait for each other.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID(name)), lock.WithLockTimeout(1, 60))
	if err != nil {
		return nil, fmt.Errorf("prepare the migration lock: %w", err)
	}
	steps, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	provider, err := goose.NewProvider("", db, steps, goose.WithStore(store), goose.WithSessionLocker(locker))
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return provider, nil
}

// ensureSchema looks first: CREATE SCHEMA IF NOT EXISTS needs the right to
// create even when there is nothing to do, and races with itself.
func ensureSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	const look = `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'settleonce')`
	if err := db.QueryRowContext(ctx, look).Scan(&exists); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS settleonce`); err != nil {
		if again := db.QueryRowContext(ctx, look).Scan(&exists); again == nil && exists {
			return nil
		}
		return fmt.Errorf("create schema settleonce: %w", err)
	}
	return nil
}

func lockID(database string) int64 {
	h := fnv.New64a()
	h.Write([]byte("settleonce/" + database))
	return int64(h.Sum64() >> 1)
}

// Latest is the version that Migrate brings a database to.
func Latest() (int64, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("list the embedded migrations: %w", err)
	}
	var latest int64
	for _, name := range files {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("read the version of migration %s: %w", name, err)
		}
		latest = max(latest, version)
	}
	return latest, nil
}
