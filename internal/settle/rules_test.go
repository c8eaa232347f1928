package settle_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

const mine = int64(7)

// promising is a channel that promises everything.
func promising() channel.Capabilities {
	return channel.Capabilities{
		Identity: "acme/live", IdempotentSubmit: true, KeyMemory: 24 * time.Hour, PinsFailures: true, Query: true,
		VisibilityLag: 5 * time.Second, QueryReach: channel.Forever, NotFoundIsProof: true, LongestExecution: 30 * time.Second,
		SubmitTimeout: 10 * time.Second, QueryTimeout: time.Second,
	}
}

func with(change func(*channel.Capabilities)) channel.Capabilities {
	c := promising()
	change(&c)
	return c
}

func unpinned(c *channel.Capabilities) { c.PinsFailures = false }

func notIdempotent(c *channel.Capabilities) {
	c.IdempotentSubmit, c.PinsFailures, c.KeyMemory = false, false, 0
}

func noQuery(c *channel.Capabilities) {
	c.Query, c.VisibilityLag, c.QueryReach, c.NotFoundIsProof = false, 0, 0, false
}

// at is a time of the payments below: the first send was permitted at 0.
func at(seconds int) time.Time { return worldBegins.Add(time.Duration(seconds) * time.Second) }

// sent is an unknown payment of this worker, sent n times, the last deadline 20 s
// after the first permit, looked at some seconds after it.
func sent(n, seconds int) store.Locked {
	identity := payment.Identity{Caller: "shop", Operation: payment.OperationCharge, Key: uuid.UUID{1}}
	l := store.Locked{
		Payment: store.Payment{
			ID: identity.PaymentID(), Identity: identity, Namespace: "shop", Obligation: "order", Amount: 1999, Currency: "EUR",
			Channel: "sim", ChannelIdentity: "acme/live", State: payment.Unknown, Attempt: 1, Sends: n, Version: 1,
			IssuedAt: at(-1), LatestIssuedAt: at(-1), ProviderKey: identity.ProviderKey(1),
		},
		Open: &store.Open{Lease: mine, LeaseUntil: at(seconds + 30), NextCheckAt: at(seconds + 30), OpenedAt: at(0)},
		Now:  at(seconds),
	}
	if n > 0 {
		l.Open.Sends = channel.Sends{Count: n, First: at(0), LastDeadline: at(20)}
	}
	return l
}

// parked is a pending payment without a permit.
func parked(seconds int) store.Locked {
	l := sent(0, seconds)
	l.Payment.State, l.Payment.Version = payment.Pending, 0
	return l
}

func ended(state payment.State) store.Locked {
	l := sent(1, 60)
	l.Payment.State, l.Payment.EndedAt, l.Open = state, at(5), nil
	l.Payment.ProviderReference = "ch_1"
	return l
}

func decline() payment.Answer {
	return payment.Answer{Class: payment.ClassDeclined, Cause: "card_declined", Reference: "ch_1"}
}

func success() payment.Answer {
	return payment.Answer{Class: payment.ClassSucceeded, Reference: "ch_1"}
}

func notFound() payment.Answer { return payment.Answer{Class: payment.ClassNotFound} }

func silence() payment.Answer { return payment.Answer{Class: payment.ClassUnknown, Cause: "timeout"} }

func admitted() settle.Grant { return settle.Grant{Lease: mine, Admitted: true, Actor: "test"} }

// queried is what a query does that started some seconds after the first permit.
func queried(r *settle.Rules, l store.Locked, a payment.Answer, started int) *store.Change {
	return r.Queried(settle.Check{Lease: mine, Started: at(started), Actor: "test", Grant: admitted()}, a)(l)
}

func answered(r *settle.Rules, l store.Locked, a payment.Answer) *store.Change {
	return r.Answered(settle.Permit{Payment: l.Payment, Lease: mine, Actor: "test"}, a)(l)
}

