package check

import (
	"net/http"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Told is the last answer that a client of the HTTP edge got to one request, which
// it had sent until there was one.
type Told struct {
	Caller string
	Key    uuid.UUID
	// Sum is the fingerprint of what was sent.
	Sum payment.Fingerprint
	// Looked says that the client asked what became of the payment, and submitted
	// nothing.
	Looked bool
	// Posed says what it showed that is none of its own: then Caller is whom it posed
	// as. Empty for one that showed its own key.
	Posed string

	// Status is that of HTTP; Code is the problem's, empty without one.
	Status int
	Code   payment.Code
	// Payment, State and Reference are what the answer shows; the nil UUID and empty
	// where it shows none.
	Payment   uuid.UUID
	State     string
	Reference string
	BlockedBy *uuid.UUID
	// Replayed says that the answer is marked as that of a repeat.
	Replayed bool
}

// accepted is the state of what is in Kafka and not judged yet.
const accepted = "accepted"

// claim is what was asked for under a key.
type claim struct {
	id  uuid.UUID
	sum payment.Fingerprint
}

// told: no answer of the edge contradicts what topics and ledger say.
func (j *judge) told() {
	submits, firsts := map[claim]int{}, map[uuid.UUID]int{}
	for i := range j.rules.Told {
		t := &j.rules.Told[i]
		id := payment.Identity{Caller: t.Caller, Operation: payment.OperationCharge, Key: t.Key}.PaymentID()
		if t.Posed != "" {
			j.posed(t, id)
			continue
		}
		if t.Payment != uuid.Nil {
			j.check("G12")
			if t.Payment != id {
				j.brokenf("G12", t.Key.String(), "the edge showed %s the payment %s, and its own is %s", t.Caller, t.Payment, id)
			}
		}
		d, ok := j.evidence.known(id)
		if !ok {
			j.check("G5")
			j.brokenf("G5", t.Key.String(), "the edge answered %d %s, and no command of %s is in the topic", t.Status, t.Code, t.Caller)
			continue
		}
		if !t.Looked {
			j.submitted(d, t, submits, firsts)
		}
		j.answer(d, t)
	}
}

// submitted: each request that was taken is a record of its own (G5), and one at
// most is told that it was the first (G2).
func (j *judge) submitted(d *dossier, t *Told, submits map[claim]int, firsts map[uuid.UUID]int) {
	j.check("G5")
	arrived := 0
	for _, v := range d.arrivals {
		if v.fingerprint == t.Sum {
			arrived++
		}
	}
	c := claim{d.id, t.Sum}
	if submits[c]++; submits[c] > arrived {
		j.brokenf("G5", d.key(), "the edge took %d requests, and %d records are in the topic", submits[c], arrived)
	}
	if t.Code == payment.CodeIdempotencyConflict || t.State == accepted {
		return
	}
	switch {
	case t.Replayed && len(d.arrivals) == 1:
		j.brokenf("G2", d.key(), "the only request was answered as a repeat")
	case !t.Replayed:
		if firsts[d.id]++; firsts[d.id] > 1 {
			j.brokenf("G2", d.key(), "the edge answered two requests as if each were the first")
		}
	}
}

// answer judges by the status.
func (j *judge) answer(d *dossier, t *Told) {
	same := t.Sum == d.first().fingerprint
	switch {
	case t.Code == payment.CodeIdempotencyConflict && t.Status == http.StatusConflict:
		j.check("G8")
		if same {
			j.brokenf("G8", d.key(), "the edge says IDEMPOTENCY_CONFLICT, and the content is that of the first command")
		}
		return
	case t.Status == http.StatusAccepted && t.State == accepted:
		return
	case !same && !t.Looked:
		j.brokenf("G8", d.key(), "the edge answered %d %s to another content under the key", t.Status, t.Code)
		return
	}
	j.check("G2")
	switch t.Status {
	case http.StatusOK:
		j.outcomeTold(d, t)
	case http.StatusAccepted:
		if s := t.State; s != payment.Pending.String() && s != payment.Unknown.String() && s != payment.Review.String() {
			j.brokenf("G2", d.key(), "the edge answered 202, and says %s", s)
		}
	case http.StatusConflict, http.StatusUnprocessableEntity:
		j.refusalTold(d, t)
	default:
		j.brokenf("G5", d.key(), "the edge answered %d %s to a request that was right", t.Status, t.Code)
	}
}

// outcomeTold: the outcome is the one of the event.
func (j *judge) outcomeTold(d *dossier, t *Told) {
	ended := t.State == payment.Succeeded.String() || t.State == payment.Declined.String()
	switch {
	case t.Looked && t.State == payment.Rejected.String():
		if d.rejection() == nil {
			j.brokenf("G2", d.key(), "the edge says rejected, and no reply does")
		}
	case t.Looked && !ended: // what was known then
	case !ended:
		j.brokenf("G2", d.key(), "the edge answered 200 without an outcome: %s", t.State)
	case d.outcome == nil:
		j.brokenf("G2", d.key(), "the edge says %s, and there is no event of an outcome", t.State)
	case d.outcome.state.String() != t.State || d.outcome.reference != t.Reference:
		j.brokenf("G2", d.key(), "the edge says %s (%q), the event %s (%q)", t.State, t.Reference, d.outcome.state, d.outcome.reference)
	}
}

// refusalTold: the rejection is the one of the reply.
func (j *judge) refusalTold(d *dossier, t *Told) {
	r := d.rejection()
	if r == nil || r.code != t.Code {
		j.brokenf("G2", d.key(), "the edge says %s, and the replies %q", t.Code, d.rejectedAs())
		return
	}
	if (r.blockedBy == nil) != (t.BlockedBy == nil) || r.blockedBy != nil && *r.blockedBy != *t.BlockedBy {
		j.brokenf("G15", d.key(), "the edge names another payment in the way than the reply")
	}
}
