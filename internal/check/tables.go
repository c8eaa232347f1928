package check

import (
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

const (
	// overdue is how long a check or a message may be late before it counts as
	// stuck.
	overdue = 2 * time.Minute
	// farOff is longer than any pause between two checks.
	farOff = 48 * time.Hour
)

// tables holds what the database says against itself, the topics and the ledger.
func (j *judge) tables() {
	db := j.rules.Database
	if db == nil {
		return
	}
	if db.Suspect != "" {
		j.brokenf("G1", "", "the database may have lost commits: %s", db.Suspect)
	}
	pending := make(map[uuid.UUID]bool, len(db.Outbox))
	for i := range db.Outbox {
		pending[db.Outbox[i].ID] = true
		j.onItsWay(&db.Outbox[i])
	}
	for i := range db.Payments {
		p := &db.Payments[i]
		if p.Imported {
			j.importedRow(p)
			continue
		}
		j.row(p)
		j.published(p, pending)
		j.permits(p)
	}
	j.holds()
	j.offsets()
}

// onItsWay: a message is published soon, or somebody has to look (G5).
func (j *judge) onItsWay(o *OutboxRow) {
	j.check("G5")
	switch age := j.rules.Database.At.Sub(o.CreatedAt); {
	case o.Parked != "":
		j.brokenf("G5", o.Key, "a message to %s is parked: %s", o.Topic, o.Parked)
	case age > overdue || j.rules.Running == nil:
		j.brokenf("G5", o.Key, "a message to %s waits in the outbox for %s", o.Topic, age.Round(time.Second))
	}
}

// row: an unresolved payment will be looked at again, and an ended one will not
// (G5, G9).
func (j *judge) row(p *PaymentRow) {
	j.check("G9")
	db, key := j.rules.Database, p.Identity.Key.String()
	open, isOpen := db.Open[p.ID]
	switch {
	case p.State.Terminal() && isOpen:
		j.brokenf("G9", key, "%s, and still among the open payments", p.State)
	case !p.State.Terminal() && !isOpen:
		j.brokenf("G5", key, "%s, and nothing will ever look at it again", p.State)
	case isOpen && (open.Never || open.NextCheckAt.After(db.At.Add(farOff))):
		j.brokenf("G5", key, "%s, and its next check is never", p.State)
	case isOpen && open.NextCheckAt.Before(db.At.Add(-overdue)):
		j.brokenf("G5", key, "%s, and its check is late by %s", p.State, db.At.Sub(open.NextCheckAt).Round(time.Second))
	}
	if want := p.Identity.ProviderKey(p.Attempt); p.ProviderKey != want {
		j.brokenf("G1", key, "its provider key is %s, and attempt %d has %s", p.ProviderKey, p.Attempt, want)
	}
	j.history(p)
}

// importedRow: one that ended is not open, and one that did not waits for a person,
// a callback or a later import, if not for its next check (G5, G9).
func (j *judge) importedRow(p *PaymentRow) {
	j.check("G9")
	key := p.Identity.Key.String()
	switch _, isOpen := j.rules.Database.Open[p.ID]; {
	case p.State.Terminal() && isOpen:
		j.brokenf("G9", key, "%s, and still among the open payments", p.State)
	case !p.State.Terminal() && !isOpen:
		j.brokenf("G5", key, "%s, and nothing will ever look at it again", p.State)
	}
	j.history(p)
}

// history: it knows one end, that of the row (G9).
func (j *judge) history(p *PaymentRow) {
	ends, key := j.rules.Database.Ends[p.ID], p.Identity.Key.String()
	for _, end := range ends {
		if end != ends[0] {
			j.brokenf("G9", key, "its history says %s and then %s", ends[0], end)
			break
		}
	}
	if p.State.Terminal() && len(ends) > 0 && ends[0] != p.State {
		j.brokenf("G9", key, "its row says %s, its history %s", p.State, ends[0])
	}
}

// published: each version of a payment has its event, in the topic or on its way,
// and the topic tells the same end as the row (G5, G7).
func (j *judge) published(p *PaymentRow, pending map[uuid.UUID]bool) {
	key := p.Identity.Key.String()
	d, ok := j.evidence.known(p.ID)
	if !ok {
		if !j.rules.Incomplete {
			j.brokenf("G6", key, "the database has a payment that no command in the topic asked for")
		}
		return
	}
	j.check("G7")
	seen := map[int]bool{}
	for _, e := range d.events {
		seen[e.version] = true
	}
	for version := 1; version <= p.Version && !j.rules.Incomplete; version++ {
		if !seen[version] && !awaited(p.ID, version, pending) {
			j.brokenf("G5", key, "the event of version %d is neither in the topic nor on its way", version)
		}
	}
	switch {
	case d.outcome == nil:
	case p.State.Terminal() && p.State != d.outcome.state:
		j.brokenf("G7", key, "the database says %s, the event %s", p.State, d.outcome.state)
	case p.State.Terminal() && p.Reference != d.outcome.reference:
		j.brokenf("G7", key, "the database says reference %q, the event %q", p.Reference, d.outcome.reference)
	case !p.State.Terminal() && j.rules.Running == nil:
		j.brokenf("G7", key, "an event says %s, the database %s", d.outcome.state, p.State)
	}
}

var eventTypes = []payment.EventType{
	payment.EventAccepted, payment.EventSucceeded, payment.EventDeclined, payment.EventRejected, payment.EventUnknown,
	payment.EventReviewRequired, payment.EventEvidenceConflict,
}

// awaited reports whether the event of a version is in the outbox.
func awaited(id uuid.UUID, version int, pending map[uuid.UUID]bool) bool {
	for _, kind := range eventTypes {
		if pending[payment.EventID(id, version, kind)] {
			return true
		}
	}
	return false
}

// permits: what the channel executed was claimed and permitted before, request by
// request (G1, G6). What it turned away (429, 401) gave its permit back.
func (j *judge) permits(p *PaymentRow) {
	d, ok := j.evidence.known(p.ID)
	if !ok || d.charge == nil {
		return
	}
	j.check("G6")
	executions := 0
	for _, c := range d.entries() {
		executions += c.Executions
	}
	if executions > p.Sends && (p.State.Terminal() || j.rules.Running == nil) {
		j.brokenf("G1", p.Identity.Key.String(), "the channel executed %d requests with %d permits", executions, p.Sends)
	}
}

// holds: an unresolved payment holds its obligation, and nothing else does (G15).
func (j *judge) holds() {
	db := j.rules.Database
	held := make(map[uuid.UUID]bool, len(db.Holds))
	for _, h := range db.Holds {
		j.check("G15")
		held[h.Payment] = true
		if _, ok := db.Open[h.Payment]; !ok {
			j.brokenf("G15", "", "the obligation %s of %s is held by payment %s, which is not open", h.Obligation, h.Namespace, h.Payment)
		}
	}
	for id := range db.Open {
		if !held[id] && !j.imported[id] { // imported reviews block by an item each
			j.brokenf("G15", "", "payment %s is open and does not hold its obligation", id)
		}
	}
	if j.rules.Running != nil || j.rules.Incomplete {
		return
	}
	known := make(map[uuid.UUID]bool, len(db.Payments))
	for i := range db.Payments {
		known[db.Payments[i].ID] = true
	}
	for _, d := range j.evidence.dossiers {
		if d.requests() > 0 && !known[d.id] {
			j.brokenf("G6", d.key(), "the channel was asked, and the database does not know the payment")
		}
	}
}

// offsets: what Kafka says was consumed is durably claimed, and exists (G11).
func (j *judge) offsets() {
	for _, o := range j.evidence.Offsets {
		j.check("G11")
		stored, ok := j.rules.Database.Stored[o.Topic][o.Partition]
		switch {
		case o.Committed > o.End:
			j.brokenf("G11", "", "%s/%d: offset %d is committed, and the topic ends at %d", o.Topic, o.Partition, o.Committed, o.End)
		case o.Committed > 0 && (!ok || stored < o.Committed):
			j.brokenf("G11", "", "%s/%d: offset %d is committed, and the database has claimed up to %d", o.Topic, o.Partition, o.Committed, stored)
		case stored > o.End:
			j.brokenf("G11", "", "%s/%d: the database has claimed up to %d, and the topic ends at %d", o.Topic, o.Partition, stored, o.End)
		}
	}
}
