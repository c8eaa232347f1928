package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer/edge"
)

const whsec = "whsec-e2e-0123456789"

// desk is the edge's handler of callbacks over the stack's database, and a
// provider's way of calling it.
type desk struct {
	s   *stack
	url string
}

// takeCallbacks opens the desk. The simulator calls it where calling is true.
func (s *stack) takeCallbacks(calling bool) *desk {
	s.t.Helper()
	adapter, err := sim.NewAdapter(sim.AdapterConfig{
		BaseURL: "http://" + s.front.addr, Callbacks: channel.CallbackSigning{Secrets: []string{"whsec-older", whsec}},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(adapter.Close)
	registry, err := channel.NewRegistry(map[string]channel.Entry{
		"sim": {Adapter: adapter, Capabilities: s.set.behaviour.Capabilities("sim:test")},
	})
	require.NoError(s.t, err)
	handler, err := edge.NewCallbackHandler(edge.CallbackConfig{Channels: registry, Store: s.store, Logger: s.logs.logger()})
	require.NoError(s.t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/callbacks/{channel}", handler)
	server := httptest.NewServer(mux)
	s.t.Cleanup(server.Close)
	d := &desk{s: s, url: server.URL + "/v1/callbacks/sim"}
	if calling {
		require.NoError(s.t, s.sim.SetCallbacks(sim.CallbackTarget{URL: d.url, Secret: whsec}))
		s.t.Cleanup(func() { require.NoError(s.t, s.sim.SetCallbacks(sim.CallbackTarget{})) })
	}
	return d
}

// news is a provider's callback about a command: it was settled.
func news(c payment.Command, change ...func(*sim.Callback)) sim.Callback {
	key := c.Identity().ProviderKey(1)
	n := sim.Callback{
		ID: "evt_" + uuid.NewString(), Type: sim.CallbackSettled, CreatedAt: time.Now().UTC(),
		Charge: sim.CallbackCharge{PaymentID: c.Identity().PaymentID().String(), Answer: sim.Answer{
			ID: "ch_" + uuid.NewString(), Status: sim.StatusSettled, ProviderKey: key.String(), Amount: c.Amount, Currency: c.Currency,
		}},
	}
	for _, f := range change {
		f(&n)
	}
	return n
}

func declining(n *sim.Callback) { n.Type, n.Charge.Status = sim.CallbackDeclined, sim.StatusDeclined }

// post delivers a callback signed with a secret at an age, and returns the status.
func (d *desk) post(n sim.Callback, secret string, age time.Duration) int {
	d.s.t.Helper()
	body, err := json.Marshal(n)
	require.NoError(d.s.t, err)
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, d.url, bytes.NewReader(body))
	require.NoError(d.s.t, err)
	req.Header.Set(sim.CallbackHeader, channel.SignCallback(secret, time.Now().Add(-age), body))
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(d.s.t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(d.s.t, err)
	return resp.StatusCode
}

// tell delivers a callback as the provider would: again, while it could not be stored in time.
func (d *desk) tell(n sim.Callback) {
	d.s.t.Helper()
	status := d.post(n, whsec, 0)
	for end := time.Now().Add(waitFor); status == http.StatusServiceUnavailable && time.Now().Before(end); {
		status = d.post(n, whsec, 0)
	}
	require.Equal(d.s.t, http.StatusOK, status)
}

// result is what a callback came to so far; empty while there is none.
func (s *stack) result(n sim.Callback) (result store.CallbackResult, done bool) {
	_ = s.db.QueryRow(s.ctx, `SELECT coalesce(result, ''), processed_at IS NOT NULL FROM settleonce.callbacks WHERE callback_id = $1`,
		n.ID).Scan(&result, &done)
	return result, done
}

// waitResult waits until a callback came to something.
func (s *stack) waitResult(n sim.Callback, want ...store.CallbackResult) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		got, _ := s.result(n)
		return slices.Contains(want, got)
	}, waitFor, tick, "callback never came to %v", want)
}

