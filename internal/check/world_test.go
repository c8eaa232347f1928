package check

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// world is a run that went as it should, to be spoilt by a test.
type world struct {
	t        testing.TB
	evidence recorded
	expected []Expectation
	topics   payment.Topics
	now      time.Time
	offsets  map[string]int64
	versions map[uuid.UUID]int
	orders   int
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{
		t: t, topics: payment.NewTopics("").WithOwn(map[string]string{"partner": "partner"}), now: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
		offsets: map[string]int64{}, versions: map[uuid.UUID]int{},
		evidence: recorded{Load: sim.Load{Since: time.Date(2026, 11, 30, 9, 59, 0, 0, time.UTC)}},
	}
}

// recorded is what was read of topics and ledger.
type recorded struct {
	Commands, Replies, Events, DeadLetters, Requeries []kafka.Record
	Ledger                                            []sim.Charge
	Offsets                                           []Offset
	Queries                                           int
	Load                                              sim.Load
	// Other is what a second channel knows.
	Other []sim.Charge
}

// file sorts it, commands last, as they are read.
func (w *world) file() *Evidence {
	e, r := NewEvidence(), &w.evidence
	for _, part := range []struct {
		records []kafka.Record
		add     func(*kafka.Record)
	}{{r.Replies, e.AddReply}, {r.Events, e.AddEvent}, {r.DeadLetters, e.AddDeadLetter}, {r.Requeries, e.AddRequery}, {r.Commands, e.AddCommand}} {
		for i := range part.records {
			part.add(&part.records[i])
		}
	}
	e.Offsets = r.Offsets
	e.Ledgers = []Ledger{{Channel: "sim", Charges: r.Ledger, Queries: r.Queries, Load: r.Load, At: w.now}}
	if r.Other != nil {
		e.Ledgers = append(e.Ledgers, Ledger{Channel: "other", Charges: r.Other, Load: r.Load, At: w.now})
	}
	return e
}

// tick lets time pass.
func (w *world) tick() time.Time {
	w.now = w.now.Add(100 * time.Millisecond)
	return w.now
}

