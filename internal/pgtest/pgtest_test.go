package pgtest_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var migrations atomic.Int32

func migrate(ctx context.Context, dsn string) error {
	migrations.Add(1)
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	_, err = conn.Exec(ctx, "CREATE TABLE charges (id int PRIMARY KEY)")
	return err
}

func TestNewIsolatesTests(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t, migrate)
			_, err := pool.Exec(t.Context(), "INSERT INTO charges VALUES (1)")
			require.NoError(t, err, "a row of another test would clash")
			require.EqualValues(t, 1, migrations.Load(), "one template serves all")
		})
	}
}

func TestDSNWithoutMigrationIsEmpty(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t, nil))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), "TABLE charges")
	require.ErrorContains(t, err, "42P01")
}

func TestSchemaIsMigrated(t *testing.T) {
	t.Parallel()
	var rows int
	pool := pgtest.New(t, pgtest.Schema)
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM settleonce.payments").Scan(&rows))
	require.Zero(t, rows)
}

//nolint:tparallel // What the subtest leaves behind is looked at afterwards.
func TestDropsDatabaseWithOpenSessions(t *testing.T) {
	t.Parallel()
	var name string
	var left *pgx.Conn
	t.Run("leaves a session open", func(t *testing.T) {
		var err error
		left, err = pgx.Connect(t.Context(), pgtest.DSN(t, nil))
		require.NoError(t, err)
		require.NoError(t, left.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
	})
	require.Error(t, left.Ping(t.Context()), "the session should have been ended")

	var found bool
	const query = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
	require.NoError(t, pgtest.New(t, nil).QueryRow(t.Context(), query, name).Scan(&found))
	require.False(t, found)
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		pgtest.DSN(b, migrate)
	}
}
