package store_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func (w *world) keysOfOrder(q store.OrderQuery) []uuid.UUID {
	w.t.Helper()
	found, err := w.store.PaymentsOfOrder(w.t.Context(), q)
	require.NoError(w.t, err)
	keys := make([]uuid.UUID, len(found))
	for i := range found {
		keys[i] = found[i].Identity.Key
	}
	return keys
}

// A payment of an order is found whatever its obligation is and whatever became
// of it, also one from a namespace that the caller has left; another caller's is
// not (G12).
func TestPaymentsOfOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	whole := command()
	part, refused, moved, foreign, other := sameOrder(whole), sameOrder(whole), sameOrder(whole), sameOrder(whole), command()
	part.Obligation = "part-1"
	foreign.Caller, moved.Caller = "partner", "shop"
	w.claimed(whole)
	w.claimed(part)
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(w.arrive(refused))))
	arrival := w.arrive(moved)
	arrival.Namespace = "shops"
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(arrival)))
	arrival = w.arrive(foreign)
	arrival.Namespace = "shops-of-partners"
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(arrival)))
	w.claimed(other)

	query := store.OrderQuery{Caller: "shop", Namespaces: []string{"shops", "shop"}, OrderID: whole.OrderID, Limit: 10}
	want := []uuid.UUID{moved.IdempotencyKey, refused.IdempotencyKey, part.IdempotencyKey, whole.IdempotencyKey}
	require.Equal(t, want, w.keysOfOrder(query))

	query.Limit = 3
	first, err := w.store.PaymentsOfOrder(t.Context(), query)
	require.NoError(t, err)
	require.Len(t, first, 3)
	query.Before = store.Mark{At: first[2].CreatedAt, ID: first[2].ID}
	require.Equal(t, want[3:], w.keysOfOrder(query))

	query = store.OrderQuery{Caller: "partner", Namespaces: []string{"shops-of-partners", "shop"}, OrderID: whole.OrderID, Limit: 10}
	require.Equal(t, []uuid.UUID{foreign.IdempotencyKey}, w.keysOfOrder(query))
}

func TestLookShowsOnlyWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.claimed(command()), w.claimed(command())
	w.claimed(command())
	found, err := w.store.Look(t.Context(), []uuid.UUID{idOf(a), idOf(b), uuid.New()})
	require.NoError(t, err)
	require.Len(t, found, 2)
	for _, p := range found {
		want := a
		if p.ID == idOf(b) {
			want = b
		}
		fingerprint, err := want.Fingerprint()
		require.NoError(t, err)
		require.Equal(t, fingerprint, p.Fingerprint)
		require.Equal(t, want.Identity(), p.Identity)
		require.Equal(t, payment.Pending, p.State)
		require.Equal(t, want.OrderID, p.OrderID)
		require.True(t, want.IssuedAt.Equal(p.IssuedAt))
		require.Empty(t, p.PaymentMethod)
	}
}

func TestStoryIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	for range 5 {
		w.claim(w.arrive(c))
	}
	all, err := w.store.Status(t.Context(), idOf(c))
	require.NoError(t, err)
	require.Len(t, all.Deliveries, 5)
	some, err := w.store.Story(t.Context(), idOf(c), 3)
	require.NoError(t, err)
	require.Equal(t, all.Deliveries[2:], some.Deliveries)
	require.Equal(t, all.History, some.History)
	_, err = w.store.Story(t.Context(), uuid.New(), 3)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// What the edge reads is found by indexes, prepared on empty tables as well, and
// the index for it has no entry for a usual payment.
func TestPlansOfTheEdge(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, p := listen(t, mode)
			w.exec(`ALTER TABLE settleonce.payments SET (autovacuum_enabled = off)`)
			c := w.claimed(command())
			w.claim(w.arrive(c))
			for range 8 {
				w.readForEdge(c)
			}
			p.take()
			w.readForEdge(c)
			w.fill(50000)
			w.readForEdge(c)
			seen := p.take()
			require.GreaterOrEqual(t, len(seen), 10)
			for i := range seen {
				// The ranges of the history's index are coarse.
				if faults := seen[i].Plan.faults(6000, false); len(faults) > 0 {
					t.Errorf("%v\n%s", faults, seen[i].Query)
				}
			}
			w.exec(`ANALYZE settleonce.payments`)
			require.Zero(t, w.count(`SELECT reltuples::bigint FROM pg_class WHERE relname = 'payments_order'`))
		})
	}
}

func (w *world) readForEdge(c payment.Command) {
	w.t.Helper()
	ids := []uuid.UUID{idOf(c)}
	for range 50 {
		ids = append(ids, uuid.New())
	}
	_, err := w.store.Look(w.t.Context(), ids)
	require.NoError(w.t, err)
	require.Len(w.t, w.keysOfOrder(store.OrderQuery{Caller: "shop", Namespaces: []string{"shop"}, OrderID: c.OrderID, Limit: 10}), 1)
	_, err = w.store.Story(w.t.Context(), idOf(c), 100)
	require.NoError(w.t, err, fmt.Sprint(c.IdempotencyKey))
}
