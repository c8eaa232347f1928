package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/internal/devstack"
)

// adminConnections bounds how many databases are made and dropped at once.
const adminConnections = 4

// server is the Postgres of this test binary.
type server struct {
	mu        sync.Mutex
	admin     *pgxpool.Pool
	private   *devstack.Postgres // nil when the server is somebody else's
	folder    string
	templates map[string]string // name of the migration function → database
}

// shared exists because all tests of a binary use one server; it starts with the first that asks.
var shared server //nolint:gochecknoglobals // Lives as long as the test binary, which has no other place for it.

// create makes a database and returns its name and connection string.
func (s *server) create(ctx context.Context, migrate Migrate) (name, dsn string, err error) {
	admin, template, err := s.prepare(ctx, migrate)
	if err != nil {
		return "", "", err
	}
	name = newName()
	if err := createDatabase(ctx, admin, name, template); err != nil {
		return "", "", err
	}
	dsn, err = databaseDSN(admin, name)
	return name, dsn, err
}

// prepare starts the server and migrates the template unless that was done before.
func (s *server) prepare(ctx context.Context, migrate Migrate) (*pgxpool.Pool, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(ctx); err != nil {
		return nil, "", err
	}
	if migrate == nil {
		return s.admin, "template0", nil
	}
	key := runtime.FuncForPC(reflect.ValueOf(migrate).Pointer()).Name()
	if template, ok := s.templates[key]; ok {
		return s.admin, template, nil
	}
	template, err := s.makeTemplate(ctx, migrate)
	if err != nil {
		return nil, "", fmt.Errorf("migrate template database with %s: %w", key, err)
	}
	s.templates[key] = template
	return s.admin, template, nil
}

func (s *server) makeTemplate(ctx context.Context, migrate Migrate) (string, error) {
	name := newName()
	if err := createDatabase(ctx, s.admin, name, "template0"); err != nil {
		return "", err
	}
	dsn, err := databaseDSN(s.admin, name)
	if err != nil {
		return "", err
	}
	if err := migrate(ctx, dsn); err != nil {
		return "", errors.Join(err, dropDatabase(ctx, s.admin, name))
	}
	return name, nil
}

func (s *server) start(ctx context.Context) error {
	if s.admin != nil {
		return nil
	}
	dsn := os.Getenv(ServerEnv)
	if dsn == "" {
		var err error
		if dsn, err = s.startPrivate(ctx); err != nil {
			return err
		}
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("read connection string of the test server: %w", err)
	}
	cfg.MaxConns = adminConnections
	// Tests end their context; the pool of all of them must not end with the first.
	if s.admin, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return fmt.Errorf("connect to test server: %w", err)
	}
	s.templates = make(map[string]string)
	return nil
}

func (s *server) startPrivate(ctx context.Context) (string, error) {
	folder, err := devstack.TempDir("settleonce-pgtest-")
	if err != nil {
		return "", err
	}
	s.private, err = devstack.StartPostgres(ctx, devstack.PostgresConfig{
		DataDir: filepath.Join(folder, "pg"),
		Fast:    true,
	})
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	s.folder = folder
	return s.private.DSN("postgres"), nil
}

func (s *server) drop(ctx context.Context, name string) error {
	s.mu.Lock()
	admin := s.admin
	s.mu.Unlock()
	if admin == nil {
		return nil
	}
	return dropDatabase(ctx, admin, name)
}

// close gives everything back: the templates on a server of others, all of a private one.
func (s *server) close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin == nil {
		return nil
	}
	var errs []error
	if s.private == nil {
		for _, template := range s.templates {
			errs = append(errs, dropDatabase(ctx, s.admin, template))
		}
	}
	s.admin.Close()
	s.admin = nil
	if s.private != nil {
		errs = append(errs, s.private.Stop(ctx), os.RemoveAll(s.folder))
	}
	return errors.Join(errs...)
}

// newName is unique on the server, whoever else uses it.
func newName() string {
	return "settleonce_test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
}

// createDatabase copies the template. Copying through the log (the default since version 15) needs no
// checkpoint, which would make parallel tests wait for each other.
func createDatabase(ctx context.Context, admin *pgxpool.Pool, name, template string) error {
	err := insist(ctx, admin, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+
		" WITH TEMPLATE "+pgx.Identifier{template}.Sanitize())
	if err != nil {
		return fmt.Errorf("create test database: %w", err)
	}
	return nil
}

func dropDatabase(ctx context.Context, admin *pgxpool.Pool, name string) error {
	err := insist(ctx, admin, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	if err != nil {
		return fmt.Errorf("drop test database: %w", err)
	}
	return nil
}

// insist repeats a statement that Postgres refuses while a session of the database has not ended
// yet: it waits five seconds for that, which a busy machine may exceed.
func insist(ctx context.Context, admin *pgxpool.Pool, statement string) error {
	for {
		_, err := admin.Exec(ctx, statement)
		var refused *pgconn.PgError
		if err == nil || ctx.Err() != nil || !errors.As(err, &refused) || refused.Code != objectInUse {
			return err
		}
	}
}

// objectInUse is SQLSTATE 55006.
const objectInUse = "55006"

// databaseDSN is the connection string of another database of the same server.
func databaseDSN(admin *pgxpool.Pool, name string) (string, error) {
	u, err := url.Parse(admin.Config().ConnString())
	if err != nil || u.Scheme == "" {
		return "", fmt.Errorf("the connection string in %s must be a URL, such as postgres://user@host/postgres", ServerEnv)
	}
	u.Path = "/" + name
	return u.String(), nil
}