// TestP1_NoAnswerEndsInReview: three queries without an answer, then a person;
// never an outcome, and somebody goes on looking (G3).
func TestP1_NoAnswerEndsInReview(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 0)
	l.Payment.State = payment.Pending
	c := answered(r, l, silence())
	for query := 1; query <= 3; query++ {
		require.Equal(t, query, c.Requery)
		due := c.Open.NextCheckAt.Sub(l.Now)
		tier := payment.Tiers[query-1]
		require.GreaterOrEqual(t, due, tier, "never early")
		require.LessOrEqual(t, due, tier+tier/5)
		require.Zero(t, c.Open.Lease)
		l.Payment.State, l.Open, l.Now = payment.Unknown, c.Open, c.Open.NextCheckAt
		l.Open.Lease = mine
		require.Equal(t, settle.ActionQuery, r.Next(l))
		c = r.Queried(settle.Check{Lease: mine, Started: l.Now, Grant: admitted()}, silence())(l)
	}
	require.Equal(t, payment.Review, c.To)
	require.Equal(t, payment.EventReviewRequired, c.Event)
	require.NotNil(t, c.Review)
	for range 40 {
		l.Payment.State, l.Open, l.Now = payment.Review, c.Open, c.Open.NextCheckAt
		l.Open.Lease = mine
		require.Equal(t, settle.ActionQuery, r.Next(l), "the slow watch goes on")
		c = r.Queried(settle.Check{Lease: mine, Started: l.Now}, silence())(l)
		require.Zero(t, c.To)
		require.Empty(t, c.Event)
		require.True(t, c.Open.NextCheckAt.After(l.Now.Add(r.WatchEvery-1)))
		require.True(t, c.Open.NextCheckAt.Before(l.Now.Add(r.WatchAtMost*3/2)))
	}
}

// TestG3_AgeIsNotEvidence: past the review age a payment goes to a person even if
// no query could be made.
func TestG3_AgeIsNotEvidence(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 15*60+1)
	require.Equal(t, settle.ActionReview, r.Next(l))
	c := r.Exhausted(mine, "test")(l)
	require.Equal(t, payment.Review, c.To)
	require.Equal(t, settle.ActionQuery, r.Next(sent(1, 15*60-1)))
	l.Payment.State = payment.Review
	require.Equal(t, settle.ActionQuery, r.Next(l), "and is watched for ever")
}

// TestP5_NotIdempotentIsSentOnce, whatever a query says.
func TestP5_NotIdempotentIsSentOnce(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(notIdempotent))
	require.Zero(t, queried(r, sent(1, 24), notFound(), 24).To, "a send may be alive: nothing yet")
	c := queried(r, sent(1, 60), notFound(), 60)
	require.Equal(t, payment.Review, c.To, "proven absent: an operator's decision")
	neither := rulesFor(t, with(func(c *channel.Capabilities) { notIdempotent(c); noQuery(c) }))
	l := sent(1, 5)
	l.Payment.State = payment.Pending
	require.Equal(t, payment.Review, answered(neither, l, silence()).To, "neither: straight to review")
	require.Equal(t, payment.Review, neither.Orphaned(mine, "test")(l).To)
	c = neither.Permitted(admitted())(sent(1, 60))
	require.Equal(t, payment.Review, c.To)
	require.NotEqual(t, settle.Granted, c.Cause)
}

// TestP7_MemoryIsOver and P29: no permit whose latest execution lies past it.
func TestP7_MemoryIsOver(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(func(c *channel.Capabilities) { c.KeyMemory = 200 * time.Second }))
	last := 200 - 20 - 30 // memory less deadline less longest execution
	c := queried(r, sent(1, last-1), notFound(), last-1)
	require.Equal(t, settle.Granted, c.Cause)
	require.Equal(t, 2, c.Open.Sends.Count)
	require.Equal(t, at(0), c.Open.Sends.First)
	require.Equal(t, at(last-1).Add(20*time.Second), c.Open.Sends.LastDeadline)
	require.Equal(t, mine, c.Open.Lease)
	c = queried(r, sent(1, last+1), notFound(), last+1)
	require.Equal(t, payment.Review, c.To)
	require.Equal(t, payment.Review, r.Permitted(admitted())(sent(1, last+1)).To)
}

