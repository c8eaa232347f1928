package edge

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/store"
)

const (
	// A payment is looked at again after a quarter of the time it was waited for,
	// within these bounds: an outcome that takes 50 ms is seen at most some 12 ms
	// late, and a thousand waiting requests cost the database far less than a
	// thousand look-ups per tick.
	lookSoonest = 5 * time.Millisecond
	lookLatest  = 250 * time.Millisecond
	// lookBatch bounds the payments of one statement, lookTimeout its time.
	lookBatch   = 1000
	lookTimeout = 2 * time.Second
)

// watcher looks into the database for everybody who waits in this process: all
// payments that are due go into one statement.
type watcher struct {
	look func(ctx context.Context, ids []uuid.UUID) ([]store.Payment, error)
	log  zerolog.Logger
	wake chan struct{}

	mu    sync.Mutex
	waits map[*wait]struct{}
}

// wait is one request that waits for a payment.
type wait struct {
	id          uuid.UUID
	done        func(*store.Payment) bool
	since, next time.Time
	over        chan struct{}  // closed when done said so
	seen        *store.Payment // under the watcher's lock
}

func newWatcher(look func(context.Context, []uuid.UUID) ([]store.Payment, error), log zerolog.Logger) *watcher {
	return &watcher{look: look, log: log, wake: make(chan struct{}, 1), waits: make(map[*wait]struct{})}
}

// wait returns the payment as soon as done accepts it, and when ctx or stop ends
// as it was seen last: nil where it was not there.
func (w *watcher) wait(ctx context.Context, stop <-chan struct{}, id uuid.UUID, done func(*store.Payment) bool) *store.Payment {
	now := time.Now()
	one := &wait{id: id, done: done, since: now, next: now, over: make(chan struct{})}
	w.mu.Lock()
	w.waits[one] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it is awake already
	}
	select {
	case <-one.over:
	case <-stop:
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waits, one)
	return one.seen
}

// run looks until ctx ends; while nobody waits it does nothing.
func (w *watcher) run(ctx context.Context) {
	timer := time.NewTimer(lookLatest)
	defer timer.Stop()
	for {
		ids, pause := w.due(time.Now())
		if len(ids) > 0 {
			w.round(ctx, ids)
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// due are the payments to look at now, and else how long until the next one.
func (w *watcher) due(now time.Time) ([]uuid.UUID, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []uuid.UUID
	asked := make(map[uuid.UUID]bool)
	pause := time.Minute
	for one := range w.waits {
		if left := one.next.Sub(now); left > 0 {
			pause = min(pause, left)
			continue
		}
		if !asked[one.id] && len(ids) < lookBatch {
			asked[one.id] = true
			ids = append(ids, one.id)
		}
	}
	return ids, pause
}

func (w *watcher) round(ctx context.Context, ids []uuid.UUID) {
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := w.look(looking, ids)
	if err != nil && ctx.Err() == nil {
		w.log.Warn().Err(err).Int("payments", len(ids)).Msg("could not look what became of payments; who waits hears of it later")
	}
	byID := make(map[uuid.UUID]*store.Payment, len(found))
	for i := range found {
		byID[found[i].ID] = &found[i]
	}
	asked := make(map[uuid.UUID]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	w.deliver(asked, byID, err != nil)
}

// deliver ends the waits that are over, and plans the next look of the others.
func (w *watcher) deliver(asked map[uuid.UUID]bool, found map[uuid.UUID]*store.Payment, failed bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waits {
		if !asked[one.id] || now.Before(one.next) {
			continue
		}
		pause := min(max(now.Sub(one.since)/4, lookSoonest), lookLatest)
		if failed {
			pause = lookLatest
		}
		one.next = now.Add(pause)
		p := found[one.id]
		if p == nil {
			continue
		}
		one.seen = p
		if one.done(p) {
			close(one.over)
			delete(w.waits, one)
		}
	}
}
