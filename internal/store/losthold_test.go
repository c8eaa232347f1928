package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// TestG15_HoldLostAndFreedAtOnce: the hold is taken when a claim tries for it, and
// free when the claim looks who has it. The claim tries again: without the hold
// it would be charged beside whoever wins it next.
func TestG15_HoldLostAndFreedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k1 := w.claimed(command())
	// Keeps a claim between its two statements for as long as the lock is held.
	w.exec(`CREATE FUNCTION in_between() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$`)
	w.exec(`CREATE TRIGGER in_between AFTER INSERT ON settleonce.obligation_holds FOR EACH STATEMENT EXECUTE FUNCTION in_between()`)
	gate, err := w.look.Acquire(t.Context())
	require.NoError(t, err)
	defer gate.Release()
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_lock(7)`)
	require.NoError(t, err)

	k2 := sameOrder(k1)
	claimed := make(chan []store.Outcome)
	a := w.arrive(k2)
	go func() {
		out, err := w.store.Claim(t.Context(), batch(a))
		if err != nil {
			t.Error(err)
		}
		claimed <- out
	}()
	w.eventually("the claim is between its statements", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory')`)
	w.apply(idOf(k1), always(finish(payment.Declined)))
	_, err = gate.Exec(t.Context(), `SELECT pg_advisory_unlock(7)`)
	require.NoError(t, err)

	require.Equal(t, []string{"fresh"}, verdicts(<-claimed))
	require.Equal(t, idOf(k2), w.holder(k2.Caller, k2.OrderID))
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(w.arrive(sameOrder(k1)))))
	w.consistent()
}
