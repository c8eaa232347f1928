package check

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// A run in which everything happened, and everything as it should.
func TestVerdict_HoldsForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	r := w.deliver(c)
	again := w.deliver(c)
	w.answer(again, c, payment.ReplyPending) // while the first is in flight
	w.ask(c, sim.StatusSettled)
	w.tell(c, payment.EventUnknown, payment.Unknown)
	w.evidence.Events = append(w.evidence.Events, w.evidence.Events[len(w.evidence.Events)-1]) // published again after a crash
	w.evidence.Requeries = append(w.evidence.Requeries, w.record(w.topics.Requery[1], nil,
		(&payment.Requery{PaymentID: c.Identity().PaymentID(), Attempt: 1, Query: 2, DueAt: w.now}).AppendJSON(nil)))
	refused, refusal := w.second(c, payment.CodePriorAttemptUnresolved)
	e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
	w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
	w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
	other := c
	other.Amount++
	w.answer(w.deliver(other), c, payment.ReplyConflict, func(r *payment.Reply) { r.Code = payment.CodeIdempotencyConflict })
	id := c.Identity().PaymentID()
	w.answer(refusal, refused, payment.ReplyRejected, withCode(payment.CodePriorAttemptUnresolved, &id, true)) // delivered again
	w.second(c, payment.CodeObligationAlreadyPaid)
	w.charged(w.command(func(next *payment.Command) { next.OrderID, next.Follows = c.OrderID, &id }))
	w.declined(w.command())
	w.bury(w.deliverRaw([]byte("k"), nil), payment.DeadNullValue)
	w.bury(w.deliver(w.command(func(c *payment.Command) { c.Caller = stranger })), payment.DeadForeignCaller)
	w.expect(w.command(), Ends{Guarantee: "G16", Never: true})
	v := w.requireClean()
	require.Equal(t, Counts{
		Records: 10, Keys: 6, Aborted: 1, Charges: 2, ChannelAsked: 3, Succeeded: 2, Declined: 1, Rejected: 2, Repeats: 2, Pending: 1, Conflicts: 1,
		Obligations: 1, PaidTwice: 1, SecondUnresolved: 1, SecondPaid: 1, PaidAgain: 1, DeadLetters: 2, Unknown: 1, Resolved: Tiers{Second: 1},
		Channels: []ChannelCounts{{Channel: "sim", Payments: 6, Charges: 2, Asked: 3, Unknown: 1, Succeeded: 2, Declined: 1, Rejected: 2}},
		Events:   5, EventRepeats: 1, Replies: 9, AnsweredAgain: 1,
	}, v.Counts)
}

// A payment in review may have been charged once, and its first delivery waits
// for the outcome.
func TestVerdict_ReviewIsAnEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.command()
	w.deliver(c)
	w.ask(c, sim.StatusSettled)
	w.tell(c, payment.EventUnknown, payment.Unknown)
	w.tell(c, payment.EventReviewRequired, payment.Review)
	w.expect(c, endsInReview)
	require.Equal(t, 1, w.requireClean().Counts.InReview)
}

// Each violation is planted into a run that held, and must be found at its key.
func TestVerdict_FindsPlantedViolations(t *testing.T) {
	t.Parallel()
	all := maps.Clone(plants)
	maps.Copy(all, channelPlants)
	maps.Copy(all, obligationPlants)
	maps.Copy(all, ownPlants)
	for name, spoil := range all {
		guarantee, _, _ := strings.Cut(name, " ")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.charged(w.command()) // a bystander
			key := spoil(w)
			w.requireBroken(guarantee, key)
		})
	}
}

