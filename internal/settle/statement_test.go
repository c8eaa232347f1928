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

// attested is an order of two persons that rests on a statement.
var attested = settle.Order{Actor: "ann", Second: "bob", Reason: "INC-42", Statement: "letter of 30 November"}

func imported(l *store.Locked) {
	l.Payment.Origin.Topic, l.Payment.ChannelIdentity, l.Open.NoMoreSends = "import:legacy", "imported", true
}

// TestAttest: a statement takes the place of the query, and the finalizer does the rest.
func TestAttest(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		caps   channel.Capabilities
		change func(*store.Locked)
	}{
		"no query":            {caps: with(func(c *channel.Capabilities) { noQuery(c); notIdempotent(c) })},
		"no proof":            {caps: with(func(c *channel.Capabilities) { c.NotFoundIsProof = false })},
		"another sum":         {caps: promising(), change: func(l *store.Locked) { l.Open.NoMoreSends = true }},
		"imported":            {caps: promising(), change: imported},
		"never sent":          {caps: promising(), change: func(l *store.Locked) { l.Open.Sends = channel.Sends{} }},
		"before its review":   {caps: promising(), change: func(l *store.Locked) { l.Payment.State = payment.Unknown }},
		"on the first second": {caps: promising(), change: func(l *store.Locked) { l.Now = at(51) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := rulesFor(t, test.caps), reviewed(1)
			if test.change != nil {
				test.change(&l)
			}
			require.Nil(t, r.MayAttest(l))
			c := r.Attest(attested)(l)
			require.Equal(t, payment.Declined, c.To)
			require.Equal(t, settle.NotExecuted, c.Cause)
			require.Equal(t, payment.EventDeclined, c.Event)
			require.Equal(t, payment.ReplyOutcome, c.Reply)
			require.Equal(t, &store.Audit{
				Action: "resolve", Reason: "INC-42", Evidence: "the provider's written statement", Second: "bob", Statement: "letter of 30 November",
			}, c.Audit)
		})
	}
}

// TestAttestRefused: a letter says nothing about what is still on its way.
func TestAttestRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		caps     channel.Capabilities
		change   func(*store.Locked)
		reason   string
		possible time.Time
	}{
		"ended":             {change: func(l *store.Locked) { *l = ended(payment.Declined) }, reason: "ended declined"},
		"commits lost":      {change: func(l *store.Locked) { l.Suspect = true }, reason: "settleonce recover"},
		"conflict":          {change: func(l *store.Locked) { l.Conflicted = true }, reason: "conflict item"},
		"paid":              {change: func(l *store.Locked) { l.Payment.Attempt, l.Open.PaidAttempt = 2, 1 }, reason: "attempt 1 succeeded"},
		"another account":   {change: func(l *store.Locked) { l.Payment.ChannelIdentity = "acme/test" }, reason: "channel-equivalent-identities"},
		"alive":             {change: func(l *store.Locked) { l.Now = at(50) }, reason: "may still be executed", possible: at(50)},
		"unknown execution": {caps: with(func(c *channel.Capabilities) { c.LongestExecution, c.NotFoundIsProof = 0, false; notIdempotent(c) }), reason: "channel-longest-execution"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.caps.Identity == "" {
				test.caps = promising()
			}
			r, l := rulesFor(t, test.caps), reviewed(1)
			if test.change != nil {
				test.change(&l)
			}
			refused := r.MayAttest(l)
			require.NotNil(t, refused)
			require.ErrorContains(t, refused, test.reason)
			require.True(t, test.possible.Equal(refused.Possible), "%s", refused.Possible)
			require.Nil(t, r.Attest(attested)(l))
		})
	}
	r, l := rulesFor(t, promising()), reviewed(1)
	imported(&l)
	require.ErrorContains(t, r.MayResolve(l, nil), "settleonce backfill", "a query of ours says nothing about another system's sends")
}

