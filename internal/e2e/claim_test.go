package e2e_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/consumer"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/payment"
)

// producer is a client that is not ours, for records that ours would not make.
func (s *stack) producer(options ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.brokers...)}, options...)...)
	require.NoError(s.t, err)
	s.t.Cleanup(client.Close)
	return client
}

func (s *stack) record(c payment.Command) *kgo.Record {
	return &kgo.Record{Topic: s.topics.Commands, Key: []byte(c.IdempotencyKey.String()), Value: c.AppendJSON(nil)}
}

// P17: fifty deliveries of one key at once, over all partitions and two workers,
// half of them with another amount: one charge, and everybody gets the right
// answer (G1, G2, G8).
func TestP17_FiftyDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command()
	other := c
	other.Amount = 2000
	records := make([]*kgo.Record, 50)
	for i := range records {
		records[i] = s.record([]payment.Command{c, other}[i%2])
		records[i].Partition = int32(i % 16)
	}
	require.NoError(t, s.producer(kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(s.ctx, records...).FirstErr())
	// The outcome answers the first delivery; every other one gets its own reply.
	s.watch.until(t, func() bool { return len(s.replies(c.IdempotencyKey)) >= 50 }, "fifty replies")
	kinds := map[payment.ReplyKind]int{}
	for _, r := range s.replies(c.IdempotencyKey) {
		kinds[r.Kind]++
	}
	require.Equal(t, 25, kinds[payment.ReplyConflict])
	require.Equal(t, 1, kinds[payment.ReplyOutcome])
	require.Equal(t, 24, kinds[payment.ReplyPending]+kinds[payment.ReplyReplayed])
	require.Equal(t, 1, s.charge(c).Requests)
	require.Equal(t, []payment.State{payment.Succeeded}, s.waitEvents(c, 1))
	require.Len(t, s.status(c).Deliveries, 49)
	s.once(c)
}

// P18: the same key of two callers is two payments, and nobody hears of the
// other's (G12).
func TestP18_TwoCallersOneKey(t *testing.T) {
	t.Parallel()
	s := shared(t)
	ours := command()
	theirs := ours
	theirs.Caller, theirs.Amount, theirs.OrderID = "kiosk", 777, ours.OrderID
	s.send(ours, theirs, theirs, ours)
	s.watch.until(t, func() bool { return len(s.replies(ours.IdempotencyKey)) >= 4 }, "four replies")
	for _, c := range []payment.Command{ours, theirs} {
		s.waitState(c, payment.Succeeded)
		s.once(c)
		require.Equal(t, c.Amount, s.charge(c).BookedAmount)
		require.Equal(t, []payment.State{payment.Succeeded}, s.waitEvents(c, 1))
		require.Equal(t, c.Amount, s.events(c)[0].Amount)
		require.Equal(t, c.Caller, s.events(c)[0].Caller)
		st := s.status(c)
		require.Equal(t, c.Caller, st.Payment.Identity.Caller)
		require.Len(t, st.Deliveries, 1)
	}
	require.NotEqual(t, ours.Identity().ProviderKey(1), theirs.Identity().ProviderKey(1))
	for _, r := range s.replies(ours.IdempotencyKey) {
		own := map[string]payment.Command{"shop": ours, "kiosk": theirs}[r.Caller]
		require.Equal(t, own.Identity().PaymentID(), r.PaymentID)
		require.NotEqual(t, payment.ReplyConflict, r.Kind)
		if r.Outcome != nil {
			require.Equal(t, s.charge(own).Reference, r.Outcome.ProviderReference)
		}
	}
}

// shopOnly lets the shop write, and nobody else; it wants repayments named.
type shopOnly struct{}

func (shopOnly) May(_, caller string) bool { return caller == "shop" }

func (shopOnly) Namespace(caller string) (string, bool) { return caller, true }

func callers(c consumer.Callers) option { return func(s *settings) { s.callers = c } }

