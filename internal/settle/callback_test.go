package settle_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// told is a callback about the first attempt of the payments of this package.
func told(kind channel.CallbackKind, change ...func(*channel.Callback)) channel.Callback {
	c := channel.Callback{
		ID: "evt_1", ProviderKey: sent(1, 0).Payment.ProviderKey, Reference: "ch_1", Kind: kind, Amount: 1999, Currency: "EUR",
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func ofAttempt(n int) func(*channel.Callback) {
	return func(c *channel.Callback) { c.ProviderKey = sent(1, 0).Payment.Identity.ProviderKey(n) }
}

func keyless(c *channel.Callback)    { c.ProviderKey = uuid.Nil }
func oneLess(c *channel.Callback)    { c.Amount-- }
func amountless(c *channel.Callback) { c.Amount, c.Currency = 0, "" }

// idle is an unknown payment that nobody acts on.
func idle() store.Locked {
	l := sent(1, 60)
	l.Open.Lease, l.Open.LeaseUntil = 0, at(60)
	return l
}

// over is a payment that ended, under the reference ch_1.
func over(state payment.State) store.Locked {
	l := ended(state)
	l.Payment.CreatedAt, l.Payment.ProviderReference, l.Payment.Sends = at(0), "ch_1", 1
	return l
}

// TestHear: what a verified callback asks for, and what it never does by itself.
func TestHear(t *testing.T) {
	t.Parallel()
	asks := promising()
	neither := with(func(c *channel.Capabilities) { notIdempotent(c); noQuery(c) })
	secondOpen := func() store.Locked {
		l := idle()
		l.Payment.Attempt, l.Payment.ProviderKey, l.Payment.CreatedAt = 2, l.Payment.Identity.ProviderKey(2), at(0)
		return l
	}
	elsewhere := func() store.Locked {
		l := idle()
		l.Payment.ChannelIdentity = "acme/test"
		return l
	}
	const yes, no = channel.CallbackSucceeded, channel.CallbackDeclined
	cases := map[string]struct {
		caps channel.Capabilities
		l    store.Locked
		c    channel.Callback
		want settle.Hearing
	}{
		"open":                                {asks, idle(), told(yes), settle.HearAsk},
		"open, a decline":                     {asks, idle(), told(no), settle.HearAsk},
		"open, another amount":                {asks, idle(), told(yes, oneLess), settle.HearAsk},
		"open, no key":                        {asks, idle(), told(yes, keyless), settle.HearAsk},
		"open, parked":                        {asks, parked(60), told(yes), settle.HearWait},
		"somebody acts":                       {asks, sent(1, 5), told(yes), settle.HearWait},
		"a refund":                            {asks, idle(), told(channel.CallbackRefunded), settle.HearRecord},
		"a refund of what is over":            {asks, over(payment.Succeeded), told(channel.CallbackRefunded), settle.HearRecord},
		"a key of somebody else":              {asks, idle(), told(yes, func(c *channel.Callback) { c.ProviderKey = uuid.New() }), settle.HearForeign},
		"another account now":                 {asks, elsewhere(), told(yes), settle.HearCheck},
		"no query, sent again to ask":         {with(noQuery), idle(), told(yes, amountless), settle.HearCheck},
		"no query":                            {neither, idle(), told(yes), settle.HearEvidence},
		"no query, somebody acts":             {neither, sent(1, 5), told(yes), settle.HearEvidence},
		"no query, another amount":            {neither, idle(), told(yes, oneLess), settle.HearEvidence},
		"no query, no amount":                 {neither, idle(), told(yes, amountless), settle.HearTooLittle},
		"no query, no key":                    {neither, idle(), told(yes, keyless), settle.HearTooLittle},
		"no query, a decline, no amount":      {neither, idle(), told(no, amountless), settle.HearEvidence},
		"succeeded, and so it says":           {asks, over(payment.Succeeded), told(yes), settle.HearAgreed},
		"succeeded, no amount":                {asks, over(payment.Succeeded), told(yes, amountless), settle.HearAgreed},
		"succeeded, another reference":        {asks, over(payment.Succeeded), told(yes, func(c *channel.Callback) { c.Reference = "ch_2" }), settle.HearDispute},
		"succeeded, another amount":           {asks, over(payment.Succeeded), told(yes, oneLess), settle.HearDispute},
		"succeeded, it says declined":         {asks, over(payment.Succeeded), told(no), settle.HearDispute},
		"succeeded, another attempt declined": {asks, over(payment.Succeeded), told(no, ofAttempt(2)), settle.HearAgreed},
		"declined, and so it says":            {asks, over(payment.Declined), told(no), settle.HearAgreed},
		"declined, it says succeeded":         {asks, over(payment.Declined), told(yes), settle.HearDispute},
		"rejected, it says succeeded":         {asks, over(payment.Rejected), told(yes), settle.HearDispute},
		"rejected, it says declined":          {asks, over(payment.Rejected), told(no), settle.HearAgreed},
		"declined, it says so, no query":      {neither, over(payment.Declined), told(yes), settle.HearEvidence},
		"second attempt, the first declined":  {asks, secondOpen(), told(no, ofAttempt(1)), settle.HearAgreed},
		"second attempt, the first succeeded": {asks, secondOpen(), told(yes, ofAttempt(1)), settle.HearDispute},
		"second attempt, itself":              {asks, secondOpen(), told(yes, ofAttempt(2)), settle.HearAsk},
		"second attempt, no query":            {neither, secondOpen(), told(yes, ofAttempt(1)), settle.HearEvidence},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "open, parked" {
				tc.l.Open.LeaseUntil = at(90)
			}
			require.Equal(t, tc.want, rulesFor(t, tc.caps).Hear(tc.l, "sim", tc.c))
		})
	}
	require.Equal(t, settle.HearForeign, rulesFor(t, asks).Hear(idle(), "other", told(yes)), "of another channel")
}

