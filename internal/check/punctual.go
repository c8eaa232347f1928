package check

import (
	"time"

	"github.com/settleonce/settleonce/payment"
)

const (
	// clockSlack is by how much the clocks of broker, database and channel may
	// differ.
	clockSlack = 250 * time.Millisecond
	// underWay is how long a query that an earlier holder of the payment made may
	// still reach the channel: it was frozen with the query in its hands.
	underWay = 4 * time.Second
	// silent is shorter than any lease: for so long a worker that lives is not silent about
	// what it sent.
	silent = 5 * time.Second
)

// stored is when, at the latest, an announcement was stored: its due time lies a
// tier and some jitter after that, by the database's clock. The clock of the relay
// that published it may be anywhere.
func (q *requery) stored() time.Time {
	if q.query < 1 || q.query > len(payment.Tiers) {
		return q.due
	}
	return q.due.Add(-payment.Tiers[q.query-1])
}

// punctual: no re-query ran before its time (G13). The next re-query is announced
// by the transaction that records the one before, so that one must have been due.
func (j *judge) punctual(d *dossier) {
	for i := range d.requeries {
		next := &d.requeries[i]
		if next.query < 2 {
			continue
		}
		j.check("G13")
		known, early := false, true
		for k := range d.requeries {
			q := &d.requeries[k]
			if q.attempt == next.attempt && q.query == next.query-1 && !q.stored().After(next.stored().Add(clockSlack)) {
				known = true
				early = early && next.stored().Add(clockSlack).Before(q.due)
			}
		}
		if known && early && !j.prompted(d, next.stored()) {
			j.brokenf("G13", d.key(), "re-query %d ran before its time", next.query-1)
		}
	}
	j.askedEarly(d)
}

// askedEarly holds the times at which the channel was asked against what was
// announced: before the first re-query is due nobody asks, and between the
// announcement of a later one and its time only who had asked before. Where
// commits may be lost, a payment is asked about before its first send; after a
// decline that is not concluded, once its sends are dead.
func (j *judge) askedEarly(d *dossier) {
	if d.charge == nil || len(d.others) > 0 || j.forgotten(d) {
		return
	}
	if _, prompted := j.rules.Prompted[d.charge.channel]; prompted {
		return
	}
	first := d.firstDue()
	for _, at := range d.charge.QueriedAt {
		if j.prompted(d, at) {
			continue
		}
		j.check("G13")
		if first != far && at.Before(first.Add(-clockSlack)) && !d.leftBehind(first, at) {
			j.brokenf("G13", d.key(), "the channel was asked %s before the first re-query was due", first.Sub(at).Round(time.Millisecond))
			return
		}
		if q := d.tooEarlyFor(at); q != nil {
			j.brokenf("G13", d.key(), "the channel was asked %s before re-query %d was due", q.due.Sub(at).Round(time.Millisecond), q.query)
			return
		}
	}
}

// prompted reports whether a callback may have been the reason to ask then: it makes
// us ask at once.
func (j *judge) prompted(d *dossier, at time.Time) bool {
	for _, c := range j.heard[d.id] {
		if !c.ReceivedAt.After(at.Add(clockSlack)) {
			return true
		}
	}
	return false
}

// firstDue is when the first re-query was due, far where none was announced.
func (d *dossier) firstDue() time.Time {
	first := far
	for i := range d.requeries {
		if q := &d.requeries[i]; q.query == 1 && q.due.Before(first) {
			first = q.due
		}
	}
	return first
}

// leftBehind reports whether the first re-query was announced so long after the send that
// the sender's lease may have been over: another worker asks then, and its query may
// arrive behind the announcement of a sender that goes on after all.
func (d *dossier) leftBehind(first, at time.Time) bool {
	announced := first.Add(-payment.Tiers[0])
	return announced.Sub(d.charge.FirstAt) > silent && at.Before(announced.Add(underWay))
}

// tooEarlyFor is a later re-query that was announced by then and not due, nil
// without any.
func (d *dossier) tooEarlyFor(at time.Time) *requery {
	for i := range d.requeries {
		q := &d.requeries[i]
		if q.query > 1 && d.charge.Declined == 0 && at.After(q.stored().Add(underWay)) && at.Before(q.due.Add(-clockSlack)) {
			return q
		}
	}
	return nil
}
