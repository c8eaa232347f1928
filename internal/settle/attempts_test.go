package settle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

var operator = settle.Order{Actor: "ann", Reason: "the token was renewed"}

// reviewed is a payment in review whose n sends are long dead, on a channel of
// these rules.
func reviewed(n int) store.Locked {
	l := sent(n, 600)
	l.Payment.State = payment.Review
	return l
}

// asked is a query of the first attempt that began just before the payment was looked at.
func asked(a payment.Answer) *settle.Fresh {
	return &settle.Fresh{Attempt: 1, Started: at(599), Answer: a}
}

// second is a payment whose second attempt was opened, and permitted n times.
func second(t *testing.T, r *settle.Rules, n int) store.Locked {
	t.Helper()
	l := reviewed(1)
	c := r.OpenAttempt(operator, asked(notFound()))(l)
	require.NotNil(t, c)
	l.Payment.Attempt, l.Payment.ProviderKey = c.Attempt, l.Payment.Identity.ProviderKey(c.Attempt)
	l.Payment.Sends, l.Open, l.Now = n, c.Open, at(700)
	l.Open.Lease = mine
	if n > 0 {
		l.Open.Sends = channel.Sends{Count: n, First: at(650), LastDeadline: at(670)}
	}
	return l
}

// first is an answer to a send of the first attempt.
func first(r *settle.Rules, l store.Locked, a payment.Answer) *store.Change {
	p := l.Payment
	p.Attempt = 1
	return r.Answered(settle.Permit{Payment: p, Lease: 3, Actor: "test"}, a)(l)
}

// latest is what a query of the second attempt does.
func queriedSecond(r *settle.Rules, l store.Locked, a payment.Answer, started int) *store.Change {
	return r.Queried(settle.Check{Lease: mine, Attempt: 2, Started: at(started), Actor: "test", Grant: admitted()}, a)(l)
}

// TestOpenAttempt: a new provider key, nothing of the old attempt left, and the send
// is permitted although the payment is in review.
func TestOpenAttempt(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(notIdempotent))
	c := r.OpenAttempt(operator, asked(notFound()))(reviewed(1))
	require.Equal(t, 2, c.Attempt)
	require.Zero(t, c.To)
	require.Zero(t, c.Open.Sends)
	require.Equal(t, "ann", c.Actor)
	require.Equal(t, "attempt", c.Audit.Action)

	l := second(t, r, 0)
	require.Equal(t, settle.ActionPermit, r.Next(l))
	granted := r.Permitted(admitted())(l)
	require.Equal(t, settle.Granted, granted.Cause)
	require.Equal(t, 1, granted.Open.Sends.Count)

	l = second(t, r, 1)
	require.Equal(t, settle.ActionQuery, r.Next(l))
	require.NotEqual(t, settle.Granted, queriedSecond(r, l, notFound(), 699).Cause, "once")
	require.Equal(t, payment.Succeeded, queriedSecond(r, l, success(), 699).To)
	require.Equal(t, payment.Declined, r.Answered(settle.Permit{Payment: l.Payment, Lease: mine}, decline())(l).To)

	declined := r.OpenAttempt(operator, asked(decline()))(reviewed(1))
	require.Equal(t, 2, declined.Attempt, "a decline that is repaired, instead of concluded")
}

