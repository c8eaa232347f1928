package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ReviewCallback is a callback that matches no payment. Its item is not about a
// payment: it carries an id derived from channel and callback.
const ReviewCallback ReviewKind = "callback"

// ReviewItem is one thing for a person.
type ReviewItem struct {
	ID      int64      `json:"id"`
	Payment uuid.UUID  `json:"paymentId"`
	Kind    ReviewKind `json:"kind"`
	// Blocks says that it holds the obligation by itself: no new key is charged (G15).
	Blocks bool   `json:"blocks"`
	Reason string `json:"reason"`
	// Evidence is what the provider said, or the callback.
	Evidence json.RawMessage `json:"evidence,omitempty"`
	OpenedAt time.Time       `json:"openedAt"`
	// ClosedAt is nil while it is open; then Resolution and Actor say how it ended.
	ClosedAt   *time.Time `json:"closedAt,omitempty"`
	Resolution string     `json:"resolution,omitempty"`
	Actor      string     `json:"actor,omitempty"`
}

// ReviewFilter chooses review items. The zero value is all open ones.
type ReviewFilter struct {
	// ID is one item, open or closed.
	ID int64
	// Payment is one payment's, open or closed.
	Payment uuid.UUID
	Kind    ReviewKind
	// Channel and Caller are the payment's, or the callback's.
	Channel, Caller string
	// OlderThan leaves out what was opened later than that ago.
	OlderThan time.Duration
	// Limit is how many, the oldest first. Defaults to no limit.
	Limit int
}

const reviewItems = `
SELECT i.id, i.payment, i.kind, i.blocks, i.reason, i.evidence, i.opened_at, i.closed_at, coalesce(i.resolution, ''), coalesce(i.actor, '')
FROM settleonce.review_items i LEFT JOIN settleonce.payments p ON p.id = ANY (ARRAY[i.payment])
WHERE CASE WHEN $1::bigint > 0 THEN i.id = $1 WHEN $2::uuid IS NOT NULL THEN i.payment = $2 ELSE i.closed_at IS NULL END
    AND ($3 = '' OR i.kind = $3) AND ($4 = '' OR coalesce(p.channel, i.evidence->>'channel') = $4) AND ($5 = '' OR p.caller = $5)
    AND i.opened_at <= clock_timestamp() - $6::interval
ORDER BY i.opened_at, i.id LIMIT $7`

// ReviewItems returns the items of the filter, the oldest first.
func (s *Store) ReviewItems(ctx context.Context, f ReviewFilter) ([]ReviewItem, error) {
	limit := pgtype.Int8{Int64: int64(f.Limit), Valid: f.Limit > 0}
	rows, err := s.pool.Query(ctx, reviewItems, f.ID, orNull(f.Payment), string(f.Kind), f.Channel, f.Caller, f.OlderThan, limit)
	if err != nil {
		return nil, fmt.Errorf("read review items: %w", err)
	}
	items, err := pgx.CollectRows(rows, scanItem)
	if err != nil {
		return nil, fmt.Errorf("read review items: %w", err)
	}
	return items, nil
}

func scanItem(row pgx.CollectableRow) (ReviewItem, error) {
	var i ReviewItem
	var id pgtype.UUID
	var evidence []byte
	var closed pgtype.Timestamptz
	err := row.Scan(&i.ID, &id, &i.Kind, &i.Blocks, &i.Reason, &evidence, &i.OpenedAt, &closed, &i.Resolution, &i.Actor)
	i.Payment, i.Evidence, i.OpenedAt = id.Bytes, evidence, i.OpenedAt.UTC()
	if closed.Valid {
		at := closed.Time.UTC()
		i.ClosedAt = &at
	}
	return i, err
}

// ErrNoItem says that there is no review item of this id.
var ErrNoItem = errors.New("there is no review item with this id")

// ErrItemClosed says that a review item was closed before.
var ErrItemClosed = errors.New("the review item is closed already")

// ErrItemOfPayment says that an item is closed by its payment's outcome, and by
// nothing else.
var ErrItemOfPayment = errors.New("the item closes by itself when its payment ends")

// Settlement is what a person says about a conflict, or about a callback that
// matches nothing.
type Settlement struct {
	Operator

	// Second is the other person, where two are asked for.
	Second string
	// Evidence is what it rests on: the reference of a refund, say.
	Evidence string
}

// SettleItem closes an item of kind conflict or callback; the outcome of its payment
// stays what it is (G9). A conflict holds the obligation until then (G15). The errors
// are ErrNoItem, ErrItemClosed and ErrItemOfPayment; then nothing was changed.
func (s *Store) SettleItem(ctx context.Context, id int64, by Settlement) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		item, err := lockItem(ctx, tx, id)
		if err != nil {
			return err
		}
		resolution := "settled: " + clean(by.Reason)
		// The lock on the item's payment lets one of two operators through; the WHERE says so once more.
		tag, err := tx.Exec(ctx, `UPDATE settleonce.review_items SET closed_at = clock_timestamp(), resolution = $2, actor = $3
			WHERE id = $1 AND closed_at IS NULL AND kind IN ('conflict', 'callback')`, id, resolution, clean(by.Actor))
		if err != nil {
			return fmt.Errorf("close the item: %w", err)
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%w: somebody else was faster", ErrItemClosed)
		}
		if _, err := tx.Exec(ctx, noteSettled, pgUUID(item.Payment), fmt.Sprintf("review item %d %s", id, resolution), clean(by.Actor)); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
		return audit(ctx, tx, by.Actor, "settle", by.Reason, map[string]string{
			"payment": item.Payment.String(), "item": strconv.FormatInt(id, 10), "kind": string(item.Kind), "evidence": clean(by.Evidence), "second": clean(by.Second),
		})
	})
	if err != nil {
		return fmt.Errorf("settle review item %d: %w", id, err)
	}
	return nil
}

