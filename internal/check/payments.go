package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/settleonce/settleonce/payment"
)

// arrival: every record ends in a reply or a dead letter (G5), repeats get what
// the first was told (G2), other content is refused (G8).
func (j *judge) arrival(v *arrival) {
	j.check("G5")
	key := v.key
	if v.dossier != nil {
		key = v.dossier.key()
	}
	switch {
	case j.forged[v.seal()] != nil, j.late(v):
		j.refusedRecord(v, key)
	case v.dossier == nil:
		j.buried(v, key)
	case j.foreign(v.dossier):
		j.check("G12")
		j.buried(v, key)
		if len(v.replies) > 0 {
			j.brokenf("G12", key, "a command in a foreign caller's name was answered")
		}
	case !answered(v) && !j.waitsForOutcome(v) && !j.running(v.dossier):
		j.brokenf("G5", key, "no reply and no dead letter for the record at %s", v.place)
	case v.number > 0:
		j.repeat(v)
	}
	j.letters(v, key)
}

// letters: a dead letter is the record, with the reason, and what is too old has one.
func (j *judge) letters(v *arrival, key string) {
	for _, dead := range v.dead {
		if dead.sum != v.sum {
			j.brokenf("G5", key, "the dead letter of %s has other bytes than the record", v.place)
		}
		if dead.reason == "" {
			j.brokenf("G5", key, "the dead letter of %s names no reason", v.place)
		}
	}
	if slices.ContainsFunc(v.replies, tooOld) && len(v.dead) == 0 && len(v.dossier.events) == 0 && !j.running(v.dossier) {
		j.brokenf("G14", key, "rejected as too old, and the record at %s is not in the dead-letter topic", v.place)
	}
}

// tooOld reports whether the reply rejects its own delivery for its age. What was
// parked and is too old by its permit has an event instead of a dead letter.
func tooOld(r *reply) bool { return r.code == payment.CodeStaleCommand && !r.replayed }

// buried: what cannot be read is in the dead-letter topic.
func (j *judge) buried(v *arrival, key string) {
	if len(v.dead) == 0 && !j.fresh(v) {
		j.brokenf("G5", key, "the record at %s cannot be read and is not in the dead-letter topic", v.place)
	}
}

// repeat judges a delivery that is not its payment's first one.
func (j *judge) repeat(v *arrival) {
	d := v.dossier
	if v.fingerprint != d.first().fingerprint {
		j.check("G8")
		for _, r := range v.replies {
			if r.kind != payment.ReplyConflict || r.code != payment.CodeIdempotencyConflict || r.outcome != nil {
				j.brokenf("G8", d.key(), "other content under the key was answered %s instead of conflict, at %s", r.kind, r.place)
			}
		}
		return
	}
	j.check("G2")
	for _, r := range v.replies {
		switch r.kind {
		case payment.ReplyPending, payment.ReplyReplayed, payment.ReplyRejected:
			if !r.replayed {
				j.brokenf("G2", d.key(), "the answer to a repeat is not marked as replayed, at %s", r.place)
			}
		default:
			j.brokenf("G2", d.key(), "a repeat was answered %s, at %s", r.kind, r.place)
		}
	}
}

// charge: the channel took the money once at most (G1), and never for what was
// rejected (G2) or not ours to charge (G12).
func (j *judge) charge(d *dossier) {
	if d.charge == nil {
		return
	}
	j.check("G1")
	j.check("G6")
	if n := d.settled(); n > 1 {
		j.brokenf("G1", d.key(), "the channel took the money %d times", n)
	}
	if n := d.requests(); d.state() == payment.Rejected && n > 0 {
		j.brokenf("G2", d.key(), "rejected as %s, and yet the channel was asked %d times", d.rejectedAs(), n)
	}
	if j.foreign(d) {
		j.brokenf("G12", d.key(), "the channel was asked in the name of %s, who may not publish", d.identity.Caller)
	}
	if j.late(d.first()) {
		j.brokenf("G12", d.key(), "the channel was asked by a command of %s that was published after it was shut out", d.identity.Caller)
	}
	for _, c := range d.entries() {
		j.sameContent(d, c)
	}
	j.stale(d)
}

