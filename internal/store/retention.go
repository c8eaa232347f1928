package store

import (
	"context"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/payment"
)

// RemoveExpired forgets what nothing can bring back (G14): payments that ended,
// and whose latest copy, were one to come, would be judged stale; and history,
// deliveries and callbacks as old as that. It works in small batches, each its own
// transaction, and returns the rows removed per table. A payment with an open
// review item stays.
func (s *Store) RemoveExpired(ctx context.Context, f payment.Freshness) (map[string]int64, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	// What KeepUntil adds to the latest of claim, end and issuedAt.
	keep := f.KeepUntil(now, time.Time{}, time.Time{}).Sub(now)
	removed := map[string]int64{}
	for _, step := range expirySteps {
		for {
			tag, err := s.pool.Exec(ctx, step.sql, keep, removeBatch)
			if err != nil {
				return removed, fmt.Errorf("remove expired rows of %s: %w", step.table, err)
			}
			removed[step.table] += tag.RowsAffected()
			if tag.RowsAffected() < removeBatch {
				break
			}
		}
	}
	return removed, nil
}

const removeBatch = 1000

// The inner selects run once, as an array, so that nothing joins a big table; the
// statement's own time is a value that an index can be searched by.
var expirySteps = []struct{ table, sql string }{
	{"payments", `
WITH gone AS (DELETE FROM settleonce.payments WHERE id = ANY (ARRAY(
    SELECT p.id FROM settleonce.payments p
    WHERE p.created_at < statement_timestamp() - $1::interval AND p.state IN (4, 5, 6)
        AND greatest(p.created_at, p.ended_at, p.latest_issued_at) < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM settleonce.review_items r WHERE r.payment = ANY (ARRAY[p.id]) AND r.closed_at IS NULL)
    ORDER BY p.created_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING id),
names AS (DELETE FROM settleonce.provider_references r USING gone WHERE r.payment = ANY (ARRAY[gone.id]))
SELECT id FROM gone`},
	{"payment_history", `
DELETE FROM settleonce.payment_history WHERE ctid = ANY (ARRAY(
    SELECT h.ctid FROM settleonce.payment_history h
    WHERE h.at < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM settleonce.payments p WHERE p.id = ANY (ARRAY[h.payment]))
    LIMIT $2))`},
	{"deliveries", `
DELETE FROM settleonce.deliveries WHERE ctid = ANY (ARRAY(
    SELECT d.ctid FROM settleonce.deliveries d
    WHERE d.at < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM settleonce.payments p WHERE p.id = ANY (ARRAY[d.payment]))
    ORDER BY d.at LIMIT $2))`},
	{"callbacks", `
DELETE FROM settleonce.callbacks WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM settleonce.callbacks c
    WHERE c.received_at < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM settleonce.payments p WHERE p.id = ANY (ARRAY[c.payment]))
    ORDER BY c.received_at LIMIT $2))`},
	{"attempts", `
DELETE FROM settleonce.attempts WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM settleonce.attempts a
    WHERE a.closed_at < statement_timestamp() - $1::interval
        AND NOT EXISTS (SELECT FROM settleonce.payments p WHERE p.id = ANY (ARRAY[a.payment]))
    ORDER BY a.closed_at LIMIT $2))`},
}

func (s *Store) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := s.pool.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return now, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// Clock reads the database's clock, and says at which moment of this process it
// showed that, to about half a round trip. Durations counted from that moment are
// right whatever becomes of this process's own clock.
func (s *Store) Clock(ctx context.Context) (ours, theirs time.Time, err error) {
	before := time.Now()
	if theirs, err = s.now(ctx); err != nil {
		return ours, theirs, err
	}
	return before.Add(time.Since(before) / 2), theirs, nil
}