// callbackRows counts the rows about a command.
func (s *stack) callbackRows(c payment.Command) (n int) {
	require.NoError(s.t, s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.callbacks WHERE provider_key = $1`,
		c.Identity().ProviderKey(1).String()).Scan(&n))
	return n
}

// lastTier sends a command whose answer is lost and whose first two queries fail,
// waits until the third is planned, and puts that off: only a callback makes
// anybody ask before an hour is over.
func (s *stack) lastTier() payment.Command {
	s.t.Helper()
	c := command(fault("lost_answer,callback_missing,query_error@1,query_error@2"))
	s.send(c)
	s.watch.until(s.t, func() bool { return len(s.wakeups(c, 3)) > 0 }, "third wake-up")
	s.lookAgain(c, time.Hour)
	return c
}

// A callback accelerates: the query that it triggers settles the payment long
// before its time, and is made once.
func TestCallbackAccelerates(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.takeCallbacks(false)
	s.traffic()
	c := s.lastTier()
	n := news(c)
	d.tell(n)
	st := s.waitState(c, payment.Succeeded)
	require.Contains(t, causes(st), "callback "+n.ID+" says succeeded")
	require.Len(t, s.front.queries(c), 3)
	require.NotEqual(t, n.Charge.ID, st.Payment.ProviderReference, "the query's answer is the evidence, not the callback")
	s.waitResult(n, store.CallbackAsked)
	s.once(c)
}

// P9: a callback comes before the payment's row. It is kept, told from no other,
// and applied when the row appears; meanwhile it disturbs nothing.
func TestP9_CallbackBeforeTheRow(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.takeCallbacks(false)
	c := command(fault("lost_answer,query_error@1,query_error@2"))
	soon := news(c)
	d.tell(soon)
	s.waitResult(soon, store.CallbackUnmatched)
	s.send(c)
	s.waitState(c, payment.Succeeded)
	require.Eventually(t, func() bool { _, done := s.result(soon); return done }, waitFor, tick, "never applied")
	s.waitResult(soon, store.CallbackAsked, store.CallbackAgreed)
	require.Zero(t, s.reviews())
	s.once(c)
}

// P9: one that matches nothing for hours is put before a person.
func TestP9_CallbackOfNoPayment(t *testing.T) {
	t.Parallel()
	s := start(t, func(set *settings) { set.unmatched = 1500 * time.Millisecond })
	d := s.takeCallbacks(false)
	late := news(command())
	d.tell(late)
	s.waitResult(late, store.CallbackReported)
	o, err := s.check.Overview(s.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, o.Reviews["callback"])
	require.EqualValues(t, 1, o.UnmatchedCallbacks["sim"])
}

// P9: the same where the provider repeats our key only, and not our payment.
func TestP9_KeyOnlyCallback(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.takeCallbacks(false)
	s.traffic()
	c := s.lastTier()
	n := news(c, func(n *sim.Callback) { n.Charge.PaymentID = "" })
	d.tell(n)
	s.waitState(c, payment.Succeeded)
	s.once(c)
}

// P10: a query that a callback triggers settles the payment while the submit is
// still out. What the submit brings then changes nothing; only a contradiction is
// put before a person. While the submit's worker holds its lease, nobody asks.
func TestP10_SubmitReturnsAfterTheCallback(t *testing.T) {
	t.Parallel()
	const lease = 21 * time.Second
	for name, late := range map[string]payment.Answer{
		"the same": {Class: payment.ClassSucceeded}, "unknown": {Class: payment.ClassUnknown, Cause: "timeout"},
		"the opposite": {Class: payment.ClassDeclined, Cause: "insufficient_funds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command()
			held := holdSubmit(c.OrderID, late)
			var s *stack
			held.forward = func(ctx context.Context, r channel.Request) payment.Answer { return s.direct(ctx, r) }
			s = start(t, handled(&hands{submit: held.take}), brisk(lease))
			s.warm()
			s.takeCallbacks(true)
			letGo := sync.OnceFunc(func() { close(held.goOn) })
			t.Cleanup(letGo) // a failure must not hold the consumer for ever
			s.send(c)
			await(t, held.stopped, "never sent")
			st := s.waitState(c, payment.Succeeded)
			require.False(t, s.front.queries(c)[0].at.Before(st.Payment.CreatedAt.Add(lease-200*time.Millisecond)), "asked beside a live lease")
			s.eventually("the callback is kept", func() bool { return s.callbackRows(c) == 1 })
			letGo()
			s.consumers[0].stop() // it stores what came of its calls
			after := s.status(c)
			require.Equal(t, payment.Succeeded, after.Payment.State)
			require.Equal(t, st.Payment.ProviderReference, after.Payment.ProviderReference)
			conflicts := 0
			if late.Class == payment.ClassDeclined {
				conflicts = 1
				s.watch.until(t, func() bool { return s.lastEvent(c) == payment.Succeeded && len(s.events(c)) >= 3 }, "conflict event")
			}
			require.Equal(t, conflicts, s.conflicts(c))
			s.once(c)
		})
	}
}

func (s *stack) lastEvent(c payment.Command) payment.State {
	states := s.eventStates(c)
	if len(states) == 0 {
		return 0
	}
	return states[len(states)-1]
}

// conflicts counts the open conflict items of a payment.
func (s *stack) conflicts(c payment.Command) (n int) {
	require.NoError(s.t, s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.review_items WHERE payment = $1 AND kind = 'conflict'
		AND closed_at IS NULL`, c.Identity().PaymentID().String()).Scan(&n))
	return n
}

