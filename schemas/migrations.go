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
// version and returns the steps it took, also with an error. It may run beside
// live traffic, and from several processes at once: see online. It is safe to
// repeat, and goes on where a run was stopped.
func Migrate(ctx context.Context, dsn string) ([]Migration, error) {
	files, err := embedded()
	if err != nil {
		return nil, err
	}
	return migrate(ctx, dsn, files, online{}.withDefaults())
}

func migrate(ctx context.Context, dsn string, files fs.FS, o online) ([]Migration, error) {
	provider, db, err := migrator(ctx, dsn, files, o)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return o.up(ctx, provider, db)
}

// MigrationStatus lists the steps this binary knows and which of them the
// database has.
func MigrationStatus(ctx context.Context, dsn string) ([]Migration, error) {
	files, err := embedded()
	if err != nil {
		return nil, err
	}
	provider, db, err := migrator(ctx, dsn, files, online{}.withDefaults())
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

func embedded() (fs.FS, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the embedded migrations: %w", err)
	}
	return files, nil
}

func migrator(ctx context.Context, dsn string, files fs.FS, o online) (*goose.Provider, *sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("parse the database address: %w", err)
	}
	db := stdlib.OpenDB(*config)
	provider, err := newProvider(ctx, db, config.Database, files, o)
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return provider, db, nil
}

func newProvider(ctx context.Context, db *sql.DB, name string, files fs.FS, o online) (*goose.Provider, error) {
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
	session, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID(name)), lock.WithLockTimeout(1, turnTries))
	if err != nil {
		return nil, fmt.Errorf("prepare the migration lock: %w", err)
	}
	locker, err := newOnlineLocker(session, files, o)
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider("", db, files, goose.WithStore(store), goose.WithSessionLocker(locker))
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
	versions, err := Versions()
	if err != nil {
		return 0, err
	}
	return versions[len(versions)-1], nil
}

// Versions are the numbers of all migrations this binary knows, ascending.
func Versions() ([]int64, error) {
	files, err := embedded()
	if err != nil {
		return nil, err
	}
	known, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	versions := make([]int64, len(known))
	for i := range known {
		versions[i] = known[i].version
	}
	return versions, nil
}
