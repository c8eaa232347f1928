package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// unanswered are payments that are unknown, with their next check some time from
// now; negative: overdue.
func (w *world) unanswered(n int, in time.Duration) []uuid.UUID {
	w.t.Helper()
	b := batch()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		b.Arrivals = append(b.Arrivals, w.arrive(command()))
		ids[i] = b.Arrivals[i].Identity.PaymentID()
	}
	_, err := w.store.Claim(w.t.Context(), b)
	require.NoError(w.t, err)
	for _, id := range ids {
		w.apply(id, func(l store.Locked) *store.Change {
			open := *l.Open
			open.Lease, open.LeaseUntil, open.NextCheckAt = 0, l.Now, l.Now.Add(in)
			return &store.Change{To: payment.Unknown, Event: payment.EventUnknown, Open: &open, Actor: "test"}
		})
	}
	return ids
}

func (w *world) pickDue(lease int64, grace time.Duration) []uuid.UUID {
	w.t.Helper()
	ids, err := w.store.PickDue(w.t.Context(), lease, time.Minute, grace, 10)
	require.NoError(w.t, err)
	return ids
}

// TestPickDue: what is due and nobody's, never early, once.
func TestPickDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	leased := w.claimed(command())
	w.exec(`UPDATE settleonce.open_payments SET next_check_at = now() - interval '1 day', lease_until = now() + interval '1 hour'`)
	overdue, near, later := w.unanswered(2, -2*time.Hour), w.unanswered(1, -100*time.Millisecond), w.unanswered(1, time.Hour)
	require.ElementsMatch(t, overdue, w.pickDue(5, time.Hour), "the wake-up of the others may be near")
	require.Empty(t, w.pickDue(6, time.Hour), "leased now")
	require.Equal(t, near, w.pickDue(7, 0))
	open := w.status(overdue[0]).Open
	require.EqualValues(t, 5, open.Lease)
	require.WithinDuration(t, time.Now().Add(time.Minute), open.LeaseUntil, 30*time.Second)
	require.WithinDuration(t, open.LeaseUntil, open.NextCheckAt, 5*time.Second)
	require.NotEqual(t, int64(6), w.status(idOf(leased)).Open.Lease)
	require.Zero(t, w.status(later[0]).Open.Lease)

	w.exec(`UPDATE settleonce.open_payments SET lease_until = now(), next_check_at = now() WHERE payment = $1`, idOf(leased))
	require.Equal(t, []uuid.UUID{idOf(leased)}, w.pickDue(8, 0), "its worker stopped")
}

// TestPickDueByManyWorkers: each payment is picked once, and nobody waits.
func TestPickDueByManyWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	due := w.unanswered(200, -time.Minute)
	picked := make(map[uuid.UUID]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 10 {
				ids, err := w.store.PickDue(t.Context(), int64(i+1), time.Hour, 0, 7)
				if err != nil {
					t.Error(err)
				}
				if len(ids) > 7 {
					t.Errorf("picked %d of at most 7", len(ids))
				}
				mu.Lock()
				for _, id := range ids {
					picked[id]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Len(t, picked, len(due))
	for _, n := range picked {
		require.Equal(t, 1, n)
	}
}

// TestP14_FailingRowsDoNotStarveOthers: the oldest always fail; each has its own
// next time, so the others get their turn.
func TestP14_FailingRowsDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	failing, others := w.unanswered(10, -time.Hour), w.unanswered(15, -time.Minute)
	fails := make(map[uuid.UUID]bool)
	for _, id := range failing {
		fails[id] = true
	}
	turns := make(map[uuid.UUID]int)
	for lease := range int64(6) {
		for _, id := range w.pickDue(lease+1, 0) {
			turns[id]++
			if fails[id] { // put off by its own pause, which is over at once
				w.exec(`UPDATE settleonce.open_payments SET lease_until = now(), next_check_at = clock_timestamp() WHERE payment = $1`, id)
			}
		}
	}
	for _, id := range others {
		require.Equal(t, 1, turns[id])
	}
	require.Positive(t, turns[failing[0]])
}

// TestPickWoken: a wake-up that comes twice, late or early picks nothing: the
// truth is the row.
func TestPickWoken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	due, early := w.unanswered(1, -time.Second)[0], w.unanswered(1, time.Hour)[0]
	woken := func(lease int64, wakes ...store.Wake) []uuid.UUID {
		ids, err := w.store.PickWoken(t.Context(), lease, time.Minute, wakes)
		require.NoError(t, err)
		return ids
	}
	require.Empty(t, woken(1, store.Wake{Payment: early, Query: 1}), "early")
	require.Empty(t, woken(1, store.Wake{Payment: due, Query: 2}), "not its turn")
	require.Empty(t, woken(1, store.Wake{Payment: uuid.New(), Query: 1}), "never heard of")
	require.Equal(t, []uuid.UUID{due}, woken(2, store.Wake{Payment: due, Query: 1}, store.Wake{Payment: due, Query: 1}, store.Wake{Payment: early, Query: 1}))
	require.Empty(t, woken(3, store.Wake{Payment: due, Query: 1}), "twice")
	require.EqualValues(t, 2, w.status(due).Open.Lease)
	w.exec(`UPDATE settleonce.open_payments SET queries = 1, lease_until = now(), next_check_at = now() WHERE payment = $1`, due)
	require.Empty(t, woken(4, store.Wake{Payment: due, Query: 1}), "late: that query was made")
	require.Equal(t, []uuid.UUID{due}, woken(4, store.Wake{Payment: due, Query: 2}))
	w.apply(due, always(finish(payment.Succeeded)))
	require.Empty(t, woken(5, store.Wake{Payment: due, Query: 2}), "resolved")
	require.Empty(t, woken(6))
}