// P11: a callback that cannot be stored is not acknowledged; the provider's own
// redelivery brings it in once the database is back.
func TestP11_DatabaseDownAtTheCallback(t *testing.T) {
	t.Parallel()
	s := start(t, proxied)
	d := s.takeCallbacks(true)
	s.warm()
	require.Eventually(t, func() bool { return s.sim.CallbackCounts().Waiting == 0 }, waitFor, tick)
	c := command(fault("lost_answer,callback_late:30s,query_error@1,query_error@2"))
	s.send(c)
	s.waitState(c, payment.Unknown)
	refused := s.sim.CallbackCounts().Refused
	s.proxy.down()
	require.Equal(t, http.StatusServiceUnavailable, d.post(news(command()), whsec, 0))
	require.Eventually(t, func() bool { return s.sim.CallbackCounts().Refused > refused }, waitFor, tick, "acknowledged without being stored")
	s.proxy.up()
	require.Eventually(t, func() bool { return s.callbackRows(c) == 1 }, waitFor, tick, "the redelivery was lost")
	s.waitState(c, payment.Succeeded)
	require.Eventually(t, func() bool { return s.sim.CallbackCounts().Waiting == 0 }, waitFor, tick)
	require.Zero(t, s.sim.CallbackCounts().GivenUp)
	s.once(c)
}

// P12: the same callback five times: five acknowledgements, one row, one effect.
func TestP12_SameCallbackFiveTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.takeCallbacks(true)
	c := command(fault("lost_answer,callback_duplicate"))
	s.send(c)
	st := s.waitState(c, payment.Succeeded)
	require.Eventually(t, func() bool { return s.sim.CallbackCounts().Waiting == 0 }, waitFor, tick)
	counts := s.sim.CallbackCounts()
	require.EqualValues(t, 5, counts.Acknowledged)
	require.Zero(t, counts.Refused) // one that is answered late is sent once more, and counted as failed
	require.Equal(t, 1, s.callbackRows(c))
	require.Equal(t, []payment.State{payment.Unknown, payment.Succeeded}, s.waitEvents(c, 2))
	s.waitReply(c.IdempotencyKey, payment.ReplyOutcome)
	require.Len(t, s.replies(c.IdempotencyKey), 1)
	// A repeat after the end is acknowledged, and nothing else.
	require.Equal(t, st.Payment, s.status(c).Payment)
	s.once(c)
}