// TestP13_NotFound is read by lag and capability.
func TestP13_NotFound(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	c := queried(r, sent(1, 25), notFound(), 25)
	require.NotEqual(t, settle.Granted, c.Cause, "inside the lag it means nothing")
	require.Zero(t, c.To)
	require.Equal(t, 1, c.Open.Queries)
	require.Equal(t, settle.Granted, queried(r, sent(1, 26), notFound(), 26).Cause)
	require.NotEqual(t, settle.Granted, queried(r, sent(1, 60), notFound(), 25).Cause, "it counts when the query started")
	l := sent(1, 60)
	l.Payment.State = payment.Review
	c = queried(r, l, notFound(), 60)
	require.Zero(t, c.To)
	require.Equal(t, 1, c.Open.Sends.Count, "nothing is sent behind the back of a person")
}

// TestP25_DeclineWaitsForOlderSends: stored, forbids permits, concluded by a
// query that started when all sends were dead and the lookup had caught up (P30).
func TestP25_DeclineWaitsForOlderSends(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(unpinned))
	require.Equal(t, payment.Declined, answered(r, sent(1, 5), decline()).To, "the only send was answered")
	require.Equal(t, payment.Declined, answered(rulesFor(t, promising()), sent(2, 5), decline()).To, "pinned")

	c := answered(r, sent(2, 5), decline())
	require.Zero(t, c.To)
	require.True(t, c.Open.NoMoreSends)
	require.Equal(t, "card_declined", c.Open.DeclineCause)
	dead := 20 + 30 + 5
	require.True(t, c.Open.NextCheckAt.After(at(dead-1)), "the concluding query")

	l := sent(2, dead+30)
	l.Open = c.Open
	l.Open.Lease = mine
	require.Equal(t, settle.ActionQuery, r.Next(l))
	require.Equal(t, payment.Succeeded, queried(r, l, success(), dead+1).To, "executed late after all")
	require.Zero(t, queried(r, l, decline(), dead).To, "P30: it started before the lookup had caught up")
	require.Equal(t, payment.Declined, queried(r, l, decline(), dead+1).To)
	require.NotEqual(t, settle.Granted, queried(r, l, notFound(), dead+1).Cause, "no permit after a decline")
	require.Equal(t, payment.Review, queried(r, l, notFound(), dead+1).To)
	require.Equal(t, payment.Review, r.Permitted(admitted())(l).To)

	blind := rulesFor(t, with(func(c *channel.Capabilities) { unpinned(c); noQuery(c) }))
	require.Equal(t, payment.Review, answered(blind, sent(2, 5), decline()).To, "no query can conclude it")
}

// TestP8_TerminalIsSticky: contradicting evidence opens one conflict item, and
// what agrees does nothing (P10, P20).
func TestP8_TerminalIsSticky(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	second := success()
	second.Reference = "ch_2"
	tests := []struct {
		state    payment.State
		answer   payment.Answer
		conflict bool
	}{
		{payment.Succeeded, success(), false},
		{payment.Succeeded, second, true},
		{payment.Succeeded, decline(), true},
		{payment.Succeeded, silence(), false},
		{payment.Succeeded, notFound(), false},
		{payment.Declined, decline(), false},
		{payment.Declined, success(), true},
		{payment.Declined, silence(), false},
		{payment.Declined, payment.Answer{Class: payment.ClassMismatched}, true},
		{payment.Rejected, success(), true},
		{payment.Rejected, silence(), false},
	}
	for _, tt := range tests {
		for name, decide := range map[string]func(store.Locked) *store.Change{
			"a send":  func(l store.Locked) *store.Change { return answered(r, l, tt.answer) },
			"a query": func(l store.Locked) *store.Change { return queried(r, l, tt.answer, 60) },
		} {
			c := decide(ended(tt.state))
			if !tt.conflict {
				require.Nil(t, c, "%s, %s of %s", tt.state, tt.answer.Class, name)
				continue
			}
			require.Zero(t, c.To)
			require.Equal(t, payment.EventEvidenceConflict, c.Event)
			require.True(t, c.Review.Blocks)
			again := ended(tt.state)
			again.Conflicted = true
			require.Nil(t, decide(again), "more of the same adds nothing")
		}
	}
	require.Equal(t, settle.ActionNone, r.Next(ended(payment.Succeeded)))
}

