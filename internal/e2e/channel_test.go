package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// causes are the reasons in a payment's history, as one text.
func causes(st store.Status) string {
	var list []string
	for _, h := range st.History {
		list = append(list, h.Cause)
	}
	return strings.Join(list, " | ")
}

// hashes are the different requests that were made for a payment.
func hashes(st store.Status) []string {
	seen := map[string]bool{}
	var list []string
	for _, h := range st.History {
		if h.RequestHash != "" && !seen[h.RequestHash] {
			seen[h.RequestHash] = true
			list = append(list, h.RequestHash)
		}
	}
	return list
}

// P1: three queries without an answer end in review, never in a decline; evidence
// that comes later still resolves it (G3).
func TestP1_ReviewWithoutEvidence(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command(fault("lost_answer"))
	require.NoError(t, s.sim.AddRule(sim.Rule{Faults: "query_error", Match: sim.Match{Order: c.OrderID}, Times: 4}))
	s.send(c)
	require.Equal(t, []payment.State{payment.Unknown, payment.Review, payment.Succeeded}, s.waitEvents(c, 3))
	require.Len(t, s.front.submits(c), 1)
	require.Len(t, s.front.queries(c), 5, "three of the burst, two of the watch")
	require.Equal(t, payment.Succeeded, s.waitReply(c.IdempotencyKey, payment.ReplyOutcome).Outcome.State)
	s.once(c)
}

// P3: every send of the attempt carries the same provider key and the same content (G6).
func TestP3_SameProviderKeyInEverySend(t *testing.T) {
	t.Parallel()
	s := start(t, brisk(6*time.Second))
	c := command(fault("error_before@1,error_before@2"))
	s.send(c)
	st := s.waitState(c, payment.Succeeded)
	require.Len(t, s.front.submits(c), 3)
	require.Equal(t, 3, s.charge(c).Requests)
	require.Equal(t, 1, s.providerKeys(c.OrderID), "one provider key in all")
	require.Len(t, hashes(st), 1, "the same request each time")
	s.once(c)
}

// P4: a failure that the provider repeats for ever is not answered with resends
// for ever: three rounds, then a person (G13).
func TestP4_PinnedServerError(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]bool{"with a lookup": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, brisk(6*time.Second), behave(func(b *sim.Behaviour) { b.Query = query }))
			c := command(fault("error_before@*"))
			s.send(c)
			s.waitState(c, payment.Review)
			sends := len(s.front.submits(c))
			require.LessOrEqual(t, sends, 4)
			// The watch looks on, and sends nothing.
			require.Eventually(t, func() bool {
				st := s.status(c)
				return st.Open.Watches >= 2
			}, waitFor, tick)
			require.Len(t, s.front.submits(c), sends)
			require.Equal(t, payment.Review, s.state(c))
			s.once(c)
		})
	}
}

// P5: on a channel without idempotent submit nothing automatic sends twice (G1).
func TestP5_NoIdempotentSubmit(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		fault string
		query bool
		state payment.State
	}{
		"answer lost, lookup":         {"lost_answer", true, payment.Succeeded},
		"never executed, lookup":      {"error_before@*", true, payment.Review},
		"answer lost, no lookup":      {"lost_answer", false, payment.Review},
		"never executed, no lookup":   {"error_before@*", false, payment.Review},
		"reset before it, no lookup":  {"reset_before@*", false, payment.Review},
		"throttled, perhaps executed": {"throttled", true, payment.Succeeded},
	}
	s := map[bool]*stack{}
	for _, query := range []bool{true, false} {
		s[query] = start(t, brisk(6*time.Second), behave(func(b *sim.Behaviour) {
			b.IdempotentSubmit, b.Query, b.ThrottleNotApplied = false, query, false
		}))
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s[tc.query]
			c := command(fault(tc.fault))
			s.send(c)
			s.waitState(c, tc.state)
			if tc.state == payment.Review {
				require.Eventually(t, func() bool { return s.status(c).Open.Watches >= 2 }, waitFor, tick)
			}
			require.Len(t, s.front.submits(c), 1)
			s.once(c)
		})
	}
}

// P7, P29: no send may be executed past the provider's memory of the key, so an
// attempt that got old is asked about, not sent again.
func TestP7_MemoryOfTheKey(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*sim.Behaviour){
		"forgotten already": func(b *sim.Behaviour) { b.KeyMemory = 4 * time.Second },
		// Remembered when the resume would be permitted, not when it might be executed.
		"forgotten on the way": func(b *sim.Behaviour) { b.KeyMemory, b.LongestExecution = 15*time.Second, 12*time.Second },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, brisk(6*time.Second), behave(change))
			c := command(fault("error_before@*"))
			s.send(c)
			s.waitState(c, payment.Review)
			require.Len(t, s.front.submits(c), 1)
			s.once(c)
		})
	}
}

// P7, the other half: where the memory lasts, the attempt is resumed.
func TestP29_ResumedWithinTheMemory(t *testing.T) {
	t.Parallel()
	s := start(t, brisk(6*time.Second), behave(func(b *sim.Behaviour) { b.KeyMemory = 10 * time.Minute }))
	c := command(fault("error_before"))
	s.send(c)
	s.waitState(c, payment.Succeeded)
	require.Len(t, s.front.submits(c), 2)
	s.once(c)
}

