package demo

import (
	"math/rand/v2"
	"time"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/payment"
)

// story is a kind of thing that happens to payments in the demo.
type story struct {
	name string
	// weight is the story's share of all payments, per thousand.
	weight int
	// tell adds the story's payments and deliveries to the script.
	tell func(*writer)
}

var (
	endsCharged  = check.Ends{Guarantee: "G5", States: []payment.State{payment.Succeeded}}
	endsDeclined = check.Ends{Guarantee: "G4", States: []payment.State{payment.Declined}}
	endsInReview = check.Ends{Guarantee: "G3", States: []payment.State{payment.Review}}
	endsSecond   = check.Ends{
		Guarantee: "G15", States: []payment.State{payment.Rejected},
		Codes: []payment.Code{payment.CodePriorAttemptUnresolved, payment.CodeObligationAlreadyPaid},
	}
	// endsRace: of two keys for one order, published together, one wins.
	endsRace = check.Ends{
		Guarantee: "G15", States: []payment.State{payment.Succeeded, payment.Rejected},
		Codes: []payment.Code{payment.CodePriorAttemptUnresolved, payment.CodeObligationAlreadyPaid},
	}
)

// endsPaid: the order was paid when this key was consumed.
var endsPaid = rejectedAs("G15", payment.CodeObligationAlreadyPaid)

// endsNamed: a key that names the payment before it waits for nothing but its end.
var endsNamed = check.Ends{
	Guarantee: "G15", States: []payment.State{payment.Succeeded, payment.Rejected}, Codes: []payment.Code{payment.CodePriorAttemptUnresolved},
}

func rejectedAs(guarantee string, code payment.Code) check.Ends {
	return check.Ends{Guarantee: guarantee, States: []payment.State{payment.Rejected}, Codes: []payment.Code{code}}
}

// lost are faults after which the provider has the money and we have no answer.
var lost = []string{"lost_answer", "hangup", "error_after", "garbage", "truncated", "slow:3s", "no_echo"}

// before are faults after which nothing was executed, and we cannot know.
var before = []string{"error_before", "reset_before", "in_progress", "blackhole:4s", "redirect"}

