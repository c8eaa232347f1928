package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// PickDue leases up to limit open payments whose next check has come and that
// nobody works on, the longest overdue first, and returns their ids. Rows that
// another worker is picking are skipped. Time is the database's. grace leaves
// rows alone that became due less than that ago: their wake-up may be near.
func (s *Store) PickDue(ctx context.Context, lease int64, leaseFor, grace time.Duration, limit int) ([]uuid.UUID, error) {
	const pick = `
WITH due AS MATERIALIZED (SELECT payment FROM settleonce.open_payments
    WHERE next_check_at <= statement_timestamp() - $3::interval AND lease_until <= statement_timestamp()
    ORDER BY next_check_at LIMIT $4 FOR UPDATE SKIP LOCKED)
UPDATE settleonce.open_payments o SET lease = $1, lease_until = clock_timestamp() + $2::interval,
    next_check_at = clock_timestamp() + $2::interval
FROM due WHERE o.payment = ANY (ARRAY[due.payment])
RETURNING o.payment`
	return s.pick(ctx, pick, lease, leaseFor, grace, limit)
}

// Wake is a wake-up for one re-query, as a delay topic delivers it.
type Wake struct {
	Payment uuid.UUID
	Query   int
}

// PickWoken leases those of the woken payments whose announced re-query is still
// the next one and is due. A wake-up that comes twice, late or early picks
// nothing: the truth is the row.
func (s *Store) PickWoken(ctx context.Context, lease int64, leaseFor time.Duration, woken []Wake) ([]uuid.UUID, error) {
	ids, queries := make([]pgtype.UUID, len(woken)), make([]int16, len(woken))
	for i, w := range woken {
		ids[i], queries[i] = pgUUID(w.Payment), int16(w.Query)
	}
	const pick = `
WITH due AS MATERIALIZED (SELECT p.payment FROM unnest($3::uuid[], $4::smallint[]) AS u(id, query)
    CROSS JOIN LATERAL (SELECT payment FROM settleonce.open_payments
        WHERE payment = u.id AND queries = u.query - 1 AND next_check_at <= statement_timestamp()
            AND lease_until <= statement_timestamp() FOR UPDATE SKIP LOCKED) AS p)
UPDATE settleonce.open_payments o SET lease = $1, lease_until = clock_timestamp() + $2::interval,
    next_check_at = clock_timestamp() + $2::interval
FROM due WHERE o.payment = ANY (ARRAY[due.payment])
RETURNING o.payment`
	return s.pick(ctx, pick, lease, leaseFor, ids, queries)
}

// pickTimeout bounds one try where the network is silent: the server ends the statement
// itself before that.
const pickTimeout = 20 * time.Second

func (s *Store) pick(ctx context.Context, sql string, arguments ...any) ([]uuid.UUID, error) {
	var picked []uuid.UUID
	err := retry(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, pickTimeout)
		defer cancel()
		rows, err := s.pool.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
		picked = make([]uuid.UUID, len(ids))
		for i, id := range ids {
			picked[i] = id.Bytes
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pick due payments: %w", err)
	}
	return picked, nil
}

// Read returns the payments as they are now, without a lock. Ids that are not
// there are left out.
func (s *Store) Read(ctx context.Context, ids []uuid.UUID) ([]Locked, error) {
	rows, err := s.pool.Query(ctx, readLockedWithGround, pgUUIDs(ids))
	if err != nil {
		return nil, fmt.Errorf("read payments: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Locked, error) { return scanLocked(row) })
	if err != nil {
		return nil, fmt.Errorf("read payments: %w", err)
	}
	return out, nil
}
