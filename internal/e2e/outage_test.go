package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// parked waits until all of the commands are claimed.
func (s *stack) claimed(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var got int
		err := s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.payments`).Scan(&got)
		return err == nil && got >= n
	}, waitLong, tick, "%d commands claimed", n)
}

// reviews is the number of review items.
func (s *stack) reviews() int {
	var n int
	require.NoError(s.t, s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.review_items`).Scan(&n))
	return n
}

func commands(n int, change ...func(*payment.Command)) []payment.Command {
	out := make([]payment.Command, n)
	for i := range out {
		out[i] = command(change...)
	}
	return out
}

// P34: a channel that is down parks its commands without a review; back again,
// they resume at the channel's rate, each charged once.
func TestP34_ResumedAtTheChannelsRate(t *testing.T) {
	t.Parallel()
	const rate = 60
	s := start(t, only(1, 2, 2), capable(func(c *channel.Capabilities) { c.RateLimit = rate }))
	s.front.down()
	batch := commands(300)
	s.send(batch...)
	s.claimed(len(batch))
	open := func() bool {
		o, err := s.check.Overview(s.ctx)
		return err == nil && len(o.Channels) == 1 && o.Channels[0].BreakerOpen
	}
	require.Eventually(t, open, waitFor, tick, "the breaker never opened")
	s.front.up()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		s.once(c)
	}
	require.Zero(t, s.reviews())
	submits := s.front.all(http.MethodPost)
	require.Len(t, submits, len(batch))
	// A second's worth, and what each instance and the bucket may have in hand.
	require.LessOrEqual(t, busiest(submits, time.Second), rate+rate/2+2*rate/4+4)
}

// P34: parked for longer than the channel's limit, and never sent: rejected, with
// reply and event, and the obligation is free again.
func TestP34_ChannelUnavailable(t *testing.T) {
	t.Parallel()
	s := start(t, ruled(func(r *settle.Rules) { r.ParkedLimit = 3 * time.Second }))
	s.front.down()
	batch := commands(40)
	s.send(batch...)
	for _, c := range batch {
		require.Equal(t, payment.CodeChannelUnavailable, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
		require.Equal(t, []payment.State{payment.Rejected}, s.waitEvents(c, 1))
	}
	require.Zero(t, s.reviews())
	s.front.up()
	stopAll(s.consumers[0], s.reconcilers[0])
	s.set.rules.ParkedLimit = 0 // what is sent now may wait for its turn
	s.startConsumer()
	s.startReconciler()
	again := command(orderOf(batch[0]))
	s.send(batch[0], again)
	s.waitState(again, payment.Succeeded)
	s.waitReplies(batch[0].IdempotencyKey, payment.ReplyRejected, 2)
	require.Equal(t, 1, s.sim.Summary().Charges)
}

// P34: a refused account (a key that is being rotated) closes the channel with
// one alert; nothing is charged or reviewed, and everything resumes.
func TestP34_AccountRefused(t *testing.T) {
	t.Parallel()
	s := start(t, only(1, 2, 1))
	require.NoError(t, s.sim.AddRule(sim.Rule{Faults: "account_refused"}))
	batch := commands(100)
	s.send(batch...)
	s.claimed(len(batch))
	require.Eventually(t, func() bool {
		o, err := s.check.Overview(s.ctx)
		return err == nil && len(o.Channels) == 1 && o.Channels[0].BreakerOpen
	}, waitFor, tick)
	request, err := http.NewRequestWithContext(s.ctx, http.MethodDelete, "http://"+s.front.addr+"/admin/faults", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		s.once(c)
	}
	require.Zero(t, s.reviews())
	require.Equal(t, len(batch), s.sim.Summary().Charges)
}

// P34: what became paid while a command was parked is not charged again.
func TestP34_PaidMeanwhile(t *testing.T) {
	t.Parallel()
	s := start(t, only(1, 1, 0))
	s.front.down()
	batch := commands(30)
	s.send(batch...)
	s.claimed(len(batch))
	require.Eventually(t, func() bool { // no permit is out: what was sent before is not judged again
		var out int
		err := s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.open_payments WHERE sends > 0`).Scan(&out)
		return err == nil && out == 0
	}, waitFor, tick)
	// Another system paid these obligations: a success stands on them.
	_, err := s.db.Exec(s.ctx, `INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version,
		namespace, obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity,
		provider_key, state, version, attempt, sends, origin_topic, origin_partition, origin_offset, origin_time, issued_at, latest_issued_at, ended_at)
		SELECT gen_random_uuid(), caller, operation, gen_random_uuid(), fingerprint, fingerprint_version, namespace, obligation,
		obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity, gen_random_uuid(), 4, 1, 1, 1,
		origin_topic, origin_partition, origin_offset + 1000, origin_time, issued_at, latest_issued_at, clock_timestamp()
		FROM settleonce.payments`)
	require.NoError(t, err)
	s.front.up()
	s.startReconciler()
	for _, c := range batch {
		s.waitState(c, payment.Rejected)
		require.Equal(t, payment.CodeObligationAlreadyPaid, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
	}
	require.Zero(t, s.sim.Summary().Charges)
}

// together is an adapter whose sends come back all at once: an outage that the breaker
// does not see before everything is under way.
type together struct {
	channel.Adapter

	goOn <-chan struct{}
}

// Submit holds the answer.
func (a together) Submit(ctx context.Context, r channel.Request) payment.Answer {
	answer := a.Adapter.Submit(ctx, r)
	select {
	case <-a.goOn:
	case <-ctx.Done():
	}
	return answer
}

// G13: after an outage that leaves thousands unresolved, two reconcilers together
// ask at a flat rate, and nobody before its time.
func TestG13_FlatAfterAnOutage(t *testing.T) {
	t.Parallel()
	const unresolved, floor = 1600, 150
	outage := make(chan struct{})
	s := start(t, only(1, 1, 0), behave(func(b *sim.Behaviour) {
		b.Rates = map[sim.Kind]float64{sim.LostAnswer: 1, sim.QueryError: 1}
	}), capable(func(c *channel.Capabilities) { c.MaxInFlight = 2000 }), func(set *settings) {
		set.rules.Lease, set.timeout = 2*waitLong, waitLong // no send may come back before the others are under way
		set.budget = store.QueryPolicy{Floor: floor, Share: 0.01}
		set.wrap = func(a channel.Adapter) channel.Adapter { return together{a, outage} }
	})
	batch := commands(unresolved)
	s.send(batch...)
	s.claimed(unresolved)
	s.eventually("nearly all are under way", func() bool { return len(s.front.all(http.MethodPost)) > unresolved*9/10 })
	close(outage)
	unknown := func() (n int) {
		_ = s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.payments WHERE state = 2`).Scan(&n)
		return n
	}
	s.eventually("no outage", func() bool { return unknown() > unresolved*9/10 })
	require.NoError(t, s.sim.SetBehaviour(sim.DefaultBehaviour()))
	s.startReconciler()
	s.startReconciler()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
	}
	queries := s.front.all(http.MethodGet)
	require.EqualValues(t, len(queries), s.sim.Summary().Queries)
	// Floor, share of the 160 submissions a second of the last ten, and one burst.
	rate := floor + unresolved/10/100 + 1
	// Calls that were taken from the budget one after the other may arrive together.
	require.LessOrEqual(t, busiest(queries, time.Second), 3*rate)
	require.LessOrEqual(t, busiest(queries, 4*time.Second), 5*rate+rate/2)
	took := queries[len(queries)-1].at.Sub(queries[0].at)
	require.LessOrEqual(t, len(queries), int(float64(rate)*(took.Seconds()+1))+rate)
	late := make([]time.Duration, 0, len(batch))
	for _, c := range batch {
		first := s.wakeups(c, 1)
		require.Len(t, first, 1)
		for _, q := range s.front.queries(c)[:1] {
			require.False(t, q.at.Before(first[0].DueAt), "asked before its time")
			late = append(late, q.at.Sub(first[0].DueAt))
		}
	}
	slices.Sort(late)
	t.Logf("%d queries in %s, at most %d within a second; late p50 %s, p99 %s", len(queries), took.Round(time.Millisecond),
		busiest(queries, time.Second), late[len(late)/2], late[len(late)*99/100])
	require.Equal(t, unresolved, s.sim.Summary().Charges)
	require.EqualValues(t, unresolved, s.sim.Summary().Requests)
}