// TestP16_OrphanIsUnknown: its worker stopped; it is asked about, not sent again,
// and only by who holds the lease (P15).
func TestP16_OrphanIsUnknown(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 40)
	l.Payment.State = payment.Pending
	require.Equal(t, settle.ActionOrphan, r.Next(l))
	require.Nil(t, r.Orphaned(mine+1, "test")(l))
	c := r.Orphaned(mine, "test")(l)
	require.Equal(t, payment.Unknown, c.To)
	require.Equal(t, 1, c.Requery)
	require.Equal(t, 1, c.Open.Sends.Count)
}

// TestP23_WithoutTheLease nothing is permitted, scheduled or marked; evidence is
// true whoever brings it (G11).
func TestP23_WithoutTheLease(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 60)
	l.Open.Lease = mine + 1
	require.Nil(t, answered(r, l, silence()))
	require.Nil(t, answered(r, l, payment.Answer{Class: payment.ClassNotSent}))
	require.Nil(t, queried(r, l, notFound(), 60))
	require.Nil(t, queried(r, l, silence(), 60))
	require.Nil(t, r.Permitted(admitted())(l))
	require.Nil(t, r.Exhausted(mine, "test")(l))
	require.Nil(t, r.PutOff(mine)(l))
	require.Equal(t, payment.Succeeded, answered(r, l, success()).To)
	require.Equal(t, payment.Declined, queried(r, l, decline(), 60).To)
}

// TestP31_AnotherAccount: no query and no resume under another identity.
func TestP31_AnotherAccount(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(func(c *channel.Capabilities) { c.Identity = "acme/new" }))
	require.Equal(t, settle.ActionReview, r.Next(sent(1, 60)))
	c := r.Exhausted(mine, "test")(sent(1, 60))
	require.Equal(t, payment.Review, c.To)
	require.Contains(t, c.Review.Reason, "acme/live")
	require.NotEqual(t, settle.Granted, r.Permitted(admitted())(sent(1, 60)).Cause)
	require.NotEqual(t, settle.Granted, r.Permitted(admitted())(parked(60)).Cause)
	l := sent(1, 60)
	l.Payment.State = payment.Pending
	require.Equal(t, payment.Review, answered(r, l, silence()).To)

	equal := rulesFor(t, with(func(c *channel.Capabilities) {
		c.Identity, c.EquivalentIdentities = "acme/new", []string{"acme/live"}
	}))
	require.Equal(t, settle.ActionQuery, equal.Next(sent(1, 60)))
}

// TestP32_SuccessOfSomethingElse goes to review and forbids further sends.
func TestP32_SuccessOfSomethingElse(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	other := payment.Answer{Class: payment.ClassMismatched, Cause: "amount 1998"}
	c := queried(r, sent(1, 60), other, 60)
	require.Equal(t, payment.Review, c.To)
	require.True(t, c.Open.NoMoreSends)
	require.Contains(t, c.Review.Evidence, "1998")
	l := sent(1, 60)
	l.Payment.State, l.Open = payment.Review, c.Open
	l.Open.Lease = mine
	require.Empty(t, queried(r, l, other, 60).Event, "known already")
	require.Equal(t, payment.Succeeded, queried(r, l, success(), 60).To, "captured later")
}

