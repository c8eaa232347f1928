package demo

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

const (
	// staleBy is past the window of 14 days, futureBy past the skew of 5 minutes.
	staleBy  = 15 * 24 * time.Hour
	futureBy = time.Hour
)

// planned is one payment of the script.
type planned struct {
	command payment.Command
	story   string
	ends    check.Ends
	// at is when it is delivered first, where that is planned.
	at time.Duration
	// waits says that it is published once an event of another payment was seen.
	waits bool
	// dropped says that it was never published, as what it waited for cannot come.
	dropped bool
}

// sought reports whether it comes by itself and ought to be claimed: it is one of
// those that a script is asked for.
func (p *planned) sought() bool {
	return !p.waits && !p.ends.Never && p.command.Caller != stranger && !slices.Equal(p.ends.States, []payment.State{payment.Rejected})
}

func (p *planned) id() uuid.UUID { return p.command.Identity().PaymentID() }

// delivery is one record to publish, at a time counted from the start.
type delivery struct {
	at  time.Duration
	key []byte
	// command is encoded when it is sent; value is sent as it is if there is none.
	command *payment.Command
	value   []byte
	// signature is not its caller's own; empty for that one, if there is one.
	signature string
}

func (d *delivery) message(topic string) kafka.Message {
	if d.command == nil {
		return kafka.Message{Topic: topic, Key: d.key, Value: d.value}
	}
	return kafka.Message{Topic: topic, Key: []byte(d.command.IdempotencyKey.String()), Value: d.command.AppendJSON(nil)}
}

// transaction is a set of commands that is written in one Kafka transaction.
type transaction struct {
	at       time.Duration
	commit   bool
	commands []*payment.Command
}

// trigger publishes a payment once an event of another one was seen.
type trigger struct {
	payment uuid.UUID
	event   payment.EventType
	then    *planned
	// after is the pause before it is delivered, fresh that it is issued only then.
	after time.Duration
	fresh bool
	// behind is how long after the event's own time it was issued, by its caller's
	// clock, where that is not zero.
	behind time.Duration
	// again are the pauses after which it is delivered again.
	again []time.Duration
}

// script is everything that will be published.
type script struct {
	payments   []*planned
	deliveries []delivery // by time
	triggers   []trigger
	// transactions are written one after the other.
	transactions []transaction
	// entangled are transactions of several producers that are open at once.
	entangled []entangled
	// later are the records of triggers and transactions.
	later int
	// records is how many records there will be, sought how many payments that come
	// by themselves and ought to be claimed.
	records, sought int
	length          time.Duration
	// anyReview are the channels whose payments may end in review.
	anyReview map[string]bool
}

// size is what a script has at least: records, or payments that come by themselves
// and ought to be claimed. Their second keys, repeats and conflicts come on top.
type size struct{ records, payments int }

// Records is about how many records so many payments come to, with all that comes on
// top of them.
func Records(payments int) int { return payments * 8 / 5 }

func (n size) reached(s *script) bool { return s.count() >= n.records && s.sought >= n.payments }

