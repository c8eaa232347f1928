package e2e_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// P14: rows that always fail do not keep the others from their turn.
func TestP14_SweepNotStarved(t *testing.T) {
	t.Parallel()
	// Without a relay there are no wake-ups: only the sweep.
	s := start(t, only(0, 1, 1), func(set *settings) { set.batch = 4 })
	s.traffic() // the channel is up, so its breaker stays shut
	for range 12 {
		c := command(fault("lost_answer,query_error@*"))
		s.send(c)
		s.waitState(c, payment.Unknown)
	}
	var good []payment.Command
	for range 4 {
		good = append(good, command(fault("lost_answer")))
	}
	s.send(good...)
	for _, c := range good {
		s.waitState(c, payment.Succeeded)
		s.once(c)
	}
}

// traffic sends good commands, one after the other, until the test ends.
func (s *stack) traffic() {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		every := time.NewTicker(50 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
				r := s.record(command())
				_ = s.publish.Publish(ctx, kafka.Message{Topic: r.Topic, Key: r.Key, Value: r.Value}) // at the end it may fail
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// P15: a call that takes its time, within its deadline, is nobody's orphan.
func TestP15_SlowCallIsNotTakenOver(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command(fault("slow:1s"))
	s.send(c)
	s.waitState(c, payment.Succeeded)
	require.Len(t, s.front.submits(c), 1)
	require.Empty(t, s.front.queries(c))
	require.Equal(t, []payment.State{payment.Succeeded}, s.waitEvents(c, 1))
}

// P15, P23: a worker that was stopped past its lease, in the middle of a call, is
// taken over by query; whatever it brings when it goes on changes nothing that it
// no longer owns (G11).
func TestP23_WorkerStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		forward bool // the request reached the provider before the stop
		late    payment.Answer
	}{
		"late success":            {true, payment.Answer{Class: payment.ClassSucceeded}},
		"late unknown":            {true, payment.Answer{Class: payment.ClassUnknown, Cause: "timeout"}},
		"claims not to have sent": {true, payment.Answer{Class: payment.ClassNotSent, Cause: "too late"}},
		"did not send":            {false, payment.Answer{Class: payment.ClassNotSent, Cause: "too late"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command()
			held := holdSubmit(c.OrderID, tc.late)
			var s *stack
			if tc.forward {
				held.forward = func(ctx context.Context, r channel.Request) payment.Answer { return s.direct(ctx, r) }
			}
			s = start(t, handled(&hands{submit: held.take}), only(1, 1, 0), brisk(21*time.Second))
			s.warm()
			s.send(c)
			await(t, held.stopped, "never sent")
			s.startReconciler()
			st := s.waitState(c, payment.Succeeded)
			require.Contains(t, causes(st), "its worker stopped")
			close(held.goOn)
			s.consumers[0].stop() // it stores what came of its calls
			after := s.status(c)
			require.Equal(t, st.Payment, after.Payment)
			require.Len(t, after.History, len(st.History))
			require.Equal(t, []payment.State{payment.Unknown, payment.Succeeded}, s.waitEvents(c, 2))
			require.Equal(t, 1, s.charge(c).Requests)
			s.once(c)
		})
	}
}

// P23, the other half: the late answer comes while the payment is unresolved and
// somebody else's. Without evidence it neither ends a permit nor plans a check.
func TestP23_LateAnswerOnStaleGround(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]payment.Answer{
		"unknown":  {Class: payment.ClassUnknown, Cause: "timeout"},
		"not sent": {Class: payment.ClassNotSent, Cause: "too late"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := command(fault("query_error@1,query_error@2"))
			held := holdSubmit(c.OrderID, late)
			var s *stack
			held.forward = func(ctx context.Context, r channel.Request) payment.Answer { return s.direct(ctx, r) }
			s = start(t, handled(&hands{submit: held.take}), only(1, 1, 0), brisk(21*time.Second))
			s.warm()
			s.send(c)
			await(t, held.stopped, "never sent")
			s.startReconciler()
			// The third query is far away: nobody else touches it until then.
			s.watch.until(t, func() bool { return len(s.wakeups(c, 3)) > 0 }, "third wake-up")
			s.lookAgain(c, time.Hour)
			before := s.status(c)
			close(held.goOn)
			s.consumers[0].stop() // it stores what came of its calls
			after := s.status(c)
			require.Equal(t, before.Open, after.Open)
			require.Equal(t, before.Payment, after.Payment)
			s.lookAgain(c, 0)
			s.waitState(c, payment.Succeeded)
			require.Len(t, s.front.queries(c), 3)
			s.once(c)
		})
	}
}