// P21: what is forged, too old, or signed for another body is refused and
// changes nothing; what is signed and says the contrary decides nothing.
func TestP21_ForgedAndContradictingCallbacks(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.takeCallbacks(false)
	s.traffic()
	c := s.lastTier()
	require.Equal(t, http.StatusUnauthorized, d.post(news(c, declining), "whsec-guess", 0))
	require.Equal(t, http.StatusUnauthorized, d.post(news(c), whsec, time.Hour), "replayed")
	require.Equal(t, http.StatusUnauthorized, d.post(news(c), whsec, -time.Hour), "from the future")
	require.Zero(t, s.callbackRows(c))
	require.Equal(t, payment.Unknown, s.state(c))
	require.Len(t, s.front.queries(c), 2, "a forged callback made us ask")

	// Signed, about the wrong money, and about an attempt that is not ours: the
	// first one asks, and the answer decides; the second one finds nothing.
	foreign := news(c, func(n *sim.Callback) { n.Charge.ProviderKey = uuid.NewString() })
	d.tell(foreign)
	s.waitResult(foreign, store.CallbackUnmatched)
	require.Len(t, s.front.queries(c), 2, "a callback about another charge made us ask")
	wrong := news(c, declining, func(n *sim.Callback) { n.Charge.Amount-- })
	d.tell(wrong)
	st := s.waitState(c, payment.Succeeded)
	require.Equal(t, c.Amount, st.Payment.Amount)

	// After the end the contrary is asked about again, and the outcome stays.
	contrary := news(c, declining)
	d.tell(contrary)
	s.waitResult(contrary, store.CallbackAgreed)
	require.Zero(t, s.conflicts(c))
	require.Equal(t, st.Payment, s.status(c).Payment)
	s.once(c)
}

// P8: a callback contradicts the outcome, and the provider's books do too: a
// conflict item, and the outcome stays.
func TestP8_CallbackAgainstTheOutcome(t *testing.T) {
	t.Parallel()
	c := command()
	held := holdSubmit(c.OrderID, payment.Answer{Class: payment.ClassDeclined, Cause: "insufficient_funds"})
	var s *stack
	held.forward = func(ctx context.Context, r channel.Request) payment.Answer { return s.direct(ctx, r) }
	close(held.goOn)
	s = start(t, handled(&hands{submit: held.take}))
	d := s.takeCallbacks(false)
	s.send(c)
	s.waitState(c, payment.Declined)
	again := news(c, declining)
	d.tell(again)
	s.waitResult(again, store.CallbackAgreed)
	require.Empty(t, s.front.queries(c), "what agrees triggers nothing")
	n := news(c)
	d.tell(n)
	s.waitResult(n, store.CallbackConflict)
	require.Equal(t, 1, s.conflicts(c))
	require.Equal(t, payment.Declined, s.state(c))
	s.watch.until(t, func() bool { return len(s.events(c)) == 2 }, "conflict event")
	second := news(c)
	d.tell(second)
	s.waitResult(second, store.CallbackAgreed)
	require.Equal(t, 1, s.conflicts(c), "more of the same")

	// A person gave that charge back: to hear of it once more is no news, and holds nothing.
	var reference string
	require.NoError(t, s.db.QueryRow(s.ctx, "SELECT evidence->>'success' FROM settleonce.review_items").Scan(&reference))
	require.NoError(t, s.check.SettleItem(s.ctx, s.item(c).ID, store.Settlement{Operator: ada, Evidence: "re_1"}))
	third := news(c)
	d.tell(third)
	s.waitResult(third, store.CallbackAgreed)
	require.Zero(t, s.waiting())
	id := c.Identity().PaymentID()
	byBoth := orderedByAda
	byBoth.Second, byBoth.Statement = "bob", "letter 7"
	_, err := s.operators().Confirm(s.ctx, id, byBoth, settle.Success{Reference: reference})
	require.ErrorContains(t, err, "was settled before")
	_, err = s.operators().Confirm(s.ctx, id, byBoth, settle.Success{Reference: "another charge"})
	require.NoError(t, err)
	require.Equal(t, 1, s.waiting(), "another success is news")
}

// Refunds, disputes and other news are kept, and are neither conflicts nor
// unmatched.
func TestCallbackOfNoOutcome(t *testing.T) {
	t.Parallel()
	s := start(t)
	d := s.takeCallbacks(false)
	c := command()
	s.send(c)
	s.waitState(c, payment.Succeeded)
	for _, kind := range []string{sim.CallbackRefunded, sim.CallbackDisputed, "payout.paid"} {
		for _, about := range []payment.Command{c, command()} {
			n := news(about, func(n *sim.Callback) { n.Type = kind })
			d.tell(n)
			s.waitResult(n, store.CallbackRecorded)
		}
	}
	require.Empty(t, s.front.queries(c))
	require.Zero(t, s.reviews())
}