func (j *judge) sameContent(d *dossier, c *entry) {
	if c.PaymentID != d.id.String() {
		j.brokenf("G6", d.key(), "the channel was asked about payment %s under a provider key of %s", c.PaymentID, d.id)
	}
	first := d.asked
	if first == nil {
		return
	}
	if c.Amount != first.amount || c.Currency != first.currency || c.Order != first.orderID {
		j.brokenf("G8", d.key(), "the channel was asked for %d %s of %s, the first command says %d %s of %s",
			c.Amount, c.Currency, c.Order, first.amount, first.currency, first.orderID)
	}
	if c.channel != "" && c.channel != first.channel {
		j.brokenf("G8", d.key(), "the channel %s was asked, the first command says %s", c.channel, first.channel)
	}
}

// stale: what was too old, or too far in the future, was not charged (G14). A key
// of which older deliveries may be gone is not judged.
func (j *judge) stale(d *dossier) {
	if d.asked == nil || j.rules.Window == 0 || j.rules.Incomplete {
		return
	}
	issued := d.asked.issuedAt
	if !issued.After(d.first().at.Add(-j.rules.Window).Add(-clockSlack)) {
		j.check("G14")
		j.brokenf("G14", d.key(), "charged, though it was issued %s before it was delivered", d.first().at.Sub(issued).Round(time.Second))
	}
	if issued.After(d.askedFirst().Add(j.rules.Skew).Add(clockSlack)) {
		j.check("G14")
		j.brokenf("G14", d.key(), "charged %s before it was issued", issued.Sub(d.askedFirst()).Round(time.Second))
	}
}

// evident: an outcome agrees with the channel's own ledger (G3), and a declined
// payment was left alone (G4).
func (j *judge) evident(d *dossier) {
	if d.outcome == nil || j.blind(d) {
		return
	}
	switch d.outcome.state {
	case payment.Succeeded:
		j.check("G3")
		j.paid(d)
	case payment.Declined:
		j.check("G3")
		j.check("G4")
		j.declined(d)
	default:
	}
}

func (j *judge) paid(d *dossier) {
	c, o := d.paid(), d.outcome
	switch {
	case c == nil:
		j.brokenf("G3", d.key(), "succeeded, and the channel never took the money")
	case c.BookedAmount != o.amount || c.BookedCurrency != o.currency:
		j.brokenf("G3", d.key(), "succeeded over %d %s, and the channel booked %d %s", o.amount, o.currency, c.BookedAmount, c.BookedCurrency)
	case c.Reference != o.reference:
		j.brokenf("G3", d.key(), "the event's provider reference %q is not the ledger's %q", o.reference, c.Reference)
	}
}

func (j *judge) declined(d *dossier) {
	declines := 0
	for _, c := range d.entries() {
		declines += c.Declined
	}
	j.leftAlone(d)
	switch {
	case d.settled() > 0:
		j.brokenf("G3", d.key(), "declined, and the channel took the money")
	case declines == 0:
		j.brokenf("G3", d.key(), "declined, and the channel never declined it")
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
			j.brokenf("G9", d.key(), "evidence contradicts the outcome %s", d.outcome.state)
		case e.version > d.outcome.version || (e.state.Terminal() && e.state != d.outcome.state):
			j.brokenf("G9", d.key(), "%s was followed by %s", d.outcome.kind, e.kind)
		}
	}
}

// order: versions of events rise by one, and a repeat follows its own original
// directly; replies never tell an older version after a newer one (G10).
func (j *judge) order(d *dossier) {
	var last *event
	for _, e := range d.events {
		j.check("G10")
		j.follows(d, last, e)
		last = e
	}
	version := 0
	for _, r := range d.replies {
		j.check("G10")
		if r.version < version {
			j.brokenf("G10", d.key(), "a reply tells version %d after version %d, at %s", r.version, version, r.place)
		}
		version = r.version
	}
}