// TestAsked: a payment that looks as if it was never sent is not sent before its
// provider was asked.
func TestAsked(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, promising())
	c := r.Asked(idle(), 9, told(channel.CallbackSucceeded), "test")
	require.Zero(t, c.To)
	require.Empty(t, c.Event)
	require.EqualValues(t, 9, c.Open.Lease)
	require.Equal(t, at(60).Add(r.Lease), c.Open.LeaseUntil)
	require.False(t, c.Open.QueryFirst)
	require.Contains(t, c.Cause, "evt_1")
	never := parked(60)
	require.True(t, r.Asked(never, 9, told(channel.CallbackSucceeded), "test").Open.QueryFirst)
	require.False(t, rulesFor(t, with(noQuery)).Asked(never, 9, told(channel.CallbackSucceeded), "test").Open.QueryFirst)
}

// TestEvident: a callback that is evidence goes the way of every answer.
func TestEvident(t *testing.T) {
	t.Parallel()
	r := rulesFor(t, with(func(c *channel.Capabilities) { notIdempotent(c); noQuery(c) }))
	evident := func(l store.Locked, c channel.Callback) *store.Change { return r.Evident(l, c, "test") }
	require.Equal(t, payment.Succeeded, evident(idle(), told(channel.CallbackSucceeded)).To)
	require.Equal(t, payment.Declined, evident(idle(), told(channel.CallbackDeclined)).To)
	two := idle()
	two.Open.Sends.Count = 2
	held := evident(two, told(channel.CallbackDeclined))
	require.Equal(t, payment.Review, held.To, "the decline rule holds for callbacks too (G3)")
	require.True(t, held.Open.NoMoreSends)
	wrong := evident(idle(), told(channel.CallbackSucceeded, oneLess))
	require.Equal(t, payment.Review, wrong.To)
	require.True(t, wrong.Open.NoMoreSends)

	require.Nil(t, evident(over(payment.Succeeded), told(channel.CallbackSucceeded)))
	for _, c := range []*store.Change{
		evident(over(payment.Declined), told(channel.CallbackSucceeded)), evident(over(payment.Succeeded), told(channel.CallbackDeclined)),
		evident(over(payment.Succeeded), told(channel.CallbackSucceeded, oneLess)),
	} {
		require.Zero(t, c.To, "the outcome stays (G9)")
		require.Equal(t, store.ReviewConflict, c.Review.Kind)
	}

	// Success of an attempt before the current one: as P33 wants it.
	l := second(t, rulesFor(t, with(notIdempotent)), 1)
	c := evident(l, told(channel.CallbackSucceeded))
	require.Equal(t, 1, c.Open.PaidAttempt)
	l = second(t, rulesFor(t, with(notIdempotent)), 0)
	c = evident(l, told(channel.CallbackSucceeded))
	require.Equal(t, payment.Succeeded, c.To)
	require.Equal(t, 1, c.Attempt)
}

func TestAttemptOf(t *testing.T) {
	t.Parallel()
	p := idle().Payment
	require.Equal(t, 0, settle.AttemptOf(p, uuid.Nil))
	require.Equal(t, 1, settle.AttemptOf(p, p.ProviderKey))
	require.Equal(t, 2, settle.AttemptOf(p, p.Identity.ProviderKey(2)), "it ended by the first, and a second was opened")
	require.Equal(t, -1, settle.AttemptOf(p, uuid.New()))
	imported := p
	imported.ProviderKey = uuid.New()
	require.Equal(t, 1, settle.AttemptOf(imported, imported.ProviderKey))
}