// P18, G12: nobody charges in another caller's name.
func TestP18_ForeignCaller(t *testing.T) {
	t.Parallel()
	s := start(t, callers(shopOnly{}))
	foreign := command(func(c *payment.Command) { c.Caller = "kiosk" })
	own := command()
	s.send(foreign, own)
	s.waitState(own, payment.Succeeded)
	dead := s.deadLetter(foreign.IdempotencyKey.String())
	require.Equal(t, string(payment.DeadForeignCaller), header(dead, "dl_reason"))
	require.Zero(t, s.state(foreign))
	require.Empty(t, s.front.submits(foreign))
}

func (s *stack) deadLetter(key string) *kgo.Record {
	s.t.Helper()
	s.watch.until(s.t, func() bool { return len(s.watch.of(s.topics.DeadLetter, key)) > 0 }, "a dead letter for %q", key)
	return s.watch.of(s.topics.DeadLetter, key)[0]
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// P22: while the database is down nothing is claimed, so nothing is sent (G6);
// then it goes on.
func TestP22_DatabaseDownAtClaim(t *testing.T) {
	t.Parallel()
	s := start(t, proxied)
	s.consumers[0].owns()
	before := command()
	s.send(before)
	s.waitState(before, payment.Succeeded)
	s.proxy.down()
	var batch []payment.Command
	for range 20 {
		batch = append(batch, command())
	}
	s.send(batch...)
	s.send(batch[:5]...)
	require.Eventually(t, func() bool { return len(s.logs.with("claim; trying again")) >= 3 }, waitFor, tick, "nobody tried to claim")
	require.Len(t, s.front.all("POST"), 1)
	s.proxy.up()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		require.Len(t, s.front.submits(c), 1)
		s.once(c)
	}
}

// P22: a consumer that starts while the database does not answer waits for it.
func TestP22_DatabaseDownAtTheStart(t *testing.T) {
	t.Parallel()
	s := start(t, proxied, only(0, 0, 1))
	s.proxy.down()
	s.startConsumer()
	stopped := s.startConsumer()
	c := command()
	s.send(c)
	require.Eventually(t, func() bool { return len(s.logs.with("cannot be reached at the start")) >= 3 }, waitFor, tick, "nobody looked")
	stopped.stop()
	s.proxy.up()
	s.waitState(c, payment.Succeeded)
	s.once(c)
}

// lookAgain moves the next look at a payment that nobody works on. With an hour, only
// what is not the clock's makes anybody look; with nothing, it is due.
func (s *stack) lookAgain(c payment.Command, in time.Duration) {
	s.t.Helper()
	s.eventually("nobody works on it", func() bool {
		tag, err := s.db.Exec(s.ctx, `UPDATE settleonce.open_payments SET next_check_at = clock_timestamp() + $2::interval
			WHERE payment = $1::text::uuid AND lease = 0`, c.Identity().PaymentID().String(), in)
		return err == nil && tag.RowsAffected() == 1
	})
}

// P24: a repeat gets the right answer in every state, and is never sent (G2).
func TestP24_RepeatInEveryState(t *testing.T) {
	t.Parallel()
	pending := command()
	held := holdSubmit(pending.OrderID, payment.Answer{Class: payment.ClassSucceeded})
	var s *stack
	held.forward = func(ctx context.Context, r channel.Request) payment.Answer { return s.direct(ctx, r) }
	// Nobody asks about what is unknown until a reconciler starts.
	s = start(t, only(1, 1, 0), handled(&hands{submit: held.take}), ruled(func(r *settle.Rules) { r.Lease = waitLong }))
	letGo := sync.OnceFunc(func() { close(held.goOn) })
	t.Cleanup(letGo) // a failure must not hold the consumer for ever
	s.send(pending)
	await(t, held.stopped, "never sent")
	s.send(pending)
	require.Equal(t, payment.Pending, s.waitReply(pending.IdempotencyKey, payment.ReplyPending).State)
	letGo()

	unknown := command(fault("lost_answer"))
	s.send(unknown)
	s.waitState(unknown, payment.Unknown)
	s.send(unknown)
	require.Equal(t, payment.Unknown, s.waitReply(unknown.IdempotencyKey, payment.ReplyPending).State)
	s.startReconciler()

	review := command(fault("authorized"))
	s.send(review)
	s.waitState(review, payment.Review)
	s.send(review)
	require.Equal(t, payment.Review, s.waitReply(review.IdempotencyKey, payment.ReplyPending).State)

	declined := command(fault("declined"))
	s.send(declined)
	s.waitState(declined, payment.Declined)
	s.send(declined)
	again := s.waitReply(declined.IdempotencyKey, payment.ReplyReplayed)
	require.Equal(t, payment.Declined, again.Outcome.State)
	require.Equal(t, "card_declined", again.Outcome.Cause)

	for _, c := range []payment.Command{pending, unknown} {
		s.waitState(c, payment.Succeeded)
		s.send(c)
		require.Equal(t, payment.Succeeded, s.waitReply(c.IdempotencyKey, payment.ReplyReplayed).Outcome.State)
	}
	for _, c := range []payment.Command{pending, unknown, review, declined} {
		require.Len(t, s.front.submits(c), 1)
		s.once(c)
		for _, r := range s.replies(c.IdempotencyKey) {
			require.Equal(t, r.Kind != payment.ReplyOutcome, r.Replayed, "%+v", r)
		}
	}
}

