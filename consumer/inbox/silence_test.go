package inbox_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/internal/pgtest"
)

// silence is a network to the database that can stop to carry anything, without
// closing a connection.
type silence struct {
	mu     sync.Mutex
	over   *sync.Cond
	silent bool
}

func newSilence(t *testing.T, pool *pgxpool.Pool) (*silence, *pgxpool.Pool) {
	t.Helper()
	s := &silence{}
	s.over = sync.NewCond(&s.mu)
	dsn := pgtest.Via(t, pool.Config().ConnString(), func(client, server net.Conn) {
		var both sync.WaitGroup
		both.Go(func() { s.carry(server, client) })
		both.Go(func() { s.carry(client, server) })
		both.Wait()
	})
	t.Cleanup(func() { s.set(false) })
	over, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(over.Close)
	return s, over
}

func (s *silence) set(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
	s.over.Broadcast()
}

func (s *silence) carry(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 4<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		for s.silent {
			s.over.Wait()
		}
		s.mu.Unlock()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The network falls silent between markers and work, as often as a message is tried:
// no message is to blame for that, and none becomes a dead letter.
func TestSilentNetworkBlamesNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	network, pool := newSilence(t, w.pool)
	var calls atomic.Int64
	const attempts = 2
	fell := make(chan struct{}, attempts)
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		if calls.Add(1) <= attempts {
			network.set(true)
			fell <- struct{}{}
		}
		return work(ctx, tx, m)
	}, func(c *inbox.Config) { c.Pool, c.Attempts, c.Timeout = pool, attempts, 5*time.Second })
	w.events("order-1", 1)
	for range attempts {
		<-fell // by then nothing gets through, and every try fails
		before := in.Stats().Retried
		require.Eventually(t, func() bool { return in.Stats().Retried > before || in.Stats().DeadLettered > 0 }, 5*time.Minute, 5*time.Millisecond)
		network.set(false)
	}
	w.handled(in, 1)
	require.Empty(t, w.deadLetters())
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
}

// A handler that is too slow, while the database answers everybody else, is to
// blame, and holds up its partition only so often.
func TestSlowHandlerIsADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		e, err := m.Event()
		if err == nil && e.OrderID == "order-slow" {
			_, err = tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		}
		return work(ctx, tx, m)
	}, func(c *inbox.Config) { c.Attempts, c.Timeout = 2, 5*time.Second })
	w.events("order-slow", 1)
	w.events("order-good", 1)
	w.handled(in, 2)
	letters := w.deadLetters()
	require.Len(t, letters, 1)
	require.Equal(t, "handler_failed", letters[0]["dl_reason"])
	require.Equal(t, map[string][]int{"order-good": {1}}, w.tasks())
}
