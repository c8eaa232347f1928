package check

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// readUnasked reads of which payments the history says that they went to review after
// three queries, and how many of those brought no answer at all: such a query may have
// been lost on its way. One with an answer, whatever it was, reached the channel.
func (d *Database) readUnasked(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT payment, count(*) FILTER (WHERE cause ~ 'query without an answer: (timeout|connection|cancelled)$')
		FROM settleonce.payment_history WHERE cause LIKE '%query without an answer: %' OR cause LIKE 'no answer after three queries%'
		GROUP BY payment HAVING bool_or(cause LIKE 'no answer after three queries%')`)
	if err != nil {
		return err
	}
	d.Unanswered = map[uuid.UUID]int{}
	var id uuid.UUID
	var lost int
	_, err = pgx.ForEachRow(rows, []any{&id, &lost}, func() error {
		d.Unanswered[id] = lost
		return nil
	})
	return err
}

// lookupsUnknown says why nothing is judged by what channels can always be asked.
const lookupsUnknown = "which channels can always be asked is not known here"

// queries is how often a payment is asked about before a person is.
const queries = 3

// askedEnough: a payment goes to a person after three queries that were really made, not
// after three that budget or breaker stopped (G13). A query reached the channel, which
// counts it, or was lost, which the history says: it had no answer. The channel counts
// those about a key that it knows, and since it was started: where a query may have come
// before the first send, nothing follows.
func (j *judge) askedEnough() {
	if j.rules.Database == nil {
		return
	}
	if len(j.rules.Lookups) == 0 && len(j.rules.Database.Unanswered) > 0 {
		j.unseen("G13", "whether three queries were made before a person was asked", lookupsUnknown)
	}
	for id, lost := range j.rules.Database.Unanswered {
		d, ok := j.evidence.known(id)
		if !ok || !j.countsQueries(d) {
			continue
		}
		j.check("G13")
		if got := d.charge.Queries; got+lost < queries {
			j.brokenf("G13", d.key(), "in review after %d queries: %d reached the channel, and %d were perhaps lost", queries, got, lost)
		}
	}
}

// countsQueries reports whether the channel counts each query about a payment that
// reaches it.
func (j *judge) countsQueries(d *dossier) bool {
	if j.forgotten(d) || j.imported[d.id] || d.charge == nil || len(d.others) > 0 || !slices.Contains(j.rules.Lookups, d.charge.channel) {
		return false
	}
	l := j.ledgerOf(d.charge.channel)
	return l != nil && !l.Load.Since.IsZero() && !d.charge.FirstAt.Before(l.Load.Since) && d.charge.FirstAt.Before(d.firstDue())
}

func (j *judge) ledgerOf(channel string) *Ledger {
	for i := range j.evidence.Ledgers {
		if j.evidence.Ledgers[i].Channel == channel {
			return &j.evidence.Ledgers[i]
		}
	}
	return nil
}