// P13: "not found" inside the visibility lag means nothing; the executed charge
// shows later, and is not sent again.
func TestP13_InsideTheLag(t *testing.T) {
	t.Parallel()
	s := start(t, behave(func(b *sim.Behaviour) { b.VisibilityLag = 3 * time.Second }))
	c := command(fault("lost_answer"))
	s.send(c)
	st := s.waitState(c, payment.Succeeded)
	submits, queries := s.front.submits(c), s.front.queries(c)
	require.Len(t, submits, 1)
	if queries[0].at.Sub(submits[0].at) < 2*time.Second { // else this machine was too slow to ask inside the lag
		require.Contains(t, causes(st), "too early")
		require.Len(t, queries, 2)
	}
	s.once(c)
}

// P13: past the lag, "not found" is judged by what the channel promises.
func TestP13_PastTheLag(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		caps  func(*channel.Capabilities)
		state payment.State
		sends int
	}{
		"idempotent: resumed":       {func(*channel.Capabilities) {}, payment.Succeeded, 2},
		"lag not documented: asked": {func(c *channel.Capabilities) { c.VisibilityLag, c.NotFoundIsProof = 0, false }, payment.Review, 1},
		"proof, but not idempotent": {func(c *channel.Capabilities) { c.IdempotentSubmit, c.PinsFailures, c.KeyMemory = false, false, 0 }, payment.Review, 1},
		"neither proof nor idempotent": {func(c *channel.Capabilities) {
			c.IdempotentSubmit, c.PinsFailures, c.KeyMemory, c.NotFoundIsProof = false, false, 0, false
		}, payment.Review, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, brisk(6*time.Second), capable(tc.caps))
			c := command(fault("error_before"))
			s.send(c)
			s.waitState(c, tc.state)
			require.Len(t, s.front.submits(c), tc.sends)
			s.once(c)
		})
	}
}

// P19: exact minor units to the provider and back, whatever the currency's
// exponent, by answer and by query.
func TestP19_MinorUnits(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, money := range []struct {
		amount   int64
		currency string
	}{{500, "JPY"}, {1234, "KWD"}, {500, "EUR"}, {12345, "CLF"}, {1<<53 - 1, "EUR"}, {1, "JPY"}} {
		for _, script := range []string{"slow:1ms", "lost_answer"} {
			c := command(fault(script), func(c *payment.Command) { c.Amount, c.Currency = money.amount, money.currency })
			s.send(c)
			s.waitReply(c.IdempotencyKey, payment.ReplyOutcome)
			charge := s.charge(c)
			require.Equal(t, money.amount, charge.BookedAmount)
			require.Equal(t, money.currency, charge.BookedCurrency)
			for _, e := range s.events(c) {
				require.Equal(t, money.amount, e.Amount)
				require.Equal(t, money.currency, e.Currency)
			}
			s.once(c)
		}
	}
}

// P28: the transport below us repeats nothing: one permit, one request on the
// wire, also when a kept connection dies under it.
func TestP28_OneRequestPerPermit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, script := range []string{"hangup", "lost_answer", "truncated", "garbage", "error_after", "wrong_key", "no_echo"} {
		warm := command()
		s.send(warm)
		s.waitReply(warm.IdempotencyKey, payment.ReplyOutcome)
		c := command(fault(script))
		s.send(c)
		require.Equal(t, payment.Succeeded, s.waitEnd(c), script)
		require.Len(t, s.front.submits(c), 1, script)
		require.NotEmpty(t, s.front.queries(c), script)
		s.once(c)
	}
}

// P28: nor does it follow a redirect.
func TestP28_RedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := start(t, brisk(6*time.Second))
	redirected := command(fault("redirect"))
	s.send(redirected)
	s.waitState(redirected, payment.Succeeded)
	require.Zero(t, s.sim.Summary().Redirected)
	s.once(redirected)
}

// P32: a success that is not the payment is evidence for a person; nothing more
// is sent, and it never counts as paid.
func TestP32_SuccessOfSomethingElse(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, script := range []string{"wrong_amount", "wrong_currency", "authorized", "wrong_amount,lost_answer", "authorized,error_after"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			c := command(fault(script))
			s.send(c)
			s.waitState(c, payment.Review)
			require.Eventually(t, func() bool { return s.status(c).Open.Watches >= 2 }, waitFor, tick)
			st := s.status(c)
			require.Equal(t, payment.Review, st.Payment.State)
			require.True(t, st.Open.NoMoreSends)
			require.Len(t, s.front.submits(c), 1)
			var evidence string
			require.NoError(t, s.db.QueryRow(s.ctx, `SELECT evidence FROM settleonce.review_items WHERE payment = $1::text::uuid`,
				c.Identity().PaymentID().String()).Scan(&evidence))
			require.Contains(t, evidence, "mismatch")
			require.NotContains(t, s.eventStates(c), payment.Succeeded)
		})
	}
}

