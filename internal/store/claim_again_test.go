package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// A claim whose COMMIT was not answered is run again, and finds its parked
// payment stale by now; while it waits for another row the sweep picks the
// payment and permits its send. It must not be rejected any more (G2).
func TestG2_ClaimRunAgainRejectsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.claimed(command())
	k := command()
	parked := w.arrive(k)
	parked.Admit = false
	b := batch(parked, w.arrive(other))
	b.LeaseFor = time.Millisecond
	out, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []string{"parked", "pending"}, verdicts(out))
	b.Freshness = payment.Freshness{Window: time.Millisecond, Skew: time.Hour} // the time until then is over
	w.eventually("stale", `SELECT clock_timestamp() > (SELECT max(issued_at) FROM settleonce.payments) + interval '2 ms'`)
	w.exec(`UPDATE settleonce.open_payments SET lease_until = now(), next_check_at = now() WHERE payment = $1`, idOf(k)) // due by then
	tx, err := w.look.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM settleonce.payments WHERE id = $1 FOR UPDATE`, idOf(other))
	require.NoError(t, err)
	claimed := make(chan []store.Outcome, 1)
	b.Again = true
	go func() {
		out, err := w.store.Claim(t.Context(), b)
		if err != nil {
			t.Log(err)
		}
		claimed <- out
	}()
	w.eventually("the claim waits", `SELECT EXISTS (SELECT FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'settleonce')`)
	ids, err := w.store.PickDue(t.Context(), 77, 30*time.Second, 0, 10)
	rollback := tx.Rollback(t.Context())
	out = <-claimed
	require.NoError(t, err)
	require.NoError(t, rollback)
	require.NotContains(t, ids, idOf(k), "what the claim is judging cannot be taken over and sent meanwhile")
	require.Equal(t, []string{"rejected STALE_COMMAND", "pending"}, verdicts(out))
	require.Equal(t, payment.Rejected, w.status(idOf(k)).Payment.State)
	w.consistent()
}