// On a channel that can be asked nothing, a verified callback is what there is:
// with equal key, amount and currency it is evidence, with anything else it is
// not.
func TestCallbackIsEvidenceWithoutAQuery(t *testing.T) {
	t.Parallel()
	s := start(t, behave(func(b *sim.Behaviour) { b.IdempotentSubmit, b.PinsFailures, b.Query = false, false, false }))
	d := s.takeCallbacks(false)
	lost := func() payment.Command {
		c := command(fault("lost_answer"))
		s.send(c)
		s.waitState(c, payment.Review)
		return c
	}
	paid, short, nameless := lost(), lost(), lost()
	n := news(paid)
	d.tell(n)
	st := s.waitState(paid, payment.Succeeded)
	require.Equal(t, n.Charge.ID, st.Payment.ProviderReference)
	require.Equal(t, payment.Succeeded, s.waitReply(paid.IdempotencyKey, payment.ReplyOutcome).Outcome.State)
	s.once(paid)

	wrong := news(short, func(n *sim.Callback) { n.Charge.Amount-- })
	d.tell(wrong)
	s.waitResult(wrong, store.CallbackEvidence)
	require.Equal(t, payment.Review, s.state(short))
	require.True(t, s.status(short).Open.NoMoreSends)

	little := news(nameless, func(n *sim.Callback) { n.Charge.ProviderKey = "" })
	d.tell(little)
	s.waitResult(little, store.CallbackNoEvidence)
	require.Equal(t, payment.Review, s.state(nameless))
	require.Empty(t, s.front.all(http.MethodGet))
}

// G13: callbacks of an outage's payments all at once are asked about at the
// budget's pace, none is lost.
func TestCallbacksUnderTheBudget(t *testing.T) {
	t.Parallel()
	const floor, unresolved = 10, 120
	s := start(t, only(1, 1, 2), func(set *settings) { set.budget = store.QueryPolicy{Floor: floor, Share: 0.01} },
		behave(func(b *sim.Behaviour) { b.Rates = map[sim.Kind]float64{sim.LostAnswer: 1} }),
		capable(func(c *channel.Capabilities) { c.SubmitTimeout = 5 * time.Second }),
		ruled(func(r *settle.Rules) { r.Lease = 15 * time.Second }))
	s.takeCallbacks(true)
	batch := commands(unresolved)
	for _, c := range batch { // apart, so that the breaker sees answers in between
		s.send(c)
	}
	for _, c := range batch {
		s.waitEnd(c)
		s.once(c)
	}
	require.Eventually(t, func() bool { return s.sim.CallbackCounts().Waiting == 0 }, waitFor, tick)
	const rate, pause = floor + unresolved/10/100 + 1, 3 // what was granted may arrive late, together
	queries := s.front.all(http.MethodGet)
	took := queries[len(queries)-1].at.Sub(queries[0].at)
	require.LessOrEqual(t, len(queries), int(float64(rate)*(took.Seconds()+pause))+rate)
}

// The announcement of a callback is only a wake-up: without one (nothing relays
// here) the row is found all the same, and the edge never needed Kafka.
func TestCallbackWithoutItsAnnouncement(t *testing.T) {
	t.Parallel()
	s := start(t, only(0, 1, 1))
	d := s.takeCallbacks(false)
	s.traffic()
	c := command(fault("lost_answer,query_error@1,query_error@2"))
	s.send(c)
	require.Eventually(t, func() bool {
		st, err := s.check.Status(s.ctx, c.Identity().PaymentID())
		return err == nil && st.Open != nil && st.Open.Queries == 2 && st.Open.Lease == 0
	}, waitLong, tick, "two queries were never made")
	s.lookAgain(c, time.Hour)
	d.tell(news(c))
	s.waitState(c, payment.Succeeded)
	s.once(c)
}