// TestP34_ParkedForTooLong: never sent, it ends rejected, with reply and event;
// sent, it never does.
func TestP34_ParkedForTooLong(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	require.Equal(t, settle.ActionPermit, r.Next(parked(60)))
	require.Equal(t, settle.Granted, r.Permitted(admitted())(parked(2*3600-1)).Cause, "it resumes")
	c := r.Permitted(admitted())(parked(2*3600 + 1))
	require.Equal(t, []any{payment.Rejected, payment.CodeChannelUnavailable, payment.EventRejected, payment.ReplyRejected},
		[]any{c.To, c.Code, c.Event, c.Reply})
	stopped := admitted()
	stopped.Admitted = false
	for seconds := 1; seconds < 7200; seconds *= 3 {
		c = r.Permitted(stopped)(parked(seconds))
		require.Zero(t, c.To, "no review flood")
		require.Empty(t, c.Event)
		require.True(t, c.Quiet)
	}
	c = r.Permitted(admitted())(sent(1, 2*3600+1))
	require.NotEqual(t, payment.Rejected, c.To)
}

// TestG14_StaleAtThePermit and G15: every permit judges again.
func TestG14_StaleAtThePermit(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	old := func(l store.Locked) store.Locked {
		l.Payment.IssuedAt = l.Now.Add(-15 * 24 * time.Hour)
		return l
	}
	require.Equal(t, payment.CodeStaleCommand, r.Permitted(admitted())(old(parked(1))).Code)
	require.Equal(t, payment.Review, r.Permitted(admitted())(old(sent(1, 60))).To)

	other := uuid.UUID{9}
	for name, ground := range map[string]payment.Ground{
		"P35: an open conflict of the order's earlier payment": {OpenConflict: &other},
		"the order was paid meanwhile":                         {LatestSuccess: &other, SuccessAt: at(30)},
		"another payment holds the order":                      {Holder: &other},
	} {
		l := parked(60)
		l.Ground = ground
		c := r.Permitted(admitted())(l)
		require.Equal(t, payment.Rejected, c.To, name)
		require.Equal(t, &other, c.BlockedBy)
		l = sent(1, 60)
		l.Ground = ground
		require.Equal(t, payment.Review, r.Permitted(admitted())(l).To, name)
	}
}

// TestG13_StoppedChecksDoNotCount: budget, breaker and limits take none of the
// three away.
func TestG13_StoppedChecksDoNotCount(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	require.Zero(t, r.PutOff(mine)(sent(1, 60)).Open.Queries)
	require.Zero(t, queried(r, sent(1, 60), payment.Answer{Class: payment.ClassNotSent}, 60).Open.Queries)
	require.Zero(t, queried(r, sent(1, 60), payment.Answer{Class: payment.ClassThrottled, RetryAfter: time.Minute}, 60).Open.Queries)
	stopped := settle.Grant{Lease: mine}
	blind := rulesFor(t, with(noQuery))
	require.Zero(t, blind.Permitted(stopped)(sent(1, 60)).Open.Queries)
	require.Equal(t, 1, blind.Permitted(admitted())(sent(1, 60)).Open.Queries)
}

// TestNotSentIsNoSend: that permit is over, the payment waits for the next.
func TestNotSentIsNoSend(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	l := sent(1, 1)
	l.Payment.State = payment.Pending
	for _, class := range []payment.Class{payment.ClassNotSent, payment.ClassThrottled, payment.ClassAccountRefused} {
		c := answered(r, l, payment.Answer{Class: class, RetryAfter: time.Minute})
		require.Zero(t, c.To)
		require.Equal(t, channel.Sends{}, c.Open.Sends)
		require.True(t, c.Open.NextCheckAt.After(at(60)), "as long as the provider asks")
	}
	c := answered(r, sent(2, 1), payment.Answer{Class: payment.ClassNotSent})
	require.Equal(t, channel.Sends{Count: 1, First: at(0), LastDeadline: at(20)}, c.Open.Sends, "the other one may live")
}