// write makes a script of about that size, spread over the channels: every story at
// least once, the extra ones exactly once. The same seed and start give the same
// script, and a larger one has all of a smaller one of the same length.
func write(want size, length time.Duration, seed uint64, start time.Time, channels []Channel, extra ...story) *script {
	w := &writer{
		script: &script{length: cmp.Or(length, lengthOf(max(want.records, Records(want.payments))))}, random: newRandom(seed), seed: seed, channels: common(channels),
		start: start.UTC().Truncate(time.Millisecond),
	}
	w.script.anyReview = map[string]bool{}
	for _, c := range channels {
		w.script.anyReview[c.Name] = c.AnyReview
	}
	for i := range stories {
		w.tell(&stories[i])
	}
	for i := range extra {
		w.tell(&extra[i])
	}
	w.tellFurther(max(want.payments, want.records*5/8))
	for !want.reached(w.script) {
		w.tell(w.choose())
	}
	w.lots(channels)
	slices.SortStableFunc(w.script.deliveries, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	w.script.records = w.script.count()
	return w.script
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// lengthOf spreads the commands over some seconds, so that there is a middle to
// kill workers in.
func lengthOf(records int) time.Duration {
	return min(max(time.Duration(records)*time.Second/250, 6*time.Second), time.Minute)
}

// expectations are what the script says about its payments.
func (s *script) expectations() []check.Expectation {
	var out []check.Expectation
	for _, p := range s.payments {
		if p.dropped {
			continue
		}
		p.ends.AnyReview = s.anyReview[p.command.Channel] && !slices.Equal(p.ends.States, []payment.State{payment.Rejected})
		out = append(out, check.Expectation{
			ID: p.id(), ProviderKey: p.command.Identity().ProviderKey(1), Key: p.command.IdempotencyKey.String(), Story: p.story, Ends: p.ends,
		})
	}
	return out
}

func (s *script) count() int { return len(s.deliveries) + s.later }

// ends is how many payments will have an end: all but those of strangers.
func (s *script) ends() int {
	n := 0
	for _, p := range s.payments {
		if p.command.Caller != stranger && !p.ends.Never && !p.dropped {
			n++
		}
	}
	return n
}

// writer tells stories.
type writer struct {
	script   *script
	random   *rand.Rand
	seed     uint64
	start    time.Time
	channels []Channel
	story    string
	orders   int
	// caller is the one whose payments are told of; empty for the usual ones.
	caller string
}

func (w *writer) tell(s *story) {
	w.story = s.name
	before := len(w.script.payments)
	s.tell(w)
	for _, p := range w.script.payments[before:] {
		if p.sought() {
			w.script.sought++
		}
	}
}

func (w *writer) choose() *story {
	n := w.random.IntN(weights())
	for i := range stories {
		if n -= stories[i].weight; n < 0 {
			return &stories[i]
		}
	}
	return &stories[0]
}

// weights is what the weights of the stories come to.
func weights() (total int) {
	for i := range stories {
		total += stories[i].weight
	}
	return total
}

// payment makes a payment of an order of its own; fault says what the channel
// does to it.
func (w *writer) payment(e check.Ends, fault string) *planned {
	w.orders++
	caller := callers[0]
	if w.random.IntN(5) == 0 {
		caller = callers[1]
	}
	c := payment.Command{
		IdempotencyKey: w.key(), Caller: cmp.Or(w.caller, caller), Operation: payment.OperationCharge,
		OrderID: fmt.Sprintf("order-%d-%d", w.seed%1e6, w.orders), Amount: 100 + w.random.Int64N(20_000), Currency: w.pick([]string{"EUR", "USD", "JPY", "KWD"}),
		CustomerID: fmt.Sprintf("cust-%d", w.random.IntN(500)), PaymentMethod: "tok_visa", Channel: w.channel(), IssuedAt: w.start,
	}
	if fault != "" {
		c.Metadata = map[string]string{"sim": fault}
	}
	return w.plan(c, e)
}

// channel is one of the channels.
func (w *writer) channel() string { return w.channels[w.random.IntN(len(w.channels))].Name }

func (w *writer) plan(c payment.Command, e check.Ends) *planned {
	p := &planned{command: c, story: w.story, ends: e}
	w.script.payments = append(w.script.payments, p)
	return p
}

// otherAmount is the key of a payment with another amount: a conflict, not a
// payment of its own.
func (w *writer) otherAmount(p *planned) *planned {
	c := p.command
	c.Amount += 1 + w.random.Int64N(50)
	return &planned{command: c, story: w.story}
}

// sameOrder is another key for the order of a payment, over any channel.
func (w *writer) sameOrder(p *planned, e check.Ends) *planned {
	c := p.command
	c.IdempotencyKey, c.Metadata, c.Channel = w.key(), nil, w.channel()
	return w.plan(c, e)
}

// naming is another key for the order of a payment, that names a payment.
func (w *writer) naming(p *planned, follows uuid.UUID, e check.Ends) *planned {
	next := w.sameOrder(p, e)
	next.command.Follows = &follows
	return next
}

// otherCaller is the same key under another caller: another payment.
func (w *writer) otherCaller(p *planned, e check.Ends, caller string) *planned {
	p.command.Caller = callers[0]
	c := p.command
	c.Caller = caller
	return w.plan(c, e)
}

// following is a second payment of the order that names the first.
func (w *writer) following(p *planned) *planned { return w.naming(p, p.id(), endsCharged) }

// first delivers a payment for the first time, and returns when.
func (w *writer) first(p *planned) time.Duration {
	at := time.Duration(w.random.Int64N(int64(w.script.length * 8 / 10)))
	w.firstAt(at, p)
	return at
}

// firstAt delivers a payment for the first time, issued just then.
func (w *writer) firstAt(at time.Duration, p *planned) {
	p.issue(at)
	p.at = at
	w.at(at, p)
}

// issue has the payment issued so long after the start.
func (p *planned) issue(at time.Duration) {
	p.command.IssuedAt = p.command.IssuedAt.Add(at.Truncate(time.Millisecond))
}

// at delivers a payment, or a repeat of it.
func (w *writer) at(at time.Duration, p *planned) {
	w.script.deliveries = append(w.script.deliveries, delivery{at: at, command: &p.command})
}

// transact writes so many payments in one transaction.
func (w *writer) transact(commit bool, n int, e check.Ends) {
	t := transaction{at: w.script.length/4 + time.Duration(w.random.Int64N(int64(w.script.length/2))), commit: commit}
	for range n {
		p := w.payment(e, "")
		p.issue(t.at)
		t.commands = append(t.commands, &p.command)
	}
	w.script.transactions = append(w.script.transactions, t)
	w.script.later += n
}

// when delivers a payment once an event of another one was seen, and again after
// the pauses.
func (w *writer) when(p *planned, event payment.EventType, then *planned, again ...time.Duration) {
	w.await(trigger{payment: p.id(), event: event, then: then, again: again})
}

// wellAfter delivers a payment some seconds after the success of another one, and
// issues it only then.
func (w *writer) wellAfter(p, then *planned) {
	const after = 3 * time.Second // the tolerance is 2 s
	w.await(trigger{payment: p.id(), event: payment.EventSucceeded, then: then, after: after, fresh: true})
}

func (w *writer) await(t trigger) {
	t.then.waits = true
	w.script.triggers = append(w.script.triggers, t)
	w.script.later += 1 + len(t.again)
}

// repeat delivers a payment again: in the same batch, right behind, or late.
func (w *writer) repeat(p *planned, times int) {
	for range times {
		at := p.at
		switch w.random.IntN(3) {
		case 0:
		case 1:
			at += w.upTo(500)
		default:
			at += time.Duration(w.random.Int64N(int64(max(w.script.length-p.at, 1))))
		}
		w.at(at, p)
	}
}

// garbage is what no consumer can read a command in.
var garbage = []func(key string) (string, []byte){
	func(key string) (string, []byte) { return key, []byte("not JSON at all") },
	func(key string) (string, []byte) {
		return key, []byte(`{"idempotencyKey":"` + key + `","caller":"shop"`)
	},
	func(key string) (string, []byte) { return key, []byte("{\"caller\":\"sh\xff\xfeop\"}") },
	func(key string) (string, []byte) { return key, nil },
	func(string) (string, []byte) { return "no-key", []byte(`{"caller":"shop","operation":"charge"}`) },
	func(key string) (string, []byte) {
		return key, []byte(`{"idempotencyKey":"00000000-0000-0000-0000-000000000000","caller":"shop","operation":"charge"}`)
	},
	func(key string) (string, []byte) {
		return "another-key", []byte(`{"idempotencyKey":"` + key + `","caller":"shop","operation":"charge","orderId":"o-1","amount":1,` +
			`"currency":"EUR","customerId":"c","paymentMethod":"tok","channel":"sim","issuedAt":"2026-11-30T10:00:00Z"}`)
	},
}

func (w *writer) unreadable() {
	key, value := garbage[w.random.IntN(len(garbage))](w.key().String())
	at := time.Duration(w.random.Int64N(int64(w.script.length)))
	w.script.deliveries = append(w.script.deliveries, delivery{at: at, key: []byte(key), value: value})
}

// upTo is a random time of at most so many milliseconds.
func (w *writer) upTo(ms int64) time.Duration {
	return time.Duration(w.random.Int64N(ms)+1) * time.Millisecond
}

func (w *writer) pick(list []string) string { return list[w.random.IntN(len(list))] }

// key makes a UUID v4 from the seed.
func (w *writer) key() uuid.UUID {
	var key uuid.UUID
	binary.LittleEndian.PutUint64(key[:8], w.random.Uint64())
	binary.LittleEndian.PutUint64(key[8:], w.random.Uint64())
	key[6], key[8] = key[6]&0x0f|0x40, key[8]&0x3f|0x80
	return key
}