// direct makes the call that a held worker had made before it was stopped.
func (s *stack) direct(ctx context.Context, r channel.Request) payment.Answer {
	adapter, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: "http://" + s.front.addr})
	if err != nil {
		return payment.Answer{Class: payment.ClassUnknown, Cause: err.Error()}
	}
	defer adapter.Close()
	return adapter.Submit(ctx, r)
}

// P16: the command is delivered again while the worker that claimed it hangs in
// its call: nobody sends it on that ground; the query decides.
func TestP16_RedeliveredMidCall(t *testing.T) {
	t.Parallel()
	c := command()
	held := holdSubmit(c.OrderID, payment.Answer{Class: payment.ClassUnknown, Cause: "woke up"})
	s := start(t, handled(&hands{submit: held.take}), only(1, 2, 0), brisk(21*time.Second))
	s.warm()
	s.send(c)
	await(t, held.stopped, "never sent")
	s.send(c, c)
	s.waitReplies(c.IdempotencyKey, payment.ReplyPending, 2)
	require.Empty(t, s.front.submits(c))
	s.startReconciler()
	s.waitState(c, payment.Succeeded)
	close(held.goOn)
	require.NotEmpty(t, s.front.queries(c), "resumed without asking")
	require.Len(t, s.front.submits(c), 1)
	s.once(c)
}

// B7, B8: members join and leave while calls are under way; each command is sent
// once, ends once, and all offsets end where the topic does.
func TestB8_RebalancesUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, behave(func(b *sim.Behaviour) { b.Latency = 400 * time.Millisecond }))
	var commands []payment.Command
	batch := func(n int) {
		from := len(commands)
		for range n {
			commands = append(commands, command())
		}
		s.send(commands[from:]...)
		s.send(commands[from : from+n/10]...)
	}
	s.consumers[0].owns()
	batch(100)
	joined := s.startConsumer()
	batch(100)
	joined.owns()
	batch(100)
	s.consumers[0].cancel()
	batch(100)
	s.consumers[0].stop()
	batch(50)
	for _, c := range commands {
		s.waitState(c, payment.Succeeded)
	}
	for _, c := range commands { // on a slow machine some go over unknown
		s.watch.until(t, func() bool {
			states := s.eventStates(c)
			return len(states) > 0 && states[len(states)-1] == payment.Succeeded
		}, "outcome of %s", c.IdempotencyKey)
	}
	sum := s.sim.Summary()
	require.Equal(t, len(commands), sum.Keys)
	require.Equal(t, len(commands), sum.Charges)
	require.EqualValues(t, len(commands), sum.Requests)
	s.offsetsAtEnd()
}

// offsetsAtEnd waits until the group has committed all of the command topic.
func (s *stack) offsetsAtEnd() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		ends, err := s.kafka.EndOffsets(s.ctx, s.topics.Commands)
		if err != nil {
			return false
		}
		committed, err := s.kafka.CommittedOffsets(s.ctx, "settleonce-consumer", s.topics.Commands)
		if err != nil {
			return false
		}
		for p, end := range ends {
			if max(committed[p], 0) != end {
				return false
			}
		}
		return true
	}, waitFor, tick, "offsets never reached the end")
}

// wakeups are the re-query messages about a payment, by query.
func (s *stack) wakeups(c payment.Command, query int) []payment.Requery {
	s.t.Helper()
	var out []payment.Requery
	for _, r := range s.watch.of(s.topics.Requery[query-1], c.IdempotencyKey.String()) {
		var q payment.Requery
		require.NoError(s.t, json.Unmarshal(r.Value, &q))
		require.Equal(s.t, query, q.Query)
		out = append(out, q)
	}
	return out
}

// B10: wake-ups of the longest tier wait while a member joins and leaves: each
// payment is asked about once more, and not before its time.
func TestB10_WaitingTierOverARebalance(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.traffic() // the channel is up, so its breaker stays shut
	commands := commands(20, fault("lost_answer,query_error@1,query_error@2"))
	s.send(commands...)
	for _, c := range commands {
		s.watch.until(t, func() bool { return len(s.wakeups(c, 3)) > 0 }, "third wake-up of %s", c.IdempotencyKey)
	}
	second := s.startReconciler()
	second.owns()
	second.stop()
	third := s.startReconciler()
	third.owns()
	s.reconcilers[0].stop()
	for _, c := range commands {
		s.waitState(c, payment.Succeeded)
		queries, due := s.front.queries(c), s.wakeups(c, 3)[0].DueAt
		require.Len(t, queries, 3)
		require.False(t, queries[2].at.Before(due), "asked at %s, due %s", queries[2].at, due)
		s.once(c)
	}
}

