package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// edge is a world with clients of the HTTP edge.
type edge struct {
	*tables

	told      []Told
	callbacks sim.CallbackCounts
}

// answered is the answer to one request for a payment.
func (w *edge) answered(c payment.Command, change ...func(*Told)) {
	sum, err := c.Fingerprint()
	require.NoError(w.t, err)
	t := Told{Caller: c.Caller, Key: c.IdempotencyKey, Sum: sum, Status: 202, State: "accepted", Payment: c.Identity().PaymentID()}
	for _, f := range change {
		f(&t)
	}
	w.told = append(w.told, t)
}

func succeeded(c payment.Command, replayed bool) func(*Told) {
	return func(t *Told) {
		t.Status, t.State, t.Reference, t.Replayed = 200, "succeeded", "ch_"+c.OrderID, replayed
	}
}

func refusedAs(status int, code payment.Code, by *uuid.UUID) func(*Told) {
	return func(t *Told) { t.Status, t.Code, t.State, t.BlockedBy = status, code, "rejected", by }
}

func (w *edge) judgeEdge() Verdict {
	e := w.file()
	e.Ledgers[0].Callbacks = w.callbacks
	rules := w.rules()
	rules.Told, rules.Database, rules.Lookups = w.told, w.db, []string{"sim"}
	return Judge(e, rules)
}

// repeat delivers a payment again, and answers with its outcome.
func (w *edge) repeat(c payment.Command, e payment.Event) {
	w.answer(w.deliver(c), c, payment.ReplyReplayed, withOutcome(e))
}

// What the edge may say.
func TestTold_HoldsForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	w := &edge{tables: newTables(t), callbacks: sim.CallbackCounts{Sent: 3, Acknowledged: 2, Refused: 1}}
	c := w.command()
	_, e := w.charged(c)
	w.repeat(c, e)
	w.answered(c)
	w.answered(c, succeeded(c, true))
	w.answered(c, succeeded(c, false), func(t *Told) { t.Looked = true })
	other := c
	other.Amount++
	w.answer(w.deliver(other), c, payment.ReplyConflict, func(r *payment.Reply) { r.Code = payment.CodeIdempotencyConflict })
	w.answered(other, refusedAs(409, payment.CodeIdempotencyConflict, nil), func(t *Told) { t.Payment = uuid.Nil })
	by := c.Identity().PaymentID()
	second, _ := w.second(c, payment.CodeObligationAlreadyPaid)
	w.answered(second, refusedAs(409, payment.CodeObligationAlreadyPaid, &by))
	// An operator has everything published again.
	for _, r := range w.evidence.Events {
		w.evidence.Events = append(w.evidence.Events, w.again(r))
	}
	for _, r := range w.evidence.Replies {
		w.evidence.Replies = append(w.evidence.Replies, w.again(r))
	}
	w.db = nil
	v := w.judgeEdge()
	require.Empty(t, v.Violations)
	require.Equal(t, 5, v.Counts.Told)
	require.Equal(t, 2, v.Counts.Callbacks)
	require.Equal(t, 5, v.Counts.Replays)
}

// again is a record that an operator's replay published.
func (w *edge) again(r kafka.Record) kafka.Record {
	next := w.record(r.Topic, r.Key, r.Value)
	next.Headers = append(next.Headers, r.Headers...)
	next.Headers = append(next.Headers, kafka.Header{Key: replayHeader, Value: []byte(uuid.NewString())})
	return next
}

// Each violation is planted beside a bystander, and must be found.
func TestTold_FindsPlantedViolations(t *testing.T) {
	t.Parallel()
	for name, spoil := range edgePlants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &edge{tables: newTables(t)}
			w.paid()
			w.reviewed()
			require.Empty(t, w.judgeEdge().Violations)
			spoil(w)
			guarantee, _, _ := strings.Cut(name, " ")
			v := w.judgeEdge()
			require.NotEmpty(t, v.Violations)
			for _, found := range v.Violations {
				require.Equal(t, guarantee, found.Guarantee, found.Text)
			}
		})
	}
}

// settled is a payment that succeeded, in the tables too.
func (w *edge) settled() payment.Command {
	w.paid()
	last := w.evidence.Commands[len(w.evidence.Commands)-1]
	return payment.Decode(last.Value).Command
}

