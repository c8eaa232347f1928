package outbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// wakeGap is the least time between two notifications of one process: they
	// commit one after the other, in the whole database (PITFALLS 14).
	wakeGap     = 3 * time.Millisecond
	wakeTimeout = time.Second
)

// Waker tells the relays of all processes that messages were committed. One per
// process is enough; it turns any number of calls into a few notifications.
type Waker struct {
	pool     *pgxpool.Pool
	timeout  time.Duration // of one notification
	wanted   chan struct{} // capacity 1
	sent     atomic.Uint64
	failures atomic.Uint64
}

// NewWaker returns a Waker that does nothing until Run.
func NewWaker(pool *pgxpool.Pool) *Waker {
	return &Waker{pool: pool, timeout: wakeTimeout, wanted: make(chan struct{}, 1)}
}

// Wake asks for a notification. Call it after the commit, never before: a wake-up
// for rows that are not there yet is lost. It never blocks.
func (w *Waker) Wake() { kick(w.wanted) }

// Run sends notifications until ctx ends: the first at once, then at most one
// every 3 ms. One that fails is counted and dropped, since the relays' poll finds
// everything.
func (w *Waker) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wanted:
		}
		w.notify(ctx)
		if !pause(ctx, wakeGap, nil) {
			return
		}
	}
}

func (w *Waker) notify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	if _, err := w.pool.Exec(ctx, notifySQL, ""); err != nil {
		w.failures.Add(1)
		return
	}
	w.sent.Add(1)
}

// Sent is how many notifications were sent.
func (w *Waker) Sent() uint64 { return w.sent.Load() }

// Failures is how many notifications could not be sent.
func (w *Waker) Failures() uint64 { return w.failures.Load() }
