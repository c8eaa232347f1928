package check

import (
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// announce publishes that the channel will be asked.
func (w *world) announce(c payment.Command, query int, due time.Time) {
	q := payment.Requery{PaymentID: c.Identity().PaymentID(), Attempt: 1, Query: query, DueAt: due}
	w.evidence.Requeries = append(w.evidence.Requeries, w.record(w.topics.Requery[query-1], nil, q.AppendJSON(nil)))
}

// secondKey is another key for the order of a payment.
func (w *world) secondKey(of payment.Command, change ...func(*payment.Command)) payment.Command {
	c := of
	c.IdempotencyKey = uuid.New()
	for _, f := range change {
		f(&c)
	}
	return c
}

// refuse answers a second key with the code, blocked by the payment.
func (w *world) refuse(c payment.Command, code payment.Code, by payment.Command) {
	id := by.Identity().PaymentID()
	w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(code, &id, false))
}

func issuedNow(w *world) func(*payment.Command) {
	return func(c *payment.Command) { c.IssuedAt = w.now }
}

func names(of payment.Command) func(*payment.Command) {
	id := of.Identity().PaymentID()
	return func(c *payment.Command) { c.Follows = &id }
}

// ownPlants are about a caller with topics of its own.
var ownPlants = map[string]func(w *world) uuid.UUID{
	"G12 everybody can read the reply": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.Caller = "partner" })
		w.charged(c)
		w.evidence.Events[len(w.evidence.Events)-1].Topic = w.topics.EventsOf("partner")
		return c.IdempotencyKey
	},
	"G12 everybody can read the event": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.Caller = "partner" })
		w.charged(c)
		w.evidence.Replies[len(w.evidence.Replies)-1].Topic = w.topics.RepliesOf("partner")
		return c.IdempotencyKey
	},
}

// channelPlants are about several channels, and the times at which they were asked.
var channelPlants = map[string]func(w *world) uuid.UUID{
	"G1 charged at two channels": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.evidence.Other = append(w.evidence.Other, *w.last())
		return c.IdempotencyKey
	},
	"G1 charged in two attempts": func(w *world) uuid.UUID {
		c := w.command()
		r := w.deliver(c)
		w.ask(c, sim.StatusSettled)
		again := *w.last()
		again.ProviderKey = c.Identity().ProviderKey(2)
		w.evidence.Ledger = append(w.evidence.Ledger, again)
		e := w.tell(c, payment.EventSucceeded, payment.Succeeded, func(e *payment.Event) { e.Attempt = 2 })
		w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
		return c.IdempotencyKey
	},
	"G8 another channel was asked": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.evidence.Other = append(w.evidence.Other, *w.last())
		w.evidence.Ledger = w.evidence.Ledger[:len(w.evidence.Ledger)-1]
		return c.IdempotencyKey
	},
	"G13 a storm of queries after an outage": func(w *world) uuid.UUID {
		w.evidence.Load.Since = w.now.Add(-30 * time.Minute) // in all, the budget would allow them
		w.evidence.Queries = 5000
		w.evidence.Load.Seconds = []sim.LoadSecond{{At: w.now.Unix() - 900, Submits: 100}, {At: w.now.Unix() - 60, Queries: 5000}}
		return uuid.Nil
	},
	"G13 asked before the first re-query was due": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.announce(c, 1, w.now.Add(time.Second))
		w.last().QueriedAt = []time.Time{w.now.Add(500 * time.Millisecond)}
		return c.IdempotencyKey
	},
	"G13 asked before a later re-query was due": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.announce(c, 1, w.now)
		w.announce(c, 3, w.now.Add(16*time.Second))
		w.last().QueriedAt = []time.Time{w.now.Add(time.Second), w.now.Add(10 * time.Second)}
		return c.IdempotencyKey
	},
	"G16 an aborted command was refused": func(w *world) uuid.UUID {
		c := w.command()
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeUnknownChannel, nil, false))
		w.expect(c, Ends{Guarantee: "G16", Never: true})
		return c.IdempotencyKey
	},
	"G14 too old, and not in the dead-letter topic": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.IssuedAt = c.IssuedAt.Add(-15 * 24 * time.Hour) })
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeStaleCommand, nil, false))
		return c.IdempotencyKey
	},
	"G14 charged, and too old": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.IssuedAt = c.IssuedAt.Add(-15 * 24 * time.Hour) })
		w.charged(c)
		return c.IdempotencyKey
	},
	"G14 charged before it was issued": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.IssuedAt = c.IssuedAt.Add(time.Hour) })
		w.charged(c)
		return c.IdempotencyKey
	},
}

// obligationPlants are about several keys of one order.
var obligationPlants = map[string]func(w *world) uuid.UUID{
	"G15 an order charged twice behind a decline": func(w *world) uuid.UUID {
		first := w.command()
		w.declined(first)
		w.last().Settled = 1
		c := w.secondKey(first)
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 sent while the first is in review, and declined": func(w *world) uuid.UUID {
		first := w.command()
		w.deliver(first)
		w.ask(first, sim.StatusSettled)
		w.tell(first, payment.EventReviewRequired, payment.Review)
		c := w.secondKey(first)
		w.declined(c)
		return c.IdempotencyKey
	},
	"G15 sent after the order was paid, and declined": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c := w.secondKey(first)
		w.declined(c)
		return c.IdempotencyKey
	},
	"G15 paid again without a name where only a name counts": func(w *world) uuid.UUID {
		first := w.command(func(c *payment.Command) { c.Caller = "market" })
		w.charged(first)
		w.now = w.now.Add(time.Minute)
		c := w.secondKey(first, func(c *payment.Command) { c.Caller = "jobs" }, issuedNow(w))
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 paid again by the name of another payment": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c := w.secondKey(first, names(w.command()))
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 paid again by a command issued within the tolerance": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		w.now = w.now.Add(payment.SuccessTolerance / 2)
		c := w.secondKey(first, issuedNow(w))
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 refused though it names the payment": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c := w.secondKey(first, names(first))
		w.refuse(c, payment.CodeObligationAlreadyPaid, first)
		return c.IdempotencyKey
	},
	"G15 refused though it was issued later": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		w.now = w.now.Add(time.Minute)
		c := w.secondKey(first, issuedNow(w))
		w.refuse(c, payment.CodeObligationAlreadyPaid, first)
		return c.IdempotencyKey
	},
	"G15 refused as paid by one that was declined": func(w *world) uuid.UUID {
		first := w.command()
		w.declined(first)
		c := w.secondKey(first)
		w.refuse(c, payment.CodeObligationAlreadyPaid, first)
		return c.IdempotencyKey
	},
	"G15 refused as unresolved long after the end": func(w *world) uuid.UUID {
		first := w.command()
		w.declined(first)
		w.now = w.now.Add(time.Minute)
		c := w.secondKey(first)
		w.refuse(c, payment.CodePriorAttemptUnresolved, first)
		return c.IdempotencyKey
	},
	"G15 blocked by one that was refused itself": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		second, _ := w.second(first, payment.CodeObligationAlreadyPaid)
		c := w.secondKey(first)
		w.refuse(c, payment.CodePriorAttemptUnresolved, second)
		return c.IdempotencyKey
	},
}

// lately is the rule of an installation at work: what is younger may be under way.
func lately(since time.Time) func(uuid.UUID, time.Time) bool {
	return func(_ uuid.UUID, at time.Time) bool { return at.After(since) }
}

// raw is a record that nobody can read.
func (w *world) raw() kafka.Record { return w.deliverRaw([]byte("some-key"), []byte("no JSON")) }