// noteSettled leaves a history row, and moves the time by which it is found; the
// payment's own columns stay. A callback's item has no payment, and no row.
const noteSettled = `
WITH p AS (UPDATE settleonce.payments SET updated_at = clock_timestamp() WHERE id = $1 RETURNING id, state, version, attempt, sends)
INSERT INTO settleonce.payment_history (payment, state, version, attempt, send, cause, actor)
SELECT id, state, version, attempt, sends, $2, $3 FROM p`

// lockItem locks the payment row first, as every change does.
func lockItem(ctx context.Context, tx pgx.Tx, id int64) (ReviewItem, error) {
	item := ReviewItem{ID: id}
	var payment pgtype.UUID
	var closed pgtype.Timestamptz
	err := tx.QueryRow(ctx, `SELECT payment FROM settleonce.review_items WHERE id = $1`, id).Scan(&payment)
	if errors.Is(err, pgx.ErrNoRows) {
		return item, ErrNoItem
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT FROM settleonce.payments WHERE id = $1 FOR NO KEY UPDATE`, payment)
	}
	if err == nil {
		// A later statement: it sees what the holder of the lock committed.
		err = tx.QueryRow(ctx, `SELECT kind, closed_at, coalesce(resolution, ''), coalesce(actor, '') FROM settleonce.review_items
			WHERE id = $1 FOR UPDATE`, id).Scan(&item.Kind, &closed, &item.Resolution, &item.Actor)
	}
	item.Payment = payment.Bytes
	switch {
	case err != nil:
		return item, fmt.Errorf("lock the item: %w", err)
	case closed.Valid:
		return item, fmt.Errorf("%w: %s, by %s at %s", ErrItemClosed, item.Resolution, item.Actor, closed.Time.UTC().Format(time.RFC3339))
	case item.Kind != ReviewConflict && item.Kind != ReviewCallback:
		return item, ErrItemOfPayment
	}
	return item, nil
}

// PastAttempt is an attempt that a later one followed.
type PastAttempt struct {
	Attempt     int       `json:"attempt"`
	ProviderKey uuid.UUID `json:"providerKey"`
	Sends       int       `json:"sends"`
	// Evidence is what showed that it was dead.
	Evidence string    `json:"evidence"`
	Actor    string    `json:"actor"`
	Reason   string    `json:"reason"`
	ClosedAt time.Time `json:"closedAt"`
}

// PastAttempts returns the attempts of a payment before the latest, in their order.
func (s *Store) PastAttempts(ctx context.Context, id uuid.UUID) ([]PastAttempt, error) {
	rows, err := s.pool.Query(ctx, `SELECT attempt, provider_key, sends, evidence, actor, reason, closed_at
		FROM settleonce.attempts WHERE payment = $1 ORDER BY attempt`, pgUUID(id))
	if err != nil {
		return nil, fmt.Errorf("read past attempts: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (PastAttempt, error) {
		var a PastAttempt
		var key pgtype.UUID
		err := row.Scan(&a.Attempt, &key, &a.Sends, &a.Evidence, &a.Actor, &a.Reason, &a.ClosedAt)
		a.ProviderKey, a.ClosedAt = key.Bytes, a.ClosedAt.UTC()
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("read past attempts: %w", err)
	}
	return out, nil
}

// Ordered is one thing that an operator did to a payment.
type Ordered struct {
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	Reason string          `json:"reason"`
	Detail json.RawMessage `json:"detail,omitempty"`
}

// Orders returns what operators did to a payment, in its order.
func (s *Store) Orders(ctx context.Context, id uuid.UUID) ([]Ordered, error) {
	rows, err := s.pool.Query(ctx, `SELECT at, actor, action, reason, detail FROM settleonce.audit
		WHERE action IN ('attempt', 'resolve', 'confirm', 'requery', 'settle') AND detail->>'payment' = $1 ORDER BY id`, id.String())
	if err != nil {
		return nil, fmt.Errorf("read what operators did: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Ordered, error) {
		var o Ordered
		var detail []byte
		err := row.Scan(&o.At, &o.Actor, &o.Action, &o.Reason, &detail)
		o.At, o.Detail = o.At.UTC(), detail
		return o, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what operators did: %w", err)
	}
	return out, nil
}

// Imported reports whether the payment was brought in from an older system: nobody
// here knows how it was sent.
func (p *Payment) Imported() bool { return strings.HasPrefix(p.Origin.Topic, importedTopic) }