// command is a valid one, for an order of its own.
func (w *world) command(change ...func(*payment.Command)) payment.Command {
	w.orders++
	c := payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-" + strconv.Itoa(w.orders),
		Amount: 1999, Currency: "EUR", CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: w.tick(),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func (w *world) record(topic string, key, value []byte, headers ...string) kafka.Record {
	r := kafka.Record{Topic: topic, Partition: 3, Offset: w.offsets[topic], Time: w.tick(), Key: key, Value: value}
	w.offsets[topic]++
	for i := 0; i+1 < len(headers); i += 2 {
		r.Headers = append(r.Headers, kafka.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// deliver puts a command into its topic.
func (w *world) deliver(c payment.Command) kafka.Record {
	return w.deliverRaw([]byte(c.IdempotencyKey.String()), c.AppendJSON(nil))
}

func (w *world) deliverRaw(key, value []byte) kafka.Record {
	r := w.record(w.topics.Commands, key, value)
	w.evidence.Commands = append(w.evidence.Commands, r)
	return r
}

// expect adds what the script says about a payment.
func (w *world) expect(c payment.Command, e Ends) {
	w.expected = append(w.expected, Expectation{c.Identity().PaymentID(), c.Identity().ProviderKey(1), c.IdempotencyKey.String(), w.t.Name(), e})
}

// ask is a request that arrives at the channel, and ends in the status.
func (w *world) ask(c payment.Command, status sim.Status) {
	at := w.tick()
	charge := sim.Charge{
		Content: sim.Content{
			Amount: c.Amount, Currency: c.Currency, Order: c.OrderID, PaymentID: c.Identity().PaymentID().String(),
		},
		ProviderKey: c.Identity().ProviderKey(1), Status: status, Reference: "ch_" + c.OrderID, BookedAmount: c.Amount, BookedCurrency: c.Currency,
		Requests: 1, Executions: 1, FirstAt: at, LastAt: at,
	}
	if status == sim.StatusSettled {
		charge.Settled, charge.SettledAt = 1, &at
	} else {
		charge.Declined = 1
	}
	w.evidence.Ledger = append(w.evidence.Ledger, charge)
}

// tell publishes an event of the payment's next version.
func (w *world) tell(c payment.Command, kind payment.EventType, state payment.State, change ...func(*payment.Event)) payment.Event {
	id := c.Identity().PaymentID()
	w.versions[id]++
	e := payment.Event{
		PaymentID: id, Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey, OrderID: c.OrderID,
		Obligation: c.ObligationOrDefault(), Amount: c.Amount, Currency: c.Currency, Channel: c.Channel, State: state,
		Version: w.versions[id], Attempt: 1, OccurredAt: w.tick(),
	}
	for _, f := range change {
		f(&e)
	}
	if state.Terminal() {
		e.ProviderReference = "ch_" + c.OrderID
	}
	w.evidence.Events = append(w.evidence.Events, w.record(w.topics.Events, []byte(c.IdempotencyKey.String()), e.AppendJSON(nil),
		"ce_id", payment.EventID(id, e.Version, kind).String(), "ce_type", string(kind), "ce_subject", id.String()))
	return e
}

// answer replies to a delivery.
func (w *world) answer(to kafka.Record, c payment.Command, kind payment.ReplyKind, change ...func(*payment.Reply)) {
	id := c.Identity().PaymentID()
	r := payment.Reply{
		Kind: kind, Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey, PaymentID: id, State: payment.Pending,
		Version: w.versions[id], Replayed: kind == payment.ReplyReplayed || kind == payment.ReplyPending,
	}
	for _, f := range change {
		f(&r)
	}
	w.evidence.Replies = append(w.evidence.Replies, w.record(w.topics.Replies, []byte(c.IdempotencyKey.String()), r.AppendJSON(nil),
		"ce_id", payment.ReplyID(to.Topic, to.Partition, to.Offset, to.Time, kind).String(), "ce_type", kind.CEType(), "ce_subject", id.String()))
}

func withOutcome(e payment.Event) func(*payment.Reply) {
	return func(r *payment.Reply) {
		r.State = e.State
		r.Outcome = &payment.Outcome{State: e.State, ProviderReference: e.ProviderReference, Cause: e.Cause, OccurredAt: e.OccurredAt}
	}
}

func withCode(code payment.Code, blockedBy *uuid.UUID, replayed bool) func(*payment.Reply) {
	return func(r *payment.Reply) {
		r.State, r.Code, r.BlockedBy, r.Replayed = payment.Rejected, code, blockedBy, replayed
	}
}

// bury puts a record into the dead-letter topic.
func (w *world) bury(r kafka.Record, reason payment.DeadLetterReason) {
	w.evidence.DeadLetters = append(w.evidence.DeadLetters, w.record(w.topics.DeadLetter, r.Key, r.Value, "dl_reason", string(reason),
		"dl_topic", r.Topic, "dl_partition", strconv.Itoa(r.Partition), "dl_offset", strconv.FormatInt(r.Offset, 10)))
}

// charged is a payment that succeeds, with the delivery and its event.
func (w *world) charged(c payment.Command) (kafka.Record, payment.Event) {
	r := w.deliver(c)
	w.ask(c, sim.StatusSettled)
	e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
	w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
	w.expect(c, endsCharged)
	return r, e
}

// declined is a payment that is declined.
func (w *world) declined(c payment.Command) {
	r := w.deliver(c)
	w.ask(c, sim.StatusDeclined)
	e := w.tell(c, payment.EventDeclined, payment.Declined)
	w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
	w.expect(c, endsDeclined)
}

// second is another key for the order of a payment, refused.
func (w *world) second(of payment.Command, code payment.Code) (payment.Command, kafka.Record) {
	c := of
	c.IdempotencyKey = uuid.New()
	r := w.deliver(c)
	by := of.Identity().PaymentID()
	w.answer(r, c, payment.ReplyRejected, withCode(code, &by, false))
	w.expect(c, endsSecond)
	return c, r
}

// stranger may not publish, the callers may.
const stranger = "mallory"

var callers = []string{"shop", "billing", "market", "jobs", "partner"}

// The ends of the world's payments.
var (
	endsCharged  = Ends{Guarantee: "G5", States: []payment.State{payment.Succeeded}}
	endsDeclined = Ends{Guarantee: "G4", States: []payment.State{payment.Declined}}
	endsInReview = Ends{Guarantee: "G3", States: []payment.State{payment.Review}}
	endsSecond   = Ends{
		Guarantee: "G15", States: []payment.State{payment.Rejected},
		Codes: []payment.Code{payment.CodePriorAttemptUnresolved, payment.CodeObligationAlreadyPaid},
	}
)

func rejectedAs(guarantee string, code payment.Code) Ends {
	return Ends{Guarantee: guarantee, States: []payment.State{payment.Rejected}, Codes: []payment.Code{code}}
}

func (w *world) rules() Rules {
	return Rules{
		Callers: callers, Expected: w.expected, Share: 0.2, Floor: 25, Window: 14 * 24 * time.Hour, Skew: 5 * time.Minute,
		Topics: &w.topics, Own: map[string]string{"partner": "partner"}, Namespaces: map[string]string{"market": "market", "jobs": "market"}, RepayNamed: []string{"market"},
	}
}

// judge runs every check.
func (w *world) judge() Verdict { return Judge(w.file(), w.rules()) }

// requireClean says that the judge finds nothing.
func (w *world) requireClean() Verdict {
	w.t.Helper()
	v := w.judge()
	require.Empty(w.t, v.Violations)
	require.Empty(w.t, Outstanding(w.file(), Rules{Callers: callers}))
	return v
}

// requireBroken says that the judge finds the guarantee broken, at the key if
// there is one.
func (w *world) requireBroken(guarantee string, key uuid.UUID) {
	w.t.Helper()
	v := w.judge()
	require.False(w.t, v.Holds())
	for _, found := range v.Violations {
		if found.Guarantee == guarantee && (key == uuid.Nil || found.Key == key.String()) {
			return
		}
	}
	require.Failf(w.t, "not found", "%s at %s among %v", guarantee, key, v.Violations)
}
