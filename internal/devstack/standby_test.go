package devstack_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/devstack"
)

func startPair(t *testing.T) *devstack.Pair {
	t.Helper()
	pair, err := devstack.StartPair(t.Context(), devstack.PostgresConfig{DataDir: filepath.Join(tempDir(t), "pair"), SharedBuffers: "32MB"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pair.Stop(context.WithoutCancel(t.Context()))) })
	return pair
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func requireStandby(t *testing.T, pair *devstack.Pair, node int, want bool) {
	t.Helper()
	standby, err := pair.InRecovery(t.Context(), node)
	require.NoError(t, err)
	require.Equal(t, want, standby)
}

func TestPairOverTwoPromotions(t *testing.T) {
	t.Parallel()
	pair := startPair(t)
	require.NoError(t, pair.CreateDatabase(t.Context(), "shop"))
	dsn := pair.DSN("shop")
	requireStandby(t, pair, 0, false)
	requireStandby(t, pair, 1, true)
	require.ErrorContains(t, pair.Promote(t.Context()), "the primary is alive")
	execute(t, dsn, "CREATE TABLE kept (n int)")
	for round := range 2 {
		execute(t, dsn, "INSERT INTO kept VALUES (1)") // acknowledged right before the kill
		require.NoError(t, pair.Kill(t.Context()))
		_, err := pgx.Connect(t.Context(), dsn)
		require.Error(t, err, "nobody takes writes")
		require.NoError(t, pair.Promote(t.Context()))
		require.Equal(t, 1-round, pair.Primary())
		require.Equal(t, round+1, query[int](t, dsn, "SELECT count(*)::int FROM kept"))
		require.NoError(t, pair.Rejoin(t.Context()))
		requireStandby(t, pair, 1-pair.Primary(), true)
		require.ErrorContains(t, pair.Rejoin(t.Context()), "is alive")
	}
	require.Equal(t, 3, query[int](t, dsn, "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int"))
}

// Without the standby nothing is acknowledged, so nothing can be lost with the primary.
func TestPairAcknowledgesNothingAlone(t *testing.T) {
	t.Parallel()
	pair := startPair(t)
	dsn := pair.DSN("postgres")
	execute(t, dsn, "CREATE TABLE kept (n int)")
	require.NoError(t, pair.KillStandby(t.Context()))
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = conn.Exec(ctx, "INSERT INTO kept VALUES (1)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
