package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
)

// promote makes the database look like a promoted standby: it is on a later
// timeline than the installation knows.
func (w *world) promote() {
	w.t.Helper()
	w.exec(`UPDATE settleonce.installation SET timeline = timeline - 1`)
}

// A worker that runs on over a failover notices it inside the claim: nothing is
// permitted before its provider was asked (G1, G5).
func TestFailoverIsNoticedByTheClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, store.Claimed, w.claim(w.arrive(command()))[0].Verdict)
	w.promote()
	c := command()
	require.Equal(t, store.Parked, w.claim(w.arrive(c))[0].Verdict)
	require.True(t, w.status(c.Identity().PaymentID()).Open.QueryFirst)
	in, err := w.store.CheckInstallation(t.Context())
	require.NoError(t, err)
	require.Contains(t, in.Suspect, "promoted")
}

// A permit sees it too, under the payment's lock.
func TestFailoverIsNoticedByThePermit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.arrive(command())
	a.Admit = false
	require.Equal(t, store.Parked, w.claim(a)[0].Verdict)
	see := func() bool {
		var suspect bool
		w.apply(a.Identity.PaymentID(), func(l store.Locked) *store.Change {
			suspect = l.Suspect
			return nil
		})
		return suspect
	}
	require.False(t, see())
	w.promote()
	require.True(t, see())
}

// An acknowledgement makes the database as it is the known one, with a trace.
func TestRecoverAcknowledgesAFailover(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.promote()
	suspect, err := w.store.Recover(t.Context(), "ada", "the standby was complete")
	require.NoError(t, err)
	require.Contains(t, suspect, "promoted")
	require.Equal(t, store.Claimed, w.claim(w.arrive(command()))[0].Verdict)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'recover' AND actor = 'ada'`))
}