// B11: delay tiers and dead letters with fewer partitions than the commands have:
// everything is placed by its key, and nothing stands still.
func TestB11_FewerPartitions(t *testing.T) {
	t.Parallel()
	s := start(t, func(set *settings) {
		set.plan = func(specs []kafka.TopicSpec) {
			for i := range specs {
				if specs[i].Name != payment.NewTopics("").Commands {
					specs[i].Partitions = 3
				}
			}
		}
	})
	var commands []payment.Command
	var broken []*kgo.Record
	for range 60 { // enough to be sure of a key for each partition
		c := command(fault("lost_answer"))
		commands = append(commands, c)
		r := s.record(command())
		r.Value = []byte("hello")
		broken = append(broken, r)
	}
	s.send(commands...)
	require.NoError(t, s.producer().ProduceSync(s.ctx, broken...).FirstErr())
	for _, c := range commands {
		s.waitState(c, payment.Succeeded)
	}
	for _, r := range broken {
		s.deadLetter(string(r.Key))
	}
	for _, topic := range []string{s.topics.Requery[0], s.topics.DeadLetter, s.topics.Events} {
		used := map[int32]bool{}
		for _, r := range s.watch.topic(topic) {
			place := kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Key: r.Key}, 3)
			require.EqualValues(t, place, r.Partition, "%s is not placed by key", topic)
			used[r.Partition] = true
		}
		require.Len(t, used, 3, topic)
	}
	s.offsetsAtEnd()
}

// B12: database sessions are killed again and again under load, before, in and
// after their commits: every effect is single. The kills get rarer while nothing is
// settled: on a slow machine no transaction would ever survive.
func TestB12_SessionsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := start(t, behave(func(b *sim.Behaviour) { b.Latency = 20 * time.Millisecond }))
	ctx, stop := context.WithCancel(s.ctx)
	var killer sync.WaitGroup
	killer.Go(func() {
		conn, err := pgx.Connect(ctx, s.dsn)
		if err != nil {
			return
		}
		defer conn.Close(context.WithoutCancel(ctx))
		const briefest = 250 * time.Millisecond
		pause, seen := briefest, 0
		timer := time.NewTimer(pause)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				if settled := len(s.watch.topic(s.topics.Events)); settled > seen {
					pause, seen = briefest, settled
				} else {
					pause *= 2
				}
				timer.Reset(pause)
				_, _ = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'settleonce'
					AND (state = 'active' OR state LIKE 'idle in%')`)
			}
		}
	})
	t.Cleanup(killer.Wait)
	t.Cleanup(stop)
	var commands []payment.Command
	for range 150 {
		commands = append(commands, command())
	}
	for chunk := range slices.Chunk(commands, 15) {
		s.send(chunk...)
		s.send(chunk[0])
		s.watch.until(t, func() bool { return len(s.events(chunk[0])) > 0 }, "an event")
	}
	stop()
	killer.Wait()
	for _, c := range commands {
		s.waitState(c, payment.Succeeded)
		s.once(c)
	}
	for _, c := range commands {
		s.watch.until(t, func() bool {
			events := s.events(c)
			return len(events) > 0 && events[len(events)-1].State == payment.Succeeded
		}, "outcome of %s", c.IdempotencyKey)
	}
	require.Zero(t, s.sim.Summary().DoubleCharged)
	s.offsetsAtEnd()
}

// B18: commands of a transaction that was aborted are never processed (G16).
func TestB18_AbortedTransaction(t *testing.T) {
	t.Parallel()
	s := shared(t)
	producer := s.producer(kgo.TransactionalID("upstream-" + t.Name()))
	transact := func(end kgo.TransactionEndTry, commands ...payment.Command) {
		require.NoError(t, producer.BeginTransaction())
		for _, c := range commands {
			require.NoError(t, producer.ProduceSync(s.ctx, s.record(c)).FirstErr())
		}
		require.NoError(t, producer.EndTransaction(s.ctx, end))
	}
	first, aborted, dropped, last := command(), command(), command(), command()
	transact(kgo.TryCommit, first)
	transact(kgo.TryAbort, aborted, dropped)
	transact(kgo.TryCommit, last)
	retried := command(orderOf(aborted)) // the order of an aborted command is free
	s.send(retried)
	for _, c := range []payment.Command{first, last, retried} {
		s.waitState(c, payment.Succeeded)
	}
	for _, c := range []payment.Command{aborted, dropped} {
		require.Zero(t, s.state(c))
		require.Empty(t, s.front.submits(c))
		require.Empty(t, s.replies(c.IdempotencyKey))
	}
	// The key of an aborted command may still be used.
	transact(kgo.TryCommit, dropped)
	s.waitState(dropped, payment.Succeeded)
	for _, c := range []payment.Command{first, last, retried, dropped} {
		s.once(c)
	}
}