// P26 (a): the first key waits in a lagging partition while the second is
// consumed and succeeds (G15).
func TestP26_ConsumedInTheOtherOrder(t *testing.T) {
	t.Parallel()
	s := shared(t)
	first := command(issued(-10 * time.Second))
	second := command(orderOf(first))
	s.send(second)
	s.waitState(second, payment.Succeeded)
	s.send(first)
	reply := s.waitReply(first.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, payment.CodeObligationAlreadyPaid, reply.Code)
	require.Equal(t, second.Identity().PaymentID(), *reply.BlockedBy)
	// A payment made later on purpose, or one that names the first, goes through.
	later := command(orderOf(first), issued(time.Minute))
	s.send(later)
	s.waitState(later, payment.Succeeded)
	paid := later.Identity().PaymentID()
	follows := command(orderOf(first), func(c *payment.Command) { c.Follows = &paid })
	s.send(follows)
	s.waitState(follows, payment.Succeeded)
	require.Empty(t, s.front.submits(first))
	require.Empty(t, s.events(first), "a command that was never claimed has no events")
}

// P26 (b): claims and finalizers of the same orders meet in every order; each
// order is charged for one of its keys, and the other learns why not (G15).
func TestP26_TwoKeysAtOnce(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const orders = 100
	var commands []payment.Command
	for range orders {
		first := command()
		commands = append(commands, first, command(orderOf(first)))
	}
	var senders sync.WaitGroup
	for half := range 2 {
		senders.Go(func() {
			for i := half; i < len(commands); i += 2 {
				s.send(commands[i])
			}
		})
	}
	senders.Wait()
	for i := 0; i < len(commands); i += 2 {
		pair := commands[i : i+2]
		states := map[payment.State]payment.Command{s.waitEnd(pair[0]): pair[0], s.waitEnd(pair[1]): pair[1]}
		paid, ok := states[payment.Succeeded]
		require.True(t, ok, "%v", states)
		refused, ok := states[payment.Rejected]
		require.True(t, ok, "%v", states)
		st := s.status(refused)
		require.Contains(t, []payment.Code{payment.CodePriorAttemptUnresolved, payment.CodeObligationAlreadyPaid}, payment.Code(st.Payment.Cause))
		require.Equal(t, paid.Identity().PaymentID(), *st.Payment.BlockedBy)
	}
	for _, c := range commands {
		s.once(c)
	}
}

// P26 (c): the first success was not heard of, the shopper presses again: under
// "repay: named" only a command that names it is charged (G15).
func TestP26_RepayNamed(t *testing.T) {
	t.Parallel()
	s := start(t, callers(shopOnly{}), ruled(func(r *settle.Rules) { r.RepayNamed = func(string) bool { return true } }))
	first := command()
	s.send(first)
	s.waitState(first, payment.Succeeded)
	again := command(orderOf(first), issued(time.Minute))
	s.send(again)
	reply := s.waitReply(again.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, payment.CodeObligationAlreadyPaid, reply.Code)
	require.Equal(t, first.Identity().PaymentID(), *reply.BlockedBy)
	paid := first.Identity().PaymentID()
	named := command(orderOf(first), func(c *payment.Command) { c.Follows = &paid })
	s.send(named)
	s.waitState(named, payment.Succeeded)
	// What names an older one than the latest is late news.
	late := command(orderOf(first), func(c *payment.Command) { c.Follows = &paid })
	s.send(late)
	s.waitReply(late.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, 2, s.sim.Summary().Charges)
}