// follows judges an event by the one before it in the topic, nil for the first.
func (j *judge) follows(d *dossier, last, e *event) {
	version := 0
	if last != nil {
		version = last.version
		if e.lane != last.lane {
			j.brokenf("G10", d.key(), "its events are in two partitions, %d and %d", last.partition, e.partition)
		}
		if e.id == last.id {
			if e.sum != last.sum {
				j.brokenf("G10", d.key(), "an event was repeated with another content, at %s", e.place)
			}
			return
		}
	}
	switch {
	case last != nil && e.version < version:
		j.brokenf("G10", d.key(), "version %d of its events comes after version %d, at %s", e.version, version, e.place)
	case last != nil && e.version == version:
		j.brokenf("G10", d.key(), "two events have version %d, at %s", e.version, e.place)
	case e.version > version+1:
		j.brokenf("G5", d.key(), "its events have a gap before version %d, at %s", e.version, e.place)
	}
}

// outcomes: whatever delivery is answered, the outcome is the same, and it is
// the one that the event tells (G2).
func (j *judge) outcomes(d *dossier) {
	var code payment.Code
	for _, r := range d.replies {
		if r.caller != d.identity.Caller {
			j.brokenf("G12", d.key(), "a reply to %s names the caller %s", d.identity.Caller, r.caller)
		}
		switch {
		case r.kind == payment.ReplyConflict:
			continue
		case r.kind == payment.ReplyRejected:
			if code = cmp.Or(code, r.code); r.code != code || d.outcome != nil && d.outcome.state != payment.Rejected {
				j.brokenf("G2", d.key(), "rejected as %s after it was %s", r.code, cmp.Or(string(code), "settled"))
			}
			continue
		case code != "":
			j.brokenf("G2", d.key(), "answered %s after it was rejected as %s", r.kind, code)
		case r.kind == payment.ReplyPending && d.outcome != nil && r.version >= d.outcome.version:
			j.brokenf("G2", d.key(), "answered pending after it was %s, at %s", d.outcome.state, r.place)
		}
		j.sameOutcome(d, r)
	}
}

// sameOutcome: a reply tells the outcome of the event, and has one unless it says
// pending.
func (j *judge) sameOutcome(d *dossier, r *reply) {
	switch {
	case r.outcome == nil:
		if r.kind != payment.ReplyPending {
			j.brokenf("G2", d.key(), "the reply at %s is %s without an outcome", r.place, r.kind)
		}
	case d.outcome == nil && j.running(d): // its event is on its way
	case d.outcome == nil || !tells(r.outcome, d.outcome):
		j.brokenf("G2", d.key(), "the reply at %s tells another outcome (%s, %q) than the event", r.place, r.outcome.State, r.outcome.ProviderReference)
	}
}

// delivered: what is told of a payment stands where its caller reads, and nobody
// else does (G12).
func (j *judge) delivered(d *dossier) {
	if j.rules.Topics == nil {
		return
	}
	caller := d.identity.Caller
	for _, r := range d.replies {
		if want := j.ownTopic(j.rules.Topics.Replies, caller); r.topic != want {
			j.brokenf("G12", d.key(), "a reply to %s is at %s, and not in %s", caller, r.place, want)
		}
	}
	for _, e := range d.events {
		if want := j.ownTopic(j.rules.Topics.Events, caller); e.topic != want {
			j.brokenf("G12", d.key(), "an event of %s is at %s, and not in %s", caller, e.place, want)
		}
	}
}

func tells(o *payment.Outcome, e *event) bool {
	return o.State == e.state && o.ProviderReference == e.reference && o.Cause == e.cause && o.OccurredAt.Equal(e.occurredAt)
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
	told := slices.ContainsFunc(d.first().replies, func(r *reply) bool { return r.kind == want })
	if !told && len(d.first().dead) == 0 {
		j.brokenf("G5", d.key(), "%s, and the first delivery was never told", state)
	}
}