// P31: a channel that became another account, endpoint or mode is neither asked
// about earlier payments nor sent them.
func TestP31_AnotherAccount(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := command(fault("lost_answer,query_error@*"))
	s.send(c)
	s.waitState(c, payment.Unknown)
	stopAll(s.consumers[0], s.reconcilers[0])
	queries := len(s.front.queries(c))
	s.set.caps = func(c *channel.Capabilities) { c.Identity = "sim:other-account" }
	s.startConsumer()
	s.startReconciler()
	st := s.waitState(c, payment.Review)
	require.Contains(t, causes(st), "another account")
	require.Eventually(t, func() bool { return s.status(c).Open.Watches >= 2 }, waitFor, tick)
	require.Len(t, s.front.queries(c), queries)
	require.Len(t, s.front.submits(c), 1)
	// A new payment is the new account's.
	fresh := command()
	s.send(fresh)
	s.waitState(fresh, payment.Succeeded)
}

// P31: an identity that configuration declares equal goes on.
func TestP31_EqualAccount(t *testing.T) {
	t.Parallel()
	s := start(t, only(1, 1, 0))
	c := command(fault("lost_answer"))
	s.send(c)
	s.waitState(c, payment.Unknown)
	s.consumers[0].stop()
	s.set.caps = func(c *channel.Capabilities) {
		c.Identity, c.EquivalentIdentities = "sim:renamed", []string{"sim:test"}
	}
	s.startReconciler()
	s.waitState(c, payment.Succeeded)
	s.once(c)
}

// lateChannel does not pin failures, and may execute a request long after its
// client gave up.
func lateChannel(longest, lag time.Duration) option {
	return behave(func(b *sim.Behaviour) {
		b.PinsFailures, b.LongestExecution, b.VisibilityLag = false, longest, lag
	})
}

// P25: the first send is held on its way, the resume is declined, then the held
// one takes the money: the decline must not have been concluded.
func TestP25_HeldSendAfterADecline(t *testing.T) {
	t.Parallel()
	c := command(fault("declined@1"))
	onItsWay := make(chan channel.Request, 1)
	s := start(t, brisk(6*time.Second), lateChannel(time.Hour, 0), handled(&hands{submit: func(_ context.Context, r channel.Request) (payment.Answer, bool) {
		if r.OrderID != c.OrderID {
			return payment.Answer{}, false
		}
		select {
		case onItsWay <- r:
			return payment.Answer{Class: payment.ClassUnknown, Cause: "timeout"}, true
		default: // the resume
			return payment.Answer{}, false
		}
	}}))
	s.send(c)
	require.Eventually(t, func() bool {
		st, err := s.check.Status(s.ctx, c.Identity().PaymentID())
		return err == nil && st.Open != nil && st.Open.DeclineCause != ""
	}, waitLong, tick, "the decline was not heard")
	asked := len(s.front.queries(c))
	s.lookAgain(c, 0) // and is heard again, while the first send may still be executed
	require.Eventually(t, func() bool {
		st := s.status(c)
		return len(s.front.queries(c)) > asked && st.Open != nil && st.Open.Lease == 0
	}, waitLong, tick, "the decline was concluded, or nobody asked")
	ctx, cancel := context.WithTimeout(s.ctx, waitFor)
	defer cancel()
	arrived := s.direct(ctx, <-onItsWay)
	require.Equal(t, payment.ClassSucceeded, arrived.Class, "%+v", arrived)
	s.lookAgain(c, 0)
	require.Equal(t, payment.Succeeded, s.waitEnd(c))
	require.Len(t, s.front.submits(c), 2)
	require.NotContains(t, s.eventStates(c), payment.Declined)
	s.once(c)
}

// P25, where nothing is executed late: the decline is concluded, by a fresh query.
func TestP25_DeclineConcludedByQuery(t *testing.T) {
	t.Parallel()
	s := start(t, brisk(6*time.Second), lateChannel(10*time.Second, 0))
	c := command(fault("error_before@1,declined@2"))
	s.send(c)
	require.Equal(t, payment.Declined, s.waitEnd(c))
	require.Len(t, s.front.submits(c), 2)
	last := s.front.submits(c)[1].at
	queries := s.front.queries(c)
	require.Greater(t, queries[len(queries)-1].at.Sub(last), 10*time.Second, "before the first send was surely dead")
	s.once(c)
}

// P30: the lookup shows the old decline while the later send has succeeded.
func TestP30_LookupShowsTheOldDecline(t *testing.T) {
	t.Parallel()
	s := start(t, lateChannel(38*time.Second, 3*time.Second), ruled(func(r *settle.Rules) { r.Lease = 4500 * time.Millisecond }),
		capable(func(c *channel.Capabilities) { c.SubmitTimeout = time.Second }))
	c := command(fault("late@1:14s,declined@1,late@2:35s"))
	s.send(c)
	require.Equal(t, payment.Succeeded, s.waitEnd(c))
	require.Len(t, s.front.submits(c), 2)
	require.Equal(t, 1, s.charge(c).Declined)
	require.NotContains(t, s.eventStates(c), payment.Declined)
	s.once(c)
}