// TestDecisionsInAnyState draws payments, answers and workers, and checks what no
// decision may do.
func TestDecisionsInAnyState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		caps := rapid.SampledFrom([]channel.Capabilities{
			promising(), with(unpinned), with(notIdempotent), with(noQuery), {Identity: "acme/live"}, {Identity: "other"},
		}).Draw(t, "channel")
		registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: silent{}, Capabilities: caps}})
		if err != nil {
			t.Fatal(err)
		}
		r := settle.Rules{Channels: registry}.WithDefaults()
		l := sent(rapid.IntRange(0, 3).Draw(t, "sends"), rapid.IntRange(0, 10000).Draw(t, "now"))
		l.Payment.State = payment.State(rapid.IntRange(1, 6).Draw(t, "state"))
		l.Open.Queries, l.Open.Watches = rapid.IntRange(0, 3).Draw(t, "queries"), rapid.IntRange(0, 70).Draw(t, "watches")
		l.Open.NoMoreSends, l.Open.QueryFirst = rapid.Bool().Draw(t, "no more"), rapid.Bool().Draw(t, "query first")
		l.Suspect = rapid.Bool().Draw(t, "suspect")
		if l.Payment.State.Terminal() {
			l.Open = nil
		}
		before := l
		lease := rapid.SampledFrom([]int64{mine, mine + 1}).Draw(t, "lease")
		a := payment.Answer{Class: payment.Class(rapid.IntRange(0, int(payment.ClassNotFound)).Draw(t, "class"))}
		grant := settle.Grant{Lease: lease, Admitted: rapid.Bool().Draw(t, "admitted")}
		check := settle.Check{Lease: lease, Started: l.Now.Add(-time.Second), Grant: grant}
		asked := rapid.SampledFrom([]string{"answered", "queried", "permitted", "orphaned", "exhausted", "put off"}).Draw(t, "decision")
		c := map[string]func(store.Locked) *store.Change{
			"answered": r.Answered(settle.Permit{Lease: lease}, a), "queried": r.Queried(check, a), "permitted": r.Permitted(grant),
			"orphaned": r.Orphaned(lease, ""), "exhausted": r.Exhausted(lease, ""), "put off": r.PutOff(lease),
		}[asked](l)
		told := asked == "answered" || asked == "queried"
		evidence := told && (a.Class == payment.ClassSucceeded || a.Class == payment.ClassDeclined ||
			a.Class == payment.ClassRefused || a.Class == payment.ClassMismatched)
		sound(t, before, c, evidence, lease == mine, a.Class)
	})
}

// sound checks one decision.
func sound(t *rapid.T, l store.Locked, c *store.Change, evidence, leased bool, class payment.Class) {
	must := func(ok bool, what string) {
		if !ok {
			t.Fatalf("%s: %+v", what, c)
		}
	}
	if c == nil {
		return
	}
	state := l.Payment.State
	must(evidence || leased, "G11: a change without lease or evidence")
	must(c.To == 0 || c.To == state || state.CanBecome(c.To), "a transition that does not exist")
	must(c.To == 0 || c.To == state || c.Event != "", "a transition without an event")
	must(c.To != payment.Succeeded || evidence && class == payment.ClassSucceeded, "G3: success without evidence")
	must(c.To != payment.Declined || evidence && class != payment.ClassSucceeded && class != payment.ClassMismatched, "G3: a decline without evidence")
	must(c.To != payment.Rejected || l.Open.Sends.Count == 0 && !l.Open.QueryFirst, "G2: rejected after a send")
	must(!state.Terminal() || c.To == 0 && evidence && c.Review != nil, "G9: a terminal state moves")
	if c.Open == nil {
		must(c.To.Terminal() || state.Terminal(), "an unresolved payment without a next look")
		return
	}
	grown := c.Open.Sends.Count - l.Open.Sends.Count
	must(grown <= 0 || grown == 1 && c.Cause == settle.Granted, "a send that nobody permitted")
	must(c.Cause != settle.Granted || grown == 1 && !l.Open.NoMoreSends && !l.Open.QueryFirst && state != payment.Review && leased, "a permit that must not be")
	must(c.Cause != settle.Granted || !l.Suspect || l.Open.Sends.Count > 0, "G1: a first send in a database that may have lost one")
	must(c.Open.Queries >= l.Open.Queries && c.Open.Queries <= 3, "queries")
	must(!c.Open.NextCheckAt.Before(l.Now), "a look in the past")
	must(!l.Open.NoMoreSends || c.Open.NoMoreSends, "a ban that is forgotten")
	must(c.Requery == 0 || c.Open.Queries == c.Requery-1, "a wake-up that will not fit")
}