var edgePlants = map[string]func(w *edge){
	"G5 taken, and not in the topic":  func(w *edge) { w.answered(w.command()) },
	"G5 two taken, and one is there":  func(w *edge) { c := w.settled(); w.answered(c); w.answered(c) },
	"G5 a right request is not taken": func(w *edge) { w.answered(w.settled(), refusedAs(400, "UNREADABLE_BODY", nil)) },
	"G5 an error of our own":          func(w *edge) { w.answered(w.settled(), refusedAs(500, "INTERNAL", nil)) },
	"G2 another outcome": func(w *edge) {
		c := w.settled()
		w.answered(c, succeeded(c, false), func(t *Told) { t.State = "declined" })
	},
	"G2 another reference": func(w *edge) {
		c := w.settled()
		w.answered(c, succeeded(c, false), func(t *Told) { t.Reference = "ch_9" })
	},
	"G2 no outcome and 200": func(w *edge) { w.answered(w.settled(), func(t *Told) { t.Status, t.State = 200, "pending" }) },
	"G2 an outcome of what has none": func(w *edge) {
		w.reviewed()
		c := payment.Decode(w.evidence.Commands[len(w.evidence.Commands)-1].Value).Command
		w.answered(c, succeeded(c, false))
	},
	"G2 an outcome and 202": func(w *edge) {
		c := w.settled()
		w.answered(c, succeeded(c, false), func(t *Told) { t.Status = 202 })
	},
	"G2 refused, and paid": func(w *edge) { w.answered(w.settled(), refusedAs(409, payment.CodePriorAttemptUnresolved, nil)) },
	"G2 looked up, and refused": func(w *edge) {
		w.answered(w.settled(), func(t *Told) { t.Looked, t.Status, t.State = true, 200, "rejected" })
	},
	"G2 the only one is a repeat": func(w *edge) { c := w.settled(); w.answered(c, succeeded(c, true)) },
	"G2 two are the first": func(w *edge) {
		c := w.command()
		_, e := w.charged(c)
		w.repeat(c, e)
		w.db = nil
		w.answered(c, succeeded(c, false))
		w.answered(c, succeeded(c, false))
	},
	"G8 a conflict that is none": func(w *edge) { w.answered(w.settled(), refusedAs(409, payment.CodeIdempotencyConflict, nil)) },
	"G8 another content is told the outcome": func(w *edge) {
		c := w.command()
		w.charged(c)
		other := c
		other.Amount++
		w.answer(w.deliver(other), c, payment.ReplyConflict, func(r *payment.Reply) { r.Code = payment.CodeIdempotencyConflict })
		w.db = nil
		w.answered(other, succeeded(c, true))
	},
	"G12 the payment of another caller": func(w *edge) {
		c := w.settled()
		other := c
		other.Caller = "billing"
		w.answered(c, succeeded(c, false), func(t *Told) { t.Payment = other.Identity().PaymentID() })
	},
	"G15 another payment is in the way": func(w *edge) {
		first := w.command()
		w.charged(first)
		second, _ := w.second(first, payment.CodeObligationAlreadyPaid)
		another := w.command()
		other := another.Identity().PaymentID()
		w.db = nil
		w.answered(second, refusedAs(409, payment.CodeObligationAlreadyPaid, &other))
	},
	"G3 a forged callback was taken": func(w *edge) { w.callbacks = sim.CallbackCounts{Sent: 1, Acknowledged: 1, ForgedAcknowledged: 1} },
	"G3 a callback decided": func(w *edge) {
		c := w.settled()
		w.db.Callbacks = []CallbackRow{{Channel: "sim", Payment: c.Identity().PaymentID(), Result: "evidence"}}
	},
	"G10 a replay tells something new": func(w *edge) {
		c := w.command()
		w.charged(c)
		w.tell(c, payment.EventUnknown, payment.Unknown)
		r := &w.evidence.Events[len(w.evidence.Events)-1]
		r.Value = []byte(strings.Replace(string(r.Value), `"version":2`, `"version":1`, 1))
		r.Headers = append(r.Headers, kafka.Header{Key: replayHeader, Value: []byte("x")})
		w.db = nil
	},
}

// Whoever was called back may be asked at once, and only from then on.
func TestPunctual_CallbacksPrompt(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		w := &edge{tables: newTables(t)}
		c := w.settled()
		w.announce(c, 1, w.now.Add(time.Second))
		asked := w.now.Add(500 * time.Millisecond)
		w.last().QueriedAt = []time.Time{asked}
		came := asked.Add(-time.Millisecond)
		if early {
			came = asked.Add(time.Minute)
		}
		w.db.Callbacks = []CallbackRow{{Channel: "sim", Payment: c.Identity().PaymentID(), ReceivedAt: came, Result: "asked"}}
		require.Equal(t, early, len(w.judgeEdge().Violations) > 0)
		w.last().QueriedAt = nil
		w.announce(c, 2, asked.Add(4*time.Second)) // the first re-query ran when it was asked
		require.Equal(t, early, len(w.judgeEdge().Violations) > 0)
	}
}