// TestConfirm: a written success is success evidence: it ends what cannot be asked
// about, and contradicts what ended otherwise (G9).
func TestConfirm(t *testing.T) {
	t.Parallel()
	blind := rulesFor(t, with(func(c *channel.Capabilities) { noQuery(c); notIdempotent(c) }))
	said := settle.Success{Reference: "ch_9"}
	c := blind.Confirm(attested, said)(reviewed(1))
	require.Equal(t, payment.Succeeded, c.To)
	require.Equal(t, "ch_9", c.Reference)
	require.Equal(t, "confirm", c.Audit.Action)
	require.Equal(t, "ann", c.Actor)

	late := blind.Confirm(attested, said)(ended(payment.Declined))
	require.Zero(t, late.To)
	require.Equal(t, store.ReviewConflict, late.Review.Kind)
	require.True(t, late.Review.Blocks)
	require.Equal(t, payment.EventEvidenceConflict, late.Event)

	asking := rulesFor(t, promising())
	old := second(t, asking, 1)
	c = asking.Confirm(attested, settle.Success{Attempt: 1, Reference: "ch_1"})(old)
	require.Equal(t, 1, c.Open.PaidAttempt, "an earlier attempt, which no query is about any more")

	open := ended(payment.Declined)
	open.Conflicted = true
	for reason, test := range map[string]struct {
		l store.Locked
		s settle.Success
		r *settle.Rules
	}{
		"succeeded already":     {ended(payment.Succeeded), said, blind},
		"open conflict item":    {open, said, blind},
		"nothing was sent":      {parked(10), said, blind},
		"provider can be asked": {reviewed(1), said, asking},
		"no attempt 3":          {old, settle.Success{Attempt: 3, Reference: "ch_9"}, asking},
		"reference":             {reviewed(1), settle.Success{}, blind},
	} {
		require.ErrorContains(t, test.r.MayConfirm(test.l, test.s), reason)
		require.Nil(t, test.r.Confirm(attested, test.s)(test.l), reason)
	}
}

// TestRequery makes a payment due, and decides nothing.
func TestRequery(t *testing.T) {
	t.Parallel()
	r, l := rulesFor(t, promising()), reviewed(1)
	l.Open.Lease, l.Open.LeaseUntil, l.Open.NextCheckAt = 0, at(600), at(2000)
	c := r.Requery(operator)(l)
	require.Zero(t, c.To)
	require.Equal(t, l.Now, c.Open.NextCheckAt)
	require.Equal(t, l.Open.Sends, c.Open.Sends)
	require.True(t, c.Quiet)
	require.Equal(t, "requery", c.Audit.Action)

	for reason, test := range map[string]struct {
		caps     channel.Capabilities
		change   func(*store.Locked)
		possible time.Time
	}{
		"ended declined":    {promising(), func(l *store.Locked) { *l = ended(payment.Declined) }, time.Time{}},
		"a worker is at it": {promising(), func(l *store.Locked) { l.Open.Lease, l.Open.LeaseUntil = mine, at(700) }, at(700)},
		"nothing was sent":  {promising(), func(l *store.Locked) { l.Open.Sends = channel.Sends{} }, time.Time{}},
		"another account":   {promising(), func(l *store.Locked) { l.Payment.ChannelIdentity = "acme/test" }, time.Time{}},
		"offers no query":   {with(noQuery), func(*store.Locked) {}, time.Time{}},
		"no longer reaches": {with(func(c *channel.Capabilities) { c.QueryReach = time.Minute }), func(*store.Locked) {}, time.Time{}},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r, l := rulesFor(t, test.caps), reviewed(1)
			l.Open.Lease, l.Open.LeaseUntil = 0, at(600)
			test.change(&l)
			refused := r.MayRequery(l)
			require.NotNil(t, refused)
			require.ErrorContains(t, refused, reason)
			require.True(t, test.possible.Equal(refused.Possible), "%s", refused.Possible)
			require.Nil(t, r.Requery(operator)(l))
		})
	}
}

// TestOrdersNeedTheirPersons: two persons are two names.
func TestOrdersNeedTheirPersons(t *testing.T) {
	t.Parallel()
	require.NoError(t, operator.Validate(false))
	require.NoError(t, attested.Validate(true))
	require.ErrorContains(t, operator.Validate(true), "--second-actor")
	require.ErrorContains(t, settle.Order{Actor: "ann"}.Validate(false), "a reason")
	require.ErrorContains(t, settle.Order{Reason: "why"}.Validate(false), "an actor")
	for _, same := range []string{"ann", " Ann "} {
		require.ErrorContains(t, settle.Order{Actor: "ann", Second: same, Reason: "why"}.Validate(false), "two persons")
	}

	o := newOffice(t)
	alone := attested
	alone.Second = ""
	_, err := o.desk.Attest(t.Context(), o.id, alone)
	require.ErrorContains(t, err, "--second-actor")
	_, err = o.desk.Attest(t.Context(), o.id, operator)
	require.ErrorContains(t, err, "--statement")
	_, err = o.desk.Confirm(t.Context(), o.id, operator, settle.Success{Reference: "ch_1"})
	require.ErrorContains(t, err, "--statement")
	o.desk.TwoPersons = true
	for _, order := range []func() (store.Payment, error){
		func() (store.Payment, error) { return o.desk.OpenAttempt(t.Context(), o.id, operator) },
		func() (store.Payment, error) { return o.desk.Resolve(t.Context(), o.id, operator) },
	} {
		_, err = order()
		require.ErrorContains(t, err, "--second-actor")
	}
	require.Empty(t, o.channel.asked)
	require.Equal(t, payment.Review, o.row().Payment.State)
	_, err = o.desk.Requery(t.Context(), o.id, operator)
	require.NoError(t, err, "it decides nothing")
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'requery' AND actor = 'ann'`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.open_payments WHERE next_check_at <= clock_timestamp()`))
	require.Empty(t, o.channel.asked, "the reconciler asks")
}