// replayedRejection sends the command again and requires the same rejection.
func (s *stack) replayedRejection(c payment.Command, code payment.Code) {
	s.t.Helper()
	n := len(s.replies(c.IdempotencyKey))
	s.send(c)
	s.watch.until(s.t, func() bool { return len(s.replies(c.IdempotencyKey)) > n }, "a reply to %s", c.IdempotencyKey)
	last := s.replies(c.IdempotencyKey)[n]
	require.Equal(s.t, payment.ReplyRejected, last.Kind)
	require.Equal(s.t, code, last.Code)
	require.True(s.t, last.Replayed)
	require.Empty(s.t, s.front.submits(c))
}

// P27: told "rejected", never charged afterwards, whatever was wrong then and is
// right now (G2).
func TestP27_RejectedStaysRejected(t *testing.T) {
	t.Parallel()
	s := shared(t)
	t.Run("future, then past", func(t *testing.T) {
		t.Parallel()
		c := command(issued(10 * time.Minute))
		s.send(c)
		require.Equal(t, payment.CodeInvalidCommand, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
		issued(-11 * time.Minute)(&c)
		s.replayedRejection(c, payment.CodeInvalidCommand)
	})
	t.Run("stale, then stamped anew", func(t *testing.T) {
		t.Parallel()
		c := command(issued(-15 * 24 * time.Hour))
		s.send(c)
		require.Equal(t, payment.CodeStaleCommand, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
		dead := s.deadLetter(c.IdempotencyKey.String())
		require.Equal(t, string(payment.DeadStale), header(dead, "dl_reason"))
		require.Equal(t, c.AppendJSON(nil), dead.Value)
		c.IssuedAt = time.Now().UTC()
		s.replayedRejection(c, payment.CodeStaleCommand)
		require.Empty(t, s.events(c))
		// It holds nothing: the order can be paid under another key.
		other := command(orderOf(c))
		s.send(other)
		s.waitState(other, payment.Succeeded)
	})
	t.Run("invalid", func(t *testing.T) {
		t.Parallel()
		c := command(func(c *payment.Command) { c.Amount = -5 })
		s.send(c)
		require.Equal(t, payment.CodeInvalidCommand, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
		s.replayedRejection(c, payment.CodeInvalidCommand)
		c.Amount = 5
		s.send(c) // other content under the key
		s.waitReply(c.IdempotencyKey, payment.ReplyConflict)
		require.Empty(t, s.front.submits(c))
	})
}

// P27: a channel that was unknown and is configured now.
func TestP27_UnknownChannelThenConfigured(t *testing.T) {
	t.Parallel()
	s := start(t, func(set *settings) { set.noChannel = true })
	c := command()
	s.send(c)
	require.Equal(t, payment.CodeUnknownChannel, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
	stopAll(s.consumers[0], s.reconcilers[0])
	s.set.noChannel = false
	s.startConsumer()
	s.startReconciler()
	s.replayedRejection(c, payment.CodeUnknownChannel)
	other := command(orderOf(c))
	s.send(other)
	s.waitState(other, payment.Succeeded)
}

// age moves a payment that ended into the past.
func (s *stack) age(c payment.Command, by, latestIssued time.Duration) {
	s.t.Helper()
	_, err := s.db.Exec(s.ctx, `UPDATE settleonce.payments SET created_at = created_at - $2::interval, ended_at = ended_at - $2::interval,
		latest_issued_at = created_at - $3::interval WHERE id = $1::text::uuid`, c.Identity().PaymentID().String(), by, latestIssued)
	require.NoError(s.t, err)
}

// P27, B15, G14: a key is kept as long as any copy that was delivered under it
// could be judged fresh; what comes after that is stale, never charged again.
func TestP27_KeyDroppedThenReplayed(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	s := shared(t)
	fresh := payment.Freshness{}.WithDefaults()
	c := command()
	s.send(c)
	s.waitState(c, payment.Succeeded)
	// Fifteen days later, with a retry that was stamped on day 13 delivered in between.
	s.age(c, 15*day, 2*day)
	_, err := s.check.RemoveExpired(s.ctx, fresh)
	require.NoError(t, err)
	retry := c
	retry.IssuedAt = c.IssuedAt.Add(-2 * day)
	s.send(retry)
	require.Equal(t, payment.Succeeded, s.waitReply(c.IdempotencyKey, payment.ReplyReplayed).Outcome.State)
	// The key's time is over for that one too: its oldest copies are stale now.
	s.age(c, 0, 15*day)
	_, err = s.check.RemoveExpired(s.ctx, fresh)
	require.NoError(t, err)
	require.Zero(t, s.state(c), "kept for ever")
	old := c
	old.IssuedAt = c.IssuedAt.Add(-15 * day)
	s.send(old)
	require.Equal(t, payment.CodeStaleCommand, s.waitReply(c.IdempotencyKey, payment.ReplyRejected).Code)
	require.Len(t, s.front.submits(c), 1)
	require.Len(t, s.waitEvents(c, 1), 1)
}

// B16: a check that was under way when the payment ended changes nothing and
// publishes nothing (G9, G11).
func TestB16_SweepMeetsAFinishedPayment(t *testing.T) {
	t.Parallel()
	c := command()
	held := holdSubmit(c.OrderID, payment.Answer{Class: payment.ClassSucceeded, Reference: "ch_hand"})
	asked, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h := &hands{submit: held.take, query: func(_ context.Context, l channel.Lookup) (payment.Answer, bool) {
		if l.ProviderKey != c.Identity().ProviderKey(1) {
			return payment.Answer{}, false
		}
		once.Do(func() { close(asked) })
		<-goOn
		return payment.Answer{Class: payment.ClassUnknown, Cause: "late"}, true
	}}
	s := start(t, handled(h), brisk(21*time.Second))
	s.warm()
	s.send(c)
	await(t, asked, "never asked")
	close(held.goOn)
	s.waitState(c, payment.Succeeded)
	before := s.status(c)
	close(goOn)
	s.reconcilers[0].stop() // the query's result is stored by now
	after := s.status(c)
	require.Equal(t, before.Payment, after.Payment)
	require.Len(t, after.History, len(before.History))
	require.Equal(t, []payment.State{payment.Unknown, payment.Succeeded}, s.waitEvents(c, 2))
}

// B21: one command that the rest must not suffer for.
func TestB21_OneBadCommandAmongMany(t *testing.T) {
	t.Parallel()
	s := shared(t)
	bad := map[string]string{
		`"tok_visa"`: `"tok\u0000visa"`, `"cust-7"`: `"\ud83d"`, `1999`: strings.Repeat("9", 70), `"EUR"`: `"E\u0000R"`,
	}
	var records []*kgo.Record
	var good []payment.Command
	var refused []uuid.UUID
	for from, to := range bad {
		for range 124 {
			c := command()
			good = append(good, c)
			records = append(records, s.record(c))
		}
		c := command()
		r := s.record(c)
		r.Value = []byte(strings.Replace(string(r.Value), from, to, 1))
		records, refused = append(records, r), append(refused, c.IdempotencyKey)
	}
	require.NoError(t, s.producer().ProduceSync(s.ctx, records...).FirstErr())
	for _, key := range refused {
		require.Equal(t, payment.CodeInvalidCommand, s.waitReply(key, payment.ReplyRejected).Code)
	}
	for _, c := range good {
		s.waitState(c, payment.Succeeded)
	}
	ledger := s.ledger()
	for _, c := range good {
		require.Equal(t, 1, ledger[c.Identity().ProviderKey(1)].Settled)
	}
	for _, key := range refused {
		require.NotContains(t, ledger, payment.Identity{Caller: "shop", Operation: payment.OperationCharge, Key: key}.ProviderKey(1))
	}
}
