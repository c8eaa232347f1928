package settle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/settle"
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
