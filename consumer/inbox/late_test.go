package inbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer/inbox"
)

// bounded is the service's database with a bound that its server keeps.
func (w *world) bounded(name, value string) *pgxpool.Pool {
	w.t.Helper()
	cfg := w.pool.Config()
	cfg.ConnConfig.RuntimeParams[name] = value
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(pool.Close)
	return pool
}

// A handler that the server stops for its slowness, every time, holds up its partition
// only so often, whichever bound it was.
func TestHandlerStoppedByTheServerIsADeadLetter(t *testing.T) {
	t.Parallel()
	for bound, slow := range map[string]inbox.Handler{
		"statement_timeout": func(ctx context.Context, tx pgx.Tx, _ *inbox.Message) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		},
		"idle_in_transaction_session_timeout": func(ctx context.Context, tx pgx.Tx, _ *inbox.Message) error {
			<-time.After(3 * time.Second)
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		},
	} {
		t.Run(bound, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
				e, err := m.Event()
				if err == nil && e.OrderID == "order-slow" {
					return slow(ctx, tx, m)
				}
				return work(ctx, tx, m)
			}, func(c *inbox.Config) { c.Pool = w.bounded(bound, "2s") })
			w.events("order-slow", 1)
			w.events("order-good", 1)
			w.handled(in, 2)
			letters := w.deadLetters()
			require.Len(t, letters, 1)
			require.Equal(t, "handler_failed", letters[0]["dl_reason"])
			require.Equal(t, map[string][]int{"order-good": {1}}, w.tasks())
		})
	}
}

// Somebody holds a lock that the handler needs, for longer than all attempts take: no
// message is to blame for that, and none becomes a dead letter (G5).
func TestLockOfOthersBlamesNobody(t *testing.T) {
	t.Parallel()
	for _, bound := range []string{"", "statement_timeout"} {
		t.Run("by "+bound, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			holder, err := w.pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = holder.Exec(t.Context(), "LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
			require.NoError(t, err)
			in, _ := w.run(work, func(c *inbox.Config) {
				c.Attempts, c.Timeout = 2, 4*time.Second
				if bound != "" {
					c.Pool = w.bounded(bound, "2s")
				}
			})
			w.events("order-1", 1)
			require.Eventually(t, func() bool { return in.Stats().Retried > 3 || in.Stats().DeadLettered > 0 }, 5*time.Minute, 5*time.Millisecond)
			require.NoError(t, holder.Rollback(t.Context()))
			w.handled(in, 1)
			require.Empty(t, w.deadLetters())
			require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
		})
	}
}

// A handler that is late and deaf to its context has done its work all the same: that is
// committed, and not undone and done again for ever.
func TestLateWorkIsCommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int64
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		calls.Add(1)
		if err := work(ctx, tx, m); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}, func(c *inbox.Config) { c.Timeout = 5 * time.Second })
	w.events("order-1", 1)
	require.Eventually(t, func() bool { return in.Stats().Applied > 0 || in.Stats().Retried > 4 }, 5*time.Minute, 5*time.Millisecond)
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
	require.Empty(t, w.deadLetters())
}