// TestOpenAttemptRefused: each refusal says why, and when it will be possible.
func TestOpenAttemptRefused(t *testing.T) {
	t.Parallel()
	other := store.Payment{}.ID
	other[0] = 9
	state := func(s payment.State) func(*store.Locked) { return func(l *store.Locked) { l.Payment.State = s } }
	tests := map[string]struct {
		caps     channel.Capabilities
		change   func(*store.Locked)
		query    *settle.Fresh
		reason   string
		possible time.Time
	}{
		"ended":             {change: func(l *store.Locked) { *l = ended(payment.Declined) }, reason: "ended declined"},
		"pending":           {change: state(payment.Pending), reason: "still settled by itself"},
		"unknown":           {change: state(payment.Unknown), reason: "still settled by itself"},
		"never sent":        {change: func(l *store.Locked) { l.Open.Sends = channel.Sends{} }, reason: "nothing was sent"},
		"next one waits":    {change: func(l *store.Locked) { l.Payment.Attempt, l.Open.Sends = 2, channel.Sends{} }, reason: "not sent yet"},
		"commits lost":      {change: func(l *store.Locked) { l.Suspect = true }, reason: "settleonce recover"},
		"conflict":          {change: func(l *store.Locked) { l.Conflicted = true }, reason: "conflict item"},
		"paid":              {change: func(l *store.Locked) { l.Payment.Attempt, l.Open.PaidAttempt = 2, 1 }, reason: "attempt 1 succeeded"},
		"other amount":      {change: func(l *store.Locked) { l.Open.NoMoreSends = true }, reason: "did not match"},
		"another account":   {change: func(l *store.Locked) { l.Payment.ChannelIdentity = "acme/test" }, reason: "another account"},
		"stale":             {change: func(l *store.Locked) { l.Payment.IssuedAt = at(-20 * 24 * 3600) }, reason: "too old"},
		"paid otherwise":    {change: func(l *store.Locked) { l.Ground.LatestSuccess, l.Ground.SuccessAt = &other, at(5) }, reason: "OBLIGATION_ALREADY_PAID"},
		"held by another":   {change: func(l *store.Locked) { l.Ground.Holder = &other }, reason: "PRIOR_ATTEMPT_UNRESOLVED"},
		"alive":             {change: func(l *store.Locked) { l.Now = at(54) }, reason: "may still be executed", possible: at(55)},
		"no query":          {caps: with(noQuery), reason: "statement"},
		"unknown execution": {caps: with(func(c *channel.Capabilities) { c.LongestExecution, c.NotFoundIsProof = 0, false; notIdempotent(c) }), reason: "not documented"},
		"out of reach":      {caps: with(func(c *channel.Capabilities) { c.QueryReach = time.Minute }), reason: "no longer reaches"},
		"not asked":         {reason: "asked first"},
		"asked too early":   {query: &settle.Fresh{Attempt: 1, Started: at(55), Answer: notFound()}, reason: "too early", possible: at(55)},
		"asked of another":  {query: &settle.Fresh{Attempt: 2, Started: at(599), Answer: notFound()}, reason: "too early", possible: at(55)},
		"no answer":         {query: asked(silence()), reason: "no definite answer"},
		"no proof":          {caps: with(func(c *channel.Capabilities) { c.NotFoundIsProof = false }), query: asked(notFound()), reason: "proves nothing"},
		"succeeded":         {query: asked(success()), reason: "success"},
		"another sum":       {query: asked(payment.Answer{Class: payment.ClassMismatched}), reason: "something else"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.caps.Identity == "" {
				test.caps = promising()
			}
			r, l := rulesFor(t, test.caps), reviewed(1)
			if test.change != nil {
				test.change(&l)
			}
			refused := r.MayOpenAttempt(l, test.query)
			require.NotNil(t, refused)
			require.ErrorContains(t, refused, test.reason)
			require.True(t, test.possible.Equal(refused.Possible), "%s", refused.Possible)
			require.Nil(t, r.OpenAttempt(operator, test.query)(l))
		})
	}
}

// TestResolve: what was never sent may be closed at any time, anything else when it
// is dead and its provider was asked since (G3).
func TestResolve(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	c := r.Resolve(operator, nil)(parked(10))
	require.Equal(t, payment.Declined, c.To)
	require.Equal(t, settle.NotExecuted, c.Cause)
	require.Equal(t, payment.EventDeclined, c.Event)
	require.Equal(t, "resolve", c.Audit.Action)
	require.Equal(t, payment.Declined, r.Resolve(operator, nil)(second(t, r, 0)).To, "the second attempt was not sent, the first is dead")

	l := reviewed(2)
	require.Nil(t, r.Resolve(operator, nil)(l))
	require.Equal(t, payment.Declined, r.Resolve(operator, asked(notFound()))(l).To)
	require.Equal(t, payment.Declined, r.Resolve(operator, asked(decline()))(l).To)
	require.NotEmpty(t, r.Resolve(operator, asked(decline()))(l).CloseReviews)
	for reason, q := range map[string]*settle.Fresh{
		"no definite answer": asked(silence()), "success": asked(success()), "too early": {Attempt: 1, Started: at(54), Answer: notFound()},
	} {
		require.ErrorContains(t, r.MayResolve(l, q), reason)
		require.Nil(t, r.Resolve(operator, q)(l))
	}
	l.Suspect = true
	require.ErrorContains(t, r.MayResolve(l, asked(notFound())), "recover")
	waiting := parked(10)
	waiting.Suspect = true
	require.Nil(t, r.Resolve(operator, nil)(waiting), "\"never sent\" may be wrong")
	waiting.Suspect, waiting.Open.QueryFirst = false, true
	require.Nil(t, r.Resolve(operator, nil)(waiting), "it may have been sent under a claim that was lost")
	require.ErrorContains(t, r.MayResolve(ended(payment.Succeeded), nil), "ended succeeded")
}

