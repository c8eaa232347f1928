// Package pgtest gives every test a real Postgres database of its own.
//
// A database is a copy of a template that was migrated once per test binary, so a test costs some tens
// of milliseconds. The server is the one that SETTLEONCE_TEST_POSTGRES names (a connection string of a
// user who may create databases; `make test` sets it), else a private one for this test binary.
//
// A test binary that uses it has, in one of its files:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// and in its tests:
//
//	pool := pgtest.New(t, pgtest.Schema)
package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/leaktest"
)

// ServerEnv names the server to use instead of a private one.
const ServerEnv = "SETTLEONCE_TEST_POSTGRES"

const (
	setupTimeout = 5 * time.Minute
	dropTimeout  = 2 * time.Minute
)

// Migrate brings the empty database that dsn names to the state a test wants to find. It must be a
// function declared in a package, not a closure: its name is the key of the template.
type Migrate func(ctx context.Context, dsn string) error

// Main runs the tests (m is a *testing.M, or what wraps one), stops the private server, and fails when a
// goroutine is left.
func Main(m goleak.TestingM, options ...goleak.Option) {
	leaktest.Main(withTeardown{m}, options...)
}

// withTeardown ends the server between the last test and the look for left goroutines.
type withTeardown struct{ m goleak.TestingM }

// Run implements goleak.TestingM.
func (w withTeardown) Run() int {
	code := w.m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
	defer cancel()
	if err := shared.close(ctx); err != nil {
		fmt.Println("pgtest:", err)
		return max(code, 1)
	}
	return code
}

// DSN is the connection string of a fresh database, migrated, or empty when migrate is nil. The
// database is dropped after the test, with whatever sessions are still open.
func DSN(tb testing.TB, migrate Migrate) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), setupTimeout)
	defer cancel()
	name, dsn, err := shared.create(ctx, migrate)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		require.NoError(tb, shared.drop(ctx, name))
	})
	return dsn
}

// New is a pool of connections to a fresh database, as DSN makes one. It is closed after the test.
func New(tb testing.TB, migrate Migrate) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), DSN(tb, migrate))
	require.NoError(tb, err)
	tb.Cleanup(pool.Close) // waits for connections that a test has not given back
	return pool
}
