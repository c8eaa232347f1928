package check

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// arrival: every record ends in a reply or a dead letter (G5), repeats get what
// the first was told (G2), other content is refused (G8).
func (j *judge) arrival(v *arrival) {
	j.check("G5")
	at := placeOf(v.record).String()
	switch {
	case v.dossier == nil:
		j.buried(v, string(v.record.Key))
	case j.foreign(v.dossier):
		j.check("G12")
		j.buried(v, v.dossier.key())
		if len(v.replies) > 0 {
			j.brokenf("G12", v.dossier.key(), "a command in a foreign caller's name was answered")
		}
	case !answered(v) && !j.waitsForOutcome(v) && !j.running(v.dossier):
		j.brokenf("G5", v.dossier.key(), "no reply and no dead letter for the record at %s", at)
	case v.number > 0:
		j.repeat(v)
	}
	for _, dead := range v.dead {
		if !bytes.Equal(dead.Value, v.record.Value) || (dead.Value == nil) != (v.record.Value == nil) || !bytes.Equal(dead.Key, v.record.Key) {
			j.brokenf("G5", string(v.record.Key), "the dead letter of %s has other bytes than the record", at)
		}
		if Header(dead, "dl_reason") == "" {
			j.brokenf("G5", string(v.record.Key), "the dead letter of %s names no reason", at)
		}
	}
}

// buried: what cannot be read is in the dead-letter topic.
func (j *judge) buried(v *arrival, key string) {
	if len(v.dead) == 0 {
		j.brokenf("G5", key, "the record at %s cannot be read and is not in the dead-letter topic", placeOf(v.record))
	}
}

// repeat judges a delivery that is not its payment's first one.
func (j *judge) repeat(v *arrival) {
	d := v.dossier
	if v.fingerprint != d.first().fingerprint {
		j.check("G8")
		for _, r := range v.replies {
			if r.Kind != payment.ReplyConflict || r.Code != payment.CodeIdempotencyConflict || r.Outcome != nil {
				j.brokenf("G8", d.key(), "other content under the key was answered %s instead of conflict, at %s", r.Kind, placeOf(r.record))
			}
		}
		return
	}
	j.check("G2")
	for _, r := range v.replies {
		switch r.Kind {
		case payment.ReplyPending, payment.ReplyReplayed, payment.ReplyRejected:
			if !r.Replayed {
				j.brokenf("G2", d.key(), "the answer to a repeat is not marked as replayed, at %s", placeOf(r.record))
			}
		default:
			j.brokenf("G2", d.key(), "a repeat was answered %s, at %s", r.Kind, placeOf(r.record))
		}
	}
}

// charge: the channel took the money once at most (G1), and never for what was
// rejected (G2) or not ours to charge (G12).
func (j *judge) charge(d *dossier) {
	c := d.charge
	if c == nil {
		return
	}
	j.check("G1")
	j.check("G6")
	if c.Settled > 1 {
		j.brokenf("G1", d.key(), "the channel took the money %d times", c.Settled)
	}
	if d.state() == payment.Rejected && c.Requests > 0 {
		j.brokenf("G2", d.key(), "rejected as %s, and yet the channel was asked %d times", d.rejectedAs(), c.Requests)
	}
	if j.foreign(d) {
		j.brokenf("G12", d.key(), "the channel was asked in the name of %s, who may not publish", d.identity.Caller)
	}
	if d.first().decoded.Err == nil {
		j.sameContent(d, c)
	}
}

func (j *judge) sameContent(d *dossier, c *sim.Charge) {
	first := d.command()
	if c.PaymentID != d.id.String() {
		j.brokenf("G6", d.key(), "the channel was asked about payment %s under a provider key of %s", c.PaymentID, d.id)
	}
	if c.Amount != first.Amount || c.Currency != first.Currency || c.Order != first.OrderID {
		j.brokenf("G8", d.key(), "the channel was asked for %d %s of %s, the first command says %d %s of %s",
			c.Amount, c.Currency, c.Order, first.Amount, first.Currency, first.OrderID)
	}
}

// evidence: an outcome agrees with the channel's own ledger (G3), and a declined
// payment was left alone (G4).
func (j *judge) evidence(d *dossier) {
	if d.outcome == nil {
		return
	}
	j.check("G3")
	c, o := d.charge, d.outcome
	switch o.State {
	case payment.Succeeded:
		switch {
		case c == nil || c.Settled == 0:
			j.brokenf("G3", d.key(), "succeeded, and the channel never took the money")
		case c.BookedAmount != o.Amount || c.BookedCurrency != o.Currency:
			j.brokenf("G3", d.key(), "succeeded over %d %s, and the channel booked %d %s", o.Amount, o.Currency, c.BookedAmount, c.BookedCurrency)
		case c.Reference != o.ProviderReference:
			j.brokenf("G3", d.key(), "the event's provider reference %q is not the ledger's %q", o.ProviderReference, c.Reference)
		}
	case payment.Declined:
		j.check("G4")
		switch {
		case d.settled() > 0:
			j.brokenf("G3", d.key(), "declined, and the channel took the money")
		case c == nil || c.Declined == 0:
			j.brokenf("G3", d.key(), "declined, and the channel never declined it")
		case c.LastAt.After(o.OccurredAt):
			j.brokenf("G4", d.key(), "the channel was asked again after the decline")
		}
	default:
	}
}