// TestP33_SuccessOfAnEarlierAttempt: before the second attempt was sent it ends the
// payment; after, it forbids everything but success (G11).
func TestP33_SuccessOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(notIdempotent))
	before := first(r, second(t, r, 0), success())
	require.Equal(t, payment.Succeeded, before.To)
	require.Equal(t, 1, before.Attempt)

	l := second(t, r, 1)
	c := first(r, l, success())
	require.Zero(t, c.To)
	require.True(t, c.Open.NoMoreSends)
	require.Equal(t, 1, c.Open.PaidAttempt)
	require.Equal(t, mine, c.Open.Lease, "it is not its affair who holds the lease")
	l.Open = c.Open
	require.Nil(t, first(r, l, success()), "known already")
	require.Equal(t, settle.ActionQuery, r.Next(l))

	for name, end := range map[string]*store.Change{
		"declined": r.Answered(settle.Permit{Payment: l.Payment, Lease: mine}, decline())(l),
		"absent":   queriedSecond(r, l, notFound(), 726),
	} {
		require.Equal(t, payment.Succeeded, end.To, name)
		require.Equal(t, 1, end.Attempt, name)
		require.Equal(t, "ch_1", end.Reference, name)
		require.Nil(t, end.Review, name)
	}
	require.Zero(t, queriedSecond(r, l, notFound(), 699).To, "it may still be executed")
	require.Zero(t, queriedSecond(r, l, silence(), 726).To)
	require.ErrorContains(t, r.MayResolve(l, nil), "attempt 1 succeeded")
	twice := success()
	twice.Reference = "ch_2"
	both := queriedSecond(r, l, twice, 699)
	require.Equal(t, payment.Succeeded, both.To)
	require.Equal(t, store.ReviewConflict, both.Review.Kind)
	require.True(t, both.Review.Blocks)
	require.Contains(t, both.Review.Reason, "attempts 1 and 2")

	lost := second(t, r, 0)
	lost.Suspect = true
	require.Zero(t, first(r, lost, success()).To, "a permit of the second attempt may be lost")
}

// TestP33_OtherAnswersOfAnEarlierAttempt change nothing: it was dead, and that is why
// there is a later one.
func TestP33_OtherAnswersOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(notIdempotent))
	for _, l := range []store.Locked{second(t, r, 0), second(t, r, 1)} {
		require.Nil(t, first(r, l, decline()))
		require.Nil(t, first(r, l, silence()))
		require.Nil(t, first(r, l, payment.Answer{Class: payment.ClassNotSent}))
		odd := first(r, l, payment.Answer{Class: payment.ClassMismatched, Cause: "amount 1998"})
		require.True(t, odd.Open.NoMoreSends)
		require.Equal(t, store.ReviewConflict, odd.Review.Kind)
	}
	done := ended(payment.Succeeded) // by the first attempt; the second's answer comes late
	late := done.Payment
	late.Attempt = 2
	require.Nil(t, r.Answered(settle.Permit{Payment: late, Lease: 3}, decline())(done))
	twice := success()
	twice.Reference = "ch_2"
	require.Equal(t, store.ReviewConflict, r.Answered(settle.Permit{Payment: late, Lease: 3}, twice)(done).Review.Kind)
}

// TestPermitRunAgainIsTheSame: a permit whose COMMIT nobody answered is stored once,
// and used (4a).
func TestPermitRunAgainIsTheSame(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := parked(10)
	g := admitted()
	g.Sends = &channel.Sends{}
	stored := r.Permitted(g)(l)
	require.Equal(t, settle.Granted, stored.Cause)
	l.Open = stored.Open
	again := r.Permitted(g)(l)
	require.Equal(t, settle.Granted, again.Cause)
	require.Equal(t, stored.Open, again.Open)
	require.True(t, again.Quiet)

	unknown := sent(1, 100)
	g.Sends = &channel.Sends{Count: 1}
	check := settle.Check{Lease: mine, Attempt: 1, Started: at(99), Actor: "test", Grant: g}
	resumed := r.Queried(check, notFound())(unknown)
	require.Equal(t, settle.Granted, resumed.Cause)
	unknown.Open = resumed.Open
	require.Equal(t, 2, r.Queried(check, notFound())(unknown).Open.Sends.Count)
	unknown.Open.Lease = 99
	require.Nil(t, r.Queried(check, notFound())(unknown), "somebody else has it by now")
}
