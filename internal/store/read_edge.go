package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// What the HTTP edge reads. It never reads without the id or the caller, so no
// caller can be shown another one's payment (G12).

// shownColumns are those of a payment that its caller may be shown, and what
// tells whether a delivery was the first one and of the same content.
const shownColumns = `p.id, p.caller, p.operation, p.idempotency_key, p.fingerprint, p.fingerprint_version, p.obligation,
    p.order_id, p.follows, p.amount, p.currency, p.customer_id, p.channel, p.state, p.version, p.attempt, p.sends,
    coalesce(p.provider_reference, ''), coalesce(p.cause, ''), coalesce(p.detail, ''), p.blocked_by, p.origin_topic,
    p.origin_partition, p.origin_offset, p.issued_at, p.created_at, p.updated_at, p.ended_at`

const lookSQL = `SELECT ` + shownColumns + `
FROM unnest($1::uuid[]) AS u(id) JOIN settleonce.payments p ON p.id = ANY (ARRAY[u.id])`

// Look returns those of the payments that were claimed, as they are now and in
// any order. Metadata, payment method and the provider's keys are left out.
func (s *Store) Look(ctx context.Context, ids []uuid.UUID) ([]Payment, error) {
	rows, err := s.pool.Query(ctx, lookSQL, pgUUIDs(ids))
	if err != nil {
		return nil, fmt.Errorf("look at payments: %w", err)
	}
	return collectShown(rows, "look at payments")
}

func collectShown(rows pgx.Rows, doing string) ([]Payment, error) {
	out, err := pgx.CollectRows(rows, scanShown)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return out, nil
}

func scanShown(row pgx.CollectableRow) (Payment, error) {
	var p Payment
	var id, key, follows, blocked pgtype.UUID
	var sum []byte
	var ended pgtype.Timestamptz
	err := row.Scan(&id, &p.Identity.Caller, &p.Identity.Operation, &key, &sum, &p.Fingerprint.Version, &p.Obligation,
		&p.OrderID, &follows, &p.Amount, &p.Currency, &p.CustomerID, &p.Channel, &p.State, &p.Version, &p.Attempt, &p.Sends,
		&p.ProviderReference, &p.Cause, &p.Detail, &blocked, &p.Origin.Topic,
		&p.Origin.Partition, &p.Origin.Offset, &p.IssuedAt, &p.CreatedAt, &p.UpdatedAt, &ended)
	p.ID, p.Identity.Key, p.Follows, p.BlockedBy = id.Bytes, key.Bytes, uuidPointer(follows), uuidPointer(blocked)
	p.EndedAt = ended.Time
	copy(p.Fingerprint.Sum[:], sum)
	return p, err
}

// OrderQuery asks for the payments of an order.
type OrderQuery struct {
	// Caller is whose payments they are.
	Caller string
	// Namespaces are those that the caller's obligations may have been in.
	Namespaces []string
	OrderID    string
	// Before leaves out that payment and every later one; the zero value starts
	// with the latest.
	Before Mark
	// Limit is the most payments to return.
	Limit int
}

// Mark is a payment's place in the order of claims.
type Mark struct {
	At time.Time
	ID uuid.UUID
}

// orderSQL finds payments whose obligation is the order by the index over
// obligations, and the others by one that has only them.
//
//nolint:unqueryvet // what is shown is chosen outside of the union
const orderSQL = `SELECT ` + shownColumns + ` FROM (
    SELECT * FROM settleonce.payments
    WHERE obligation_hash = ANY ($1::bigint[]) AND obligation = order_id AND caller = $2 AND order_id = $3
    UNION ALL
    SELECT * FROM settleonce.payments
    WHERE hashtextextended(order_id, hashtextextended(caller, 0)) = hashtextextended($3::text, hashtextextended($2::text, 0))
        AND (obligation_hash IS NULL OR obligation <> order_id) AND caller = $2 AND order_id = $3
) AS p
WHERE $4::timestamptz IS NULL OR (p.created_at, p.id) < ($4, $5::uuid)
ORDER BY p.created_at DESC, p.id DESC LIMIT $6`

// PaymentsOfOrder returns a caller's payments of an order, the latest first.
func (s *Store) PaymentsOfOrder(ctx context.Context, q OrderQuery) ([]Payment, error) {
	hashes := make([]int64, 0, len(q.Namespaces))
	for _, namespace := range q.Namespaces {
		hashes = append(hashes, obligationHash(namespace, q.OrderID))
	}
	slices.Sort(hashes)
	before := pgtype.Timestamptz{Time: q.Before.At, Valid: !q.Before.At.IsZero()}
	rows, err := s.pool.Query(ctx, orderSQL, slices.Compact(hashes), q.Caller, q.OrderID, before, pgUUID(q.Before.ID), q.Limit)
	if err != nil {
		return nil, fmt.Errorf("read the payments of an order: %w", err)
	}
	return collectShown(rows, "read the payments of an order")
}

// Story returns a payment with the latest entries of its history and of what its
// deliveries were told, at most `most` of each and the earliest first, or
// ErrNotFound. Open is not set.
func (s *Store) Story(ctx context.Context, id uuid.UUID, most int) (Status, error) {
	found, err := s.Look(ctx, []uuid.UUID{id})
	if err != nil {
		return Status{}, err
	}
	if len(found) == 0 {
		return Status{}, ErrNotFound
	}
	st := Status{Payment: found[0]}
	if st.History, err = s.history(ctx, &st.Payment, most); err != nil {
		return Status{}, err
	}
	st.Deliveries, err = s.deliveries(ctx, id, most)
	return st, err
}