// sticky: after an outcome nothing changes (G9), and nothing contradicts it.
func (j *judge) sticky(d *dossier) {
	if d.outcome == nil {
		return
	}
	j.check("G9")
	for _, e := range d.events {
		switch {
		case e.kind == payment.EventEvidenceConflict:
			j.brokenf("G9", d.key(), "evidence contradicts the outcome %s", d.outcome.State)
		case e.Version > d.outcome.Version || (e.State.Terminal() && e.State != d.outcome.State):
			j.brokenf("G9", d.key(), "%s was followed by %s", d.outcome.kind, e.kind)
		}
	}
}

// order: versions of events rise by one, and a repeat follows its own original
// directly; replies never tell an older version after a newer one (G10).
func (j *judge) order(d *dossier) {
	last := &event{}
	for _, e := range d.events {
		j.check("G10")
		if last.record != nil && e.record.Partition != last.record.Partition {
			j.brokenf("G10", d.key(), "its events are in two partitions, %d and %d", last.record.Partition, e.record.Partition)
		}
		same := last.record != nil && Header(e.record, "ce_id") == Header(last.record, "ce_id")
		switch {
		case same && !bytes.Equal(e.record.Value, last.record.Value):
			j.brokenf("G10", d.key(), "an event was repeated with another content, at %s", placeOf(e.record))
		case same:
		case e.Version < last.Version:
			j.brokenf("G10", d.key(), "version %d of its events comes after version %d, at %s", e.Version, last.Version, placeOf(e.record))
		case e.Version == last.Version:
			j.brokenf("G10", d.key(), "two events have version %d, at %s", e.Version, placeOf(e.record))
		case e.Version > last.Version+1:
			j.brokenf("G5", d.key(), "its events have a gap before version %d, at %s", e.Version, placeOf(e.record))
		}
		last = e
	}
	version := 0
	for _, r := range d.replies {
		j.check("G10")
		if r.Version < version {
			j.brokenf("G10", d.key(), "a reply tells version %d after version %d, at %s", r.Version, version, placeOf(r.record))
		}
		version = r.Version
	}
}

// outcomes: whatever delivery is answered, the outcome is the same, and it is
// the one that the event tells (G2).
func (j *judge) outcomes(d *dossier) {
	var code payment.Code
	for _, r := range d.replies {
		if r.Caller != d.identity.Caller {
			j.brokenf("G12", d.key(), "a reply to %s names the caller %s", d.identity.Caller, r.Caller)
		}
		switch {
		case r.Kind == payment.ReplyConflict:
			continue
		case r.Kind == payment.ReplyRejected:
			if code = cmp.Or(code, r.Code); r.Code != code || d.outcome != nil && d.outcome.State != payment.Rejected {
				j.brokenf("G2", d.key(), "rejected as %s after it was %s", r.Code, cmp.Or(string(code), "settled"))
			}
			continue
		case code != "":
			j.brokenf("G2", d.key(), "answered %s after it was rejected as %s", r.Kind, code)
		}
		if r.Outcome == nil {
			if r.Kind != payment.ReplyPending {
				j.brokenf("G2", d.key(), "the reply at %s is %s without an outcome", placeOf(r.record), r.Kind)
			}
			continue
		}
		if d.outcome == nil && j.running(d) {
			continue // its event is on its way
		}
		if d.outcome == nil || !tells(r.Outcome, d.outcome) {
			j.brokenf("G2", d.key(), "the reply at %s tells another outcome (%s, %q) than the event", placeOf(r.record), r.Outcome.State, r.Outcome.ProviderReference)
		}
	}
}

func tells(o *payment.Outcome, e *event) bool {
	return o.State == e.State && o.ProviderReference == e.ProviderReference && o.Cause == e.Cause && o.OccurredAt.Equal(e.OccurredAt)
}

// ended: a command has an end, and its first delivery is told it (G5).
func (j *judge) ended(d *dossier) {
	if j.foreign(d) {
		if len(d.events) > 0 {
			j.brokenf("G12", d.key(), "a payment of %s has events, who may not publish", d.identity.Caller)
		}
		return
	}
	state := d.state()
	if j.running(d) {
		return
	}
	if state == 0 && len(d.first().dead) > 0 {
		return // buried: the database cannot hold it
	}
	if !state.Terminal() && state != payment.Review {
		j.brokenf("G5", d.key(), "no outcome, no rejection, not in review: %s", stateName(state))
		return
	}
	if !state.Terminal() {
		return
	}
	want := payment.ReplyOutcome
	if state == payment.Rejected {
		want = payment.ReplyRejected
	}
	told := slices.ContainsFunc(d.first().replies, func(r *reply) bool { return r.Kind == want })
	if !told && len(d.first().dead) == 0 {
		j.brokenf("G5", d.key(), "%s, and the first delivery was never told", state)
	}
}