// G5: a wake-up that is lost costs time, nothing else: the sweep finds the payment.
func TestG5_LostWakeUps(t *testing.T) {
	t.Parallel()
	s := start(t, only(0, 1, 1))
	s.traffic() // the channel is up, so its breaker stays shut
	batch := commands(20, fault("lost_answer,query_error@1"))
	s.send(batch...)
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		require.GreaterOrEqual(t, len(s.front.queries(c)), 2)
		require.Len(t, s.front.submits(c), 1)
		s.once(c)
	}
	asked := func() (n int) {
		for _, c := range batch {
			n += len(s.front.queries(c))
		}
		return n
	}
	queries := asked()
	// What the relay did not publish for a while comes in order all the same, and
	// wake-ups that come too late change nothing.
	require.Empty(t, s.watch.topic(s.topics.Events))
	s.startRelay()
	for _, c := range batch {
		require.Equal(t, []payment.State{payment.Unknown, payment.Succeeded}, s.waitEvents(c, 2))
	}
	for _, c := range batch {
		s.watch.until(t, func() bool { return len(s.wakeups(c, 2)) > 0 }, "the late wake-up of %s", c.IdempotencyKey)
	}
	s.reconcilers[0].stop()
	require.Equal(t, queries, asked())
}

// Stopping in the middle of everything loses nothing: what is under way ends, or
// is found again.
func TestG5_StopsUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, behave(func(b *sim.Behaviour) { b.Latency = 100 * time.Millisecond }))
	s.consumers[0].owns()
	batch := commands(200)
	s.send(batch[:100]...)
	s.claimed(20)
	stopAll(s.consumers[0], s.reconcilers[0], s.relays[0])
	s.send(batch[100:]...)
	s.startConsumer()
	s.startRelay()
	s.startReconciler()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		s.once(c)
		s.waitEvents(c, 1)
	}
	require.EqualValues(t, len(batch), s.sim.Summary().Requests)
	s.offsetsAtEnd()
}