// TestDesk_Attests: closed on paper, with everything that an outcome brings, and the
// statement in the audit. Success that the provider reports later is a conflict, which
// blocks the obligation until somebody settles it (G9, G15).
func TestDesk_Attests(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	got, err := o.desk.Attest(t.Context(), o.id, attested)
	require.NoError(t, err)
	require.Equal(t, payment.Declined, got.State)
	require.Empty(t, o.channel.asked)
	require.Zero(t, o.count(`SELECT count(*) FROM settleonce.obligation_holds`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'resolve' AND detail->>'second' = 'bob'
		AND detail->>'statement' = 'letter of 30 November' AND reason = 'INC-42'`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.outbox WHERE type = 'payment.declined'`))
	_, err = o.desk.Attest(t.Context(), o.id, attested)
	require.ErrorContains(t, err, "ended declined")

	got, err = o.desk.Confirm(t.Context(), o.id, attested, settle.Success{Reference: "ch_9"})
	require.NoError(t, err)
	require.Equal(t, payment.Declined, got.State, "an outcome stays")
	blocking := func() bool { return o.row().Ground.OpenConflict != nil }
	require.True(t, blocking())
	_, err = o.desk.Confirm(t.Context(), o.id, attested, settle.Success{Reference: "ch_9"})
	require.ErrorContains(t, err, "conflict item already")

	items, err := o.store.ReviewItems(t.Context(), store.ReviewFilter{Payment: o.id, Kind: store.ReviewConflict})
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.NoError(t, o.store.SettleItem(t.Context(), items[0].ID, store.Settlement{
		Operator: store.Operator{Actor: "ann", Reason: "given back"}, Evidence: "re_5501",
	}))
	require.False(t, blocking())
	require.Equal(t, payment.Declined, o.row().Payment.State)
}

// TestDesk_OvertakenWhileItAsks: whoever changes the payment while an operator's question
// is on its way wins; the order is judged again under the lock (G9, G11).
func TestDesk_OvertakenWhileItAsks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(*office)
		order     func(*office) (store.Payment, error)
		reason    string
		state     payment.State
		attempt   int
	}{
		"a late answer settles it": {
			func(o *office) {
				o.apply(o.desk.Settler.Rules().Answered(settle.Permit{Payment: o.row().Payment, Lease: 5, Actor: "late"}, success()))
			},
			func(o *office) (store.Payment, error) { return o.desk.Resolve(t.Context(), o.id, operator) }, "ended succeeded", payment.Succeeded, 1,
		},
		"another operator opens an attempt": {
			func(o *office) {
				_, err := o.desk.OpenAttempt(t.Context(), o.id, settle.Order{Actor: "bob", Reason: "renewed"})
				require.NoError(t, err)
			},
			func(o *office) (store.Payment, error) { return o.desk.OpenAttempt(t.Context(), o.id, operator) }, "not sent yet", payment.Review, 2,
		},
		"another operator closes it": {
			func(o *office) {
				_, err := o.desk.Attest(t.Context(), o.id, attested)
				require.NoError(t, err)
			},
			func(o *office) (store.Payment, error) { return o.desk.OpenAttempt(t.Context(), o.id, operator) }, "ended declined", payment.Declined, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.channel.says = payment.Answer{Class: payment.ClassNotFound}
			o.channel.meanwhile = func() { test.meanwhile(o) }
			_, err := test.order(o)
			var refused *settle.RefusalError
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, test.reason)
			require.Equal(t, test.state, o.row().Payment.State)
			require.Equal(t, test.attempt, o.row().Payment.Attempt)
			require.Zero(t, o.count(`SELECT count(*) FROM settleonce.audit WHERE actor = 'ann' AND detail->>'second' = ''`))
		})
	}
}
