package check

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/payment"
)

// PermitRow is what the history tells of the permits of a payment that was declined.
type PermitRow struct {
	// Before counts the sends that were permitted before the decline, After those that
	// were permitted behind it. Rows of one payment are written under its lock, so their
	// order is that of the transactions.
	Before, After int
}

// permitted is the cause of a history row that permits a send.
const permitted = "send permitted"

// readPermits reads the history of declined payments that were claimed here: it starts
// with the claim, which permits the first send where the channel takes one. An end is a
// version of its own, so that a clock which was set back puts no permit behind it.
func (d *Database) readPermits(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT h.payment, h.state, h.send, coalesce(h.cause, '')
		FROM settleonce.payment_history h JOIN settleonce.payments p ON p.id = h.payment WHERE p.state = $1 ORDER BY h.payment, h.version, h.at`, int16(payment.Declined))
	if err != nil {
		return err
	}
	d.Permits = map[uuid.UUID]PermitRow{}
	var id, last uuid.UUID
	var state, send int16
	var cause string
	ended := false
	_, err = pgx.ForEachRow(rows, []any{&id, &state, &send, &cause}, func() error {
		p, first := d.Permits[id], id != last
		if last = id; first {
			ended = false
		}
		switch {
		case cause == permitted && ended:
			p.After++
		case cause == permitted, first && send > 0 && payment.State(state) == payment.Pending:
			p.Before++
		case payment.State(state) == payment.Declined:
			ended = true
		}
		d.Permits[id] = p
		return nil
	})
	return err
}

// permitted judges by the permits, and reports whether they say it all. They do not
// where some may have been lost.
func (j *judge) permitted(d *dossier) bool {
	if j.rules.Database == nil {
		return false
	}
	p, known := j.rules.Database.Permits[d.id]
	switch n := d.requests(); {
	case !known:
		return false
	case p.After > 0:
		j.brokenf("G4", d.key(), "a send was permitted after the decline")
	case n > p.Before && j.forgotten(d):
		return false
	case n > p.Before:
		j.brokenf("G4", d.key(), "the channel was asked %d times, and %d sends were permitted before the decline", n, p.Before)
	}
	return true
}

// forgotten reports whether the database may have lost commits about a payment: those
// before a failover, whether somebody has acknowledged it or not. Then its history lacks
// what the channel saw, and the channel was asked before a first send.
func (j *judge) forgotten(d *dossier) bool {
	db := j.rules.Database
	return db != nil && (db.Suspect != "" || d.first().at.Before(db.Recovered))
}

// arrivesLate is how much later than a decline a request may arrive that was permitted
// before it: where failures are pinned, a query or another send may conclude first. It
// counts only where the permits cannot be seen, and holds for the usual settings: a
// send starts within a third of the lease, 10 s, and ends with its timeout, 10 s later;
// the rest is for the network and the channel.
const arrivesLate = 30 * time.Second

// leftAlone: nothing is sent after a decline (G4). Each request has a permit of its own,
// and no permit comes after the decline; so there are no more requests than permits
// before it, whenever they arrive. A worker may be frozen with a permit in its hands,
// and a network hold a request, for any time: the clock proves nothing.
func (j *judge) leftAlone(d *dossier) {
	if j.permitted(d) {
		return
	}
	for _, c := range d.entries() {
		if c.LastAt.After(d.outcome.occurredAt.Add(arrivesLate)) {
			j.brokenf("G4", d.key(), "the channel was asked again after the decline")
		}
	}
}