// plants each break one guarantee, named first, and return the key it is at.
var plants = map[string]func(w *world) uuid.UUID{
	"G1 charged twice": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().Settled = 2
		return c.IdempotencyKey
	},
	"G1 another provider key for the same payment": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		extra := *w.last()
		extra.ProviderKey = c.Identity().ProviderKey(2)
		w.evidence.Ledger = append(w.evidence.Ledger, extra)
		return extra.ProviderKey
	},
	"G2 a repeat hears another outcome": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		e.ProviderReference = "ch_other"
		w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
		return c.IdempotencyKey
	},
	"G2 a repeat hears another time of the outcome": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		e.OccurredAt = e.OccurredAt.Add(time.Second)
		w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
		return c.IdempotencyKey
	},
	"G2 a repeat is not marked": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e), func(r *payment.Reply) { r.Replayed = false })
		return c.IdempotencyKey
	},
	"G2 a repeat is answered as if it were the first": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		w.answer(w.deliver(c), c, payment.ReplyOutcome, withOutcome(e))
		return c.IdempotencyKey
	},
	"G2 a repeat hears nothing in its reply": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.answer(w.deliver(c), c, payment.ReplyReplayed)
		return c.IdempotencyKey
	},
	"G2 a repeat hears pending after the outcome": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.answer(w.deliver(c), c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G2 rejected and sent": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c, _ := w.second(first, payment.CodeObligationAlreadyPaid)
		w.ask(c, sim.StatusSettled)
		return c.IdempotencyKey
	},
	"G2 rejected for two reasons": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c, _ := w.second(first, payment.CodePriorAttemptUnresolved)
		by := first.Identity().PaymentID()
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeObligationAlreadyPaid, &by, true))
		return c.IdempotencyKey
	},
	"G2 settled after it was rejected": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c, _ := w.second(first, payment.CodeObligationAlreadyPaid)
		w.answer(w.deliver(c), c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G3 succeeded without a charge": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.evidence.Ledger = w.evidence.Ledger[:1]
		return c.IdempotencyKey
	},
	"G3 succeeded without a settlement": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().Settled = 0
		return c.IdempotencyKey
	},
	"G3 another amount was booked": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().BookedAmount--
		return c.IdempotencyKey
	},
	"G3 another charge is named": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().Reference = "ch_other"
		return c.IdempotencyKey
	},
	"G3 declined and charged": func(w *world) uuid.UUID {
		c := w.command()
		w.declined(c)
		w.last().Settled = 1
		return c.IdempotencyKey
	},
	"G3 declined without evidence": func(w *world) uuid.UUID {
		c := w.command()
		w.declined(c)
		w.evidence.Ledger = w.evidence.Ledger[:1]
		return c.IdempotencyKey
	},
	"G4 sent after a decline": func(w *world) uuid.UUID {
		c := w.command()
		w.declined(c)
		w.last().LastAt = w.tick().Add(time.Minute)
		return c.IdempotencyKey
	},
	"G4 declined was to be expected": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.expect(c, endsDeclined)
		return c.IdempotencyKey
	},
	"G5 no outcome": func(w *world) uuid.UUID {
		c := w.command()
		w.answer(w.deliver(c), c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G5 unknown for ever": func(w *world) uuid.UUID {
		c := w.command()
		w.deliver(c)
		w.ask(c, sim.StatusSettled)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		return c.IdempotencyKey
	},
	"G5 a delivery without an answer": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.deliver(c)
		return c.IdempotencyKey
	},
	"G5 the first delivery was never told": func(w *world) uuid.UUID {
		c := w.command()
		r, _ := w.charged(c)
		w.evidence.Replies = w.evidence.Replies[:len(w.evidence.Replies)-1]
		w.answer(r, c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G5 a gap in the versions": func(w *world) uuid.UUID {
		c := w.command()
		r := w.deliver(c)
		w.ask(c, sim.StatusSettled)
		w.versions[c.Identity().PaymentID()] = 1
		e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
		w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
		return c.IdempotencyKey
	},
	"G5 a reply that is no JSON": func(w *world) uuid.UUID {
		w.evidence.Replies = append(w.evidence.Replies, w.record(w.topics.Replies, []byte("k"), []byte("{")))
		return uuid.Nil
	},
	"G5 an event that is no JSON": func(w *world) uuid.UUID {
		w.evidence.Events = append(w.evidence.Events, w.record(w.topics.Events, []byte("k"), []byte("{")))
		return uuid.Nil
	},
	"G5 a re-query that is no JSON": func(w *world) uuid.UUID {
		w.evidence.Requeries = append(w.evidence.Requeries, w.record(w.topics.Requery[0], []byte("k"), []byte("{")))
		return uuid.Nil
	},
	"G5 no dead letter": func(w *world) uuid.UUID {
		w.deliverRaw([]byte("some-key"), []byte("no JSON"))
		return uuid.Nil
	},
	"G5 a dead letter with other bytes": func(w *world) uuid.UUID {
		r := w.deliverRaw([]byte("some-key"), []byte("no JSON"))
		r.Value = []byte("no JSON ")
		w.bury(r, payment.DeadUnreadable)
		return uuid.Nil
	},
	"G5 a dead letter that was null": func(w *world) uuid.UUID {
		r := w.deliverRaw([]byte("some-key"), nil)
		r.Value = []byte{}
		w.bury(r, payment.DeadNullValue)
		return uuid.Nil
	},
	"G5 a dead letter with another key": func(w *world) uuid.UUID {
		r := w.deliverRaw([]byte("some-key"), []byte("no JSON"))
		r.Key = nil
		w.bury(r, payment.DeadUnreadable)
		return uuid.Nil
	},
	"G5 a dead letter without a reason": func(w *world) uuid.UUID {
		w.bury(w.deliverRaw([]byte("some-key"), []byte("no JSON")), "")
		return uuid.Nil
	},
	"G5 a dead letter from nowhere": func(w *world) uuid.UUID {
		w.bury(kafka.Record{Topic: w.topics.Commands, Partition: 3, Offset: 999, Key: []byte("k")}, payment.DeadUnreadable)
		return uuid.Nil
	},
	"G5 a command that is not in the topic": func(w *world) uuid.UUID {
		c := w.command()
		w.expect(c, endsCharged)
		return c.IdempotencyKey
	},
	"G5 a reply to nothing": func(w *world) uuid.UUID {
		c := w.command()
		r, e := w.charged(c)
		r.Offset += 100
		w.answer(r, c, payment.ReplyReplayed, withOutcome(e))
		return c.IdempotencyKey
	},
	"G5 rejected though nothing spoke against it": func(w *world) uuid.UUID {
		c := w.command()
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeChannelUnavailable, nil, false))
		w.expect(c, endsCharged)
		return c.IdempotencyKey
	},
	"G6 an event without a command": func(w *world) uuid.UUID {
		c := w.command()
		w.tell(c, payment.EventUnknown, payment.Unknown)
		return c.IdempotencyKey
	},
	"G6 a charge about another payment": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().PaymentID = uuid.NewString()
		return c.IdempotencyKey
	},
	"G8 a conflict is taken for a repeat": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		other := c
		other.Amount++
		w.answer(w.deliver(other), c, payment.ReplyReplayed, withOutcome(e))
		return c.IdempotencyKey
	},
	"G8 a conflict tells the outcome": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		other := c
		other.Amount++
		w.answer(w.deliver(other), c, payment.ReplyConflict, withOutcome(e), func(r *payment.Reply) { r.Code = payment.CodeIdempotencyConflict })
		return c.IdempotencyKey
	},
	"G8 the other content was charged": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.last().Amount++
		return c.IdempotencyKey
	},
	"G9 the outcome was changed": func(w *world) uuid.UUID {
		c := w.command()
		w.declined(c)
		w.tell(c, payment.EventSucceeded, payment.Succeeded)
		return c.IdempotencyKey
	},
	"G9 unknown after the outcome": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		return c.IdempotencyKey
	},
	"G9 evidence contradicts": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.tell(c, payment.EventEvidenceConflict, payment.Succeeded)
		return c.IdempotencyKey
	},
	"G10 an older event after a newer one": func(w *world) uuid.UUID {
		c := w.command()
		r := w.deliver(c)
		w.ask(c, sim.StatusSettled)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
		w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
		events := w.evidence.Events
		w.evidence.Events = append(events, events[len(events)-2]) // a relay that woke up
		return c.IdempotencyKey
	},
	"G10 two events of one version": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.versions[c.Identity().PaymentID()] = 0
		w.tell(c, payment.EventDeclined, payment.Succeeded)
		return c.IdempotencyKey
	},
	"G10 a repeat of an event says something else": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		again := w.evidence.Events[len(w.evidence.Events)-1]
		again.Value = []byte(strings.Replace(string(again.Value), "EUR", "USD", 1))
		w.evidence.Events = append(w.evidence.Events, again)
		return c.IdempotencyKey
	},
	"G10 events of a key in two partitions": func(w *world) uuid.UUID {
		c := w.command()
		r := w.deliver(c)
		w.ask(c, sim.StatusSettled)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		e := w.tell(c, payment.EventSucceeded, payment.Succeeded)
		w.answer(r, c, payment.ReplyOutcome, withOutcome(e))
		w.evidence.Events[len(w.evidence.Events)-1].Partition++
		return c.IdempotencyKey
	},
	"G10 a pending reply after the outcome": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		again := w.deliver(c)
		w.answer(again, c, payment.ReplyPending, func(r *payment.Reply) { r.Version = 0 })
		return c.IdempotencyKey
	},
	"G13 a re-query before its time": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.announce(c, 1, w.now.Add(time.Second))
		w.announce(c, 2, w.now.Add(5500*time.Millisecond))
		w.announce(c, 3, w.now.Add(20*time.Second)) // 4 s after now, and not after 5.5 s
		return c.IdempotencyKey
	},
	"G12 a stranger was charged": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.Caller = stranger })
		w.bury(w.deliver(c), payment.DeadForeignCaller)
		w.ask(c, sim.StatusSettled)
		return c.IdempotencyKey
	},
	"G12 a stranger was answered": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.Caller = stranger })
		r := w.deliver(c)
		w.bury(r, payment.DeadForeignCaller)
		w.answer(r, c, payment.ReplyPending)
		return c.IdempotencyKey
	},
	"G12 a reply names another caller": func(w *world) uuid.UUID {
		c := w.command()
		_, e := w.charged(c)
		w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e), func(r *payment.Reply) { r.Caller = "billing" })
		return c.IdempotencyKey
	},
	"G12 a stranger's payment has an event": func(w *world) uuid.UUID {
		c := w.command(func(c *payment.Command) { c.Caller = stranger })
		w.bury(w.deliver(c), payment.DeadForeignCaller)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		return c.IdempotencyKey
	},
	"G13 too many queries": func(w *world) uuid.UUID {
		w.evidence.Queries = 100_000
		return uuid.Nil
	},
	"G14 a stale command was charged": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.expect(c, rejectedAs("G14", payment.CodeStaleCommand))
		return c.IdempotencyKey
	},
	"G14 refused for another reason": func(w *world) uuid.UUID {
		c := w.command()
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeUnknownChannel, nil, false))
		w.expect(c, rejectedAs("G14", payment.CodeStaleCommand))
		return c.IdempotencyKey
	},
	"G15 two keys of one order under way": func(w *world) uuid.UUID {
		first := w.command()
		r := w.deliver(first)
		w.ask(first, sim.StatusSettled)
		c := first
		c.IdempotencyKey = uuid.New()
		w.declined(c)
		e := w.tell(first, payment.EventSucceeded, payment.Succeeded)
		w.answer(r, first, payment.ReplyOutcome, withOutcome(e))
		return c.IdempotencyKey
	},
	"G15 a second key while the first is in review": func(w *world) uuid.UUID {
		first := w.command()
		w.deliver(first)
		w.ask(first, sim.StatusSettled)
		w.tell(first, payment.EventReviewRequired, payment.Review)
		c := first
		c.IdempotencyKey = uuid.New()
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 a paid order was paid again": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c := first
		c.IdempotencyKey = uuid.New()
		w.charged(c)
		return c.IdempotencyKey
	},
	"G15 a refusal that names nobody": func(w *world) uuid.UUID {
		first := w.command()
		w.charged(first)
		c := first
		c.IdempotencyKey = uuid.New()
		w.answer(w.deliver(c), c, payment.ReplyRejected, withCode(payment.CodeObligationAlreadyPaid, nil, false))
		return c.IdempotencyKey
	},
	"G16 an aborted command was charged": func(w *world) uuid.UUID {
		c := w.command()
		w.ask(c, sim.StatusSettled)
		w.expect(c, Ends{Guarantee: "G16", Never: true})
		return c.IdempotencyKey
	},
	"G16 an aborted command was answered": func(w *world) uuid.UUID {
		c := w.command()
		w.answer(kafka.Record{Topic: w.topics.Commands, Offset: 77}, c, payment.ReplyPending)
		w.expect(c, Ends{Guarantee: "G16", Never: true})
		return c.IdempotencyKey
	},
	"G16 an aborted command has an event": func(w *world) uuid.UUID {
		c := w.command()
		w.tell(c, payment.EventUnknown, payment.Unknown)
		w.expect(c, Ends{Guarantee: "G16", Never: true})
		return c.IdempotencyKey
	},
	"G16 an aborted command is in the topic": func(w *world) uuid.UUID {
		c := w.command()
		w.charged(c)
		w.expected[len(w.expected)-1].Ends = Ends{Guarantee: "G16", Never: true}
		return c.IdempotencyKey
	},
}

// last is the charge that was made last.
func (w *world) last() *sim.Charge { return &w.evidence.Ledger[len(w.evidence.Ledger)-1] }
