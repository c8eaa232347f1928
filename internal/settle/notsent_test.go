package settle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/payment"
)

// A provider that comes back and throttles gets no review for each payment: the
// resumed send that proves not sent leaves no trace, and the next query may resume
// again at once (P34).
func TestNotSentResumeLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 26)
	before := l.Open.Sends
	l.Open.Queries = 2
	granted := queried(r, l, notFound(), 26)
	require.Equal(t, settle.Granted, granted.Cause)
	require.True(t, granted.Open.Sends.LastDeadline.After(before.LastDeadline))

	l.Open = granted.Open
	permit := settle.Permit{Payment: l.Payment, Lease: mine, Actor: "test", Earlier: &before}
	throttled := payment.Answer{Class: payment.ClassThrottled, Cause: "throttled", RetryAfter: time.Second}
	c := r.Answered(permit, throttled)(l)
	require.Equal(t, before, c.Open.Sends)

	l.Open, l.Now = c.Open, c.Open.NextCheckAt
	l.Open.Lease = mine
	again := r.Queried(settle.Check{Lease: mine, Started: l.Now, Actor: "test", Grant: admitted()}, notFound())(l)
	require.Equal(t, settle.Granted, again.Cause, "not a review after three queries")

	// Without a word on what was before, the latest deadline stays: nothing is
	// taken for dead that may be alive.
	l = sent(1, 26)
	l.Open = granted.Open
	permit.Earlier = nil
	require.Equal(t, granted.Open.Sends.LastDeadline, r.Answered(permit, throttled)(l).Open.Sends.LastDeadline)
}