// stories are told in the order of the table, then again by weight.
var stories = []story{
	{"plain", 560, func(w *writer) { w.first(w.payment(endsCharged, "")) }},
	{"repeated", 170, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		w.repeat(p, 1+w.random.IntN(3))
	}},
	{"repeated while in flight", 15, func(w *writer) {
		p := w.payment(endsCharged, "slow:900ms")
		at := w.first(p)
		w.at(at+w.upTo(300), p)
		w.at(at+w.upTo(800), p)
	}},
	{"conflict", 30, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.at(w.first(p)+w.upTo(3000), w.otherAmount(p))
	}},
	{"conflict while in flight", 15, func(w *writer) {
		p := w.payment(endsCharged, "slow:900ms")
		at := w.first(p)
		w.at(at, w.otherAmount(p))
		w.at(at+w.upTo(500), w.otherAmount(p))
	}},
	{"declined", 45, func(w *writer) {
		p := w.payment(endsDeclined, "declined@*")
		w.first(p)
		w.repeat(p, w.random.IntN(2))
	}},
	{"refused", 10, func(w *writer) { w.first(w.payment(endsDeclined, "refused@*")) }},
	{"declined, answer lost", 8, func(w *writer) {
		p := w.payment(endsDeclined, "declined@*,lost_answer")
		w.first(p)
		w.repeat(p, 1)
	}},
	{"answer lost", 35, func(w *writer) {
		p := w.payment(endsCharged, w.pick(lost))
		w.first(p)
		w.repeat(p, w.random.IntN(2))
	}},
	{"not executed", 15, func(w *writer) { w.first(w.payment(endsCharged, w.pick(before))) }},
	{"throttled", 10, func(w *writer) { w.first(w.payment(endsCharged, "throttled")) }},
	{"settled late", 4, func(w *writer) { w.first(w.payment(endsCharged, "late_settlement:2s")) }},
	{"hard to find", 4, func(w *writer) { w.first(w.payment(endsCharged, "lost_answer,query_lost@1,query_garbage@2")) }},
	{"second key while unresolved", 12, func(w *writer) {
		p := w.payment(endsCharged, "lost_answer,query_error@1")
		w.first(p)
		// Delivered again when the order is paid, it stays refused.
		w.when(p, payment.EventUnknown, w.sameOrder(p, endsSecond), w.upTo(1000), 12*time.Second)
	}},
	{"two keys at once", 15, func(w *writer) {
		p := w.payment(endsRace, "")
		w.at(w.first(p), w.sameOrder(p, endsRace))
	}},
	{"second key for a paid order", 15, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		w.when(p, payment.EventSucceeded, w.sameOrder(p, endsSecond))
	}},
	{"second key consumed first", 10, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		earlier := w.sameOrder(p, endsPaid)
		earlier.command.IssuedAt = earlier.command.IssuedAt.Add(-5 * time.Second)
		w.when(p, payment.EventSucceeded, earlier, w.upTo(3000))
	}},
	{"second key names the unresolved", 6, func(w *writer) {
		p := w.payment(endsCharged, "lost_answer,query_error@1")
		w.first(p)
		w.when(p, payment.EventUnknown, w.naming(p, p.id(), endsNamed), w.upTo(1000))
	}},
	{"second key names another order's payment", 5, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		w.when(p, payment.EventSucceeded, w.naming(p, w.key(), endsPaid))
	}},
	{"issued later", 10, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		w.wellAfter(p, w.sameOrder(p, endsCharged))
	}},
	{"issued later where only a name counts", 8, func(w *writer) {
		p := w.payment(endsCharged, "")
		p.command.Caller = market
		w.first(p)
		unnamed := w.sameOrder(p, endsSecond)
		unnamed.command.Caller = jobs
		w.wellAfter(p, unnamed)
		named := w.following(p)
		named.command.Caller = jobs
		w.when(p, payment.EventSucceeded, named)
		w.wellAfter(named, w.naming(p, p.id(), endsPaid)) // not the latest
	}},
	{"two callers of one namespace at once", 6, func(w *writer) {
		p := w.payment(endsRace, "")
		p.command.Caller = market
		other := w.sameOrder(p, endsRace)
		at := w.first(p)
		other.command.Caller, other.command.IssuedAt = jobs, p.command.IssuedAt
		w.at(at, other)
	}},
	{"paid in two parts", 8, func(w *writer) {
		p := w.payment(endsCharged, "")
		p.command.Obligation = p.command.OrderID + "/1"
		at := w.first(p)
		rest := w.sameOrder(p, endsCharged)
		rest.command.Obligation = p.command.OrderID + "/2"
		w.at(at, rest)
	}},
	{"paid again on purpose", 8, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		w.when(p, payment.EventSucceeded, w.following(p))
	}},
	{"same key, other caller", 8, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.at(w.first(p), w.otherCaller(p, endsCharged, "billing"))
	}},
	{"unknown channel", 3, func(w *writer) {
		p := w.payment(rejectedAs("G2", payment.CodeUnknownChannel), "")
		p.command.Channel = "acquirer-9"
		w.first(p)
		w.repeat(p, 1)
	}},
	{"stale", 3, func(w *writer) {
		p := w.payment(rejectedAs("G14", payment.CodeStaleCommand), "")
		p.command.IssuedAt = p.command.IssuedAt.Add(-staleBy)
		w.first(p)
	}},
	{"from the future", 2, func(w *writer) {
		p := w.payment(rejectedAs("G14", payment.CodeInvalidCommand), "")
		p.command.IssuedAt = p.command.IssuedAt.Add(futureBy)
		w.first(p)
	}},
	{"invalid", 6, func(w *writer) {
		p := w.payment(rejectedAs("G5", payment.CodeInvalidCommand), "")
		p.command.Amount = -p.command.Amount
		w.first(p)
		w.repeat(p, 1)
	}},
	{"unreadable", 6, func(w *writer) { w.unreadable() }},
	{"not in its own name", 3, func(w *writer) {
		p := w.payment(check.Ends{Guarantee: "G12"}, "")
		p.command.Caller = stranger
		w.first(p)
	}},
	{"in a transaction", 0, func(w *writer) { w.transact(true, 10, endsCharged) }},
	{"in an aborted transaction", 0, func(w *writer) { w.transact(false, 10, check.Ends{Guarantee: "G16", Never: true}) }},
	// The last ones are few, whatever the number of commands: each takes a person.
	{"never answered", 0, func(w *writer) {
		for range 3 {
			p := w.payment(endsInReview, "lost_answer,query_error@*")
			w.first(p)
			w.repeat(p, 1)
			w.when(p, payment.EventUnknown, w.sameOrder(p, endsSecond))
		}
	}},
	{"another amount", 0, func(w *writer) { w.first(w.payment(endsInReview, "wrong_amount@*")) }},
	{"authorised only", 0, func(w *writer) { w.first(w.payment(endsInReview, "authorized@*")) }},
}

// further are stories that are told with random numbers of their own, so that what
// a seed makes of the others stays as it is. Each is told a few times at least.
var further = []story{
	{"issued right after the success", 4, func(w *writer) {
		p := w.payment(endsCharged, "")
		w.first(p)
		second := w.sameOrder(p, endsPaid)
		// Later than the success, and by less than clocks may differ (payment.SuccessTolerance).
		w.await(trigger{
			payment: p.id(), event: payment.EventSucceeded, then: second, after: w.upTo(1500), behind: w.upTo(1800), again: []time.Duration{4 * time.Second},
		})
	}},
	{"aborted and committed in turn", 0, (*writer).entangle},
}

const (
	// furtherStream is the first of the streams of random numbers that further stories
	// draw from, each from one of its own.
	furtherStream = 100
	// furtherAtLeast is how often each of them is told at least that has a weight.
	furtherAtLeast = 4
	// furtherOrders are the numbers of orders that each of them may have.
	furtherOrders = 10_000_000
)

// tellFurther tells the further stories in a script of about so many payments.
func (w *writer) tellFurther(payments int) {
	for i := range further {
		own := *w
		own.random, own.orders = rand.New(rand.NewPCG(w.seed, uint64(furtherStream+i))), (1+i)*furtherOrders
		times := 1
		if weight := further[i].weight; weight > 0 {
			times = max(furtherAtLeast, payments*weight/1000)
		}
		for range times {
			own.tell(&further[i])
		}
	}
}
