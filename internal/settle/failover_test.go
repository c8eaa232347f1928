package settle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// A parked payment whose permit may have been lost in a failover is asked about
// before it is sent, once; then it is sent although the suspicion stands (G1).
func TestLostPermitIsAskedAboutFirst(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := parked(10)
	l.Suspect = true
	asked := r.Permitted(admitted())(l)
	require.NotNil(t, asked)
	require.NotEqual(t, settle.Granted, asked.Cause)
	require.True(t, asked.Open.QueryFirst)

	l.Open = asked.Open
	l.Open.Lease, l.Now = mine, at(11)
	require.Equal(t, settle.ActionQuery, r.Next(l))
	early := queried(r, l, notFound(), 11)
	require.True(t, early.Open.QueryFirst, "a lost send may still be alive")

	l.Now = l.Open.Sends.LastDeadline.Add(time.Hour)
	cleared := queried(r, l, notFound(), int(l.Now.Sub(at(0)).Seconds())-1)
	require.False(t, cleared.Open.QueryFirst)
	l.Open = cleared.Open
	l.Open.Lease = mine
	require.Equal(t, settle.ActionPermit, r.Next(l))
	require.Equal(t, settle.Granted, r.Permitted(admitted())(l).Cause)

	l.Open = asked.Open
	l.Open.Lease = mine
	require.Equal(t, payment.Succeeded, queried(r, l, success(), 12).To, "what was lost is found")
}

// TestG3_DeclineAfterAFailover: while commits may be lost, the one send on record
// may not be the only one, and the other's deadline is not on record either. A
// decline is stored, and concluded by a query that starts when that one is dead too.
func TestG3_DeclineAfterAFailover(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(unpinned))
	l := sent(1, 200)
	require.Equal(t, payment.Declined, queried(r, l, decline(), 199).To, "its send is long dead")
	l.Suspect = true
	for name, c := range map[string]*store.Change{"sent": answered(r, l, decline()), "queried": queried(r, l, decline(), 199)} {
		require.Zero(t, c.To, name)
		require.True(t, c.Open.NoMoreSends, name)
		require.Equal(t, l.Now.Add(r.Lease), c.Open.Sends.LastDeadline, "%s: as late as the lost permit's may be", name)

		dead := 200 + int(r.Lease.Seconds()) + 30 + 5
		later := sent(1, dead+30)
		later.Suspect, later.Open = true, c.Open
		later.Open.Lease = mine
		require.Zero(t, queried(r, later, decline(), dead).To, "%s: the lost send may still be executed, or not be seen", name)
		require.Equal(t, payment.Succeeded, queried(r, later, success(), dead+1).To, name)
		require.Equal(t, payment.Declined, queried(r, later, decline(), dead+1).To, name)
		require.NotEqual(t, payment.Declined, answered(r, later, decline()).To, "%s: two sends, and neither pinned nor asked", name)
	}
}
