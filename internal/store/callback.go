package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// Callback is a verified callback of a provider, as it is stored.
type Callback struct {
	// Channel it came in on.
	Channel string
	// Said is what the provider says. Its ID and the channel are its identity.
	Said channel.Callback
	// Body is the callback as it came in. Only StoreCallback looks at it.
	Body []byte
	// ReceivedAt is when it was stored, Age how long ago that was when it was
	// picked; both by the database's clock.
	ReceivedAt time.Time
	Age        time.Duration
	// Tries counts how often it was picked, this time included.
	Tries int
	// Reported says that a person was told that it matches nothing.
	Reported bool
}

const insertCallback = `
INSERT INTO settleonce.callbacks (channel, callback_id, kind, payment, provider_key, provider_reference, amount, currency,
    cause, occurred_at, body, next_check_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp())
ON CONFLICT DO NOTHING RETURNING received_at`

// StoreCallback stores a callback and its wake-up in one transaction, and reports
// whether it is new: a repeat changes nothing (P12). Only after it returned
// without an error is the callback durable, and may be acknowledged (P11). It
// needs no Kafka.
func (s *Store) StoreCallback(ctx context.Context, c Callback) (fresh bool, err error) {
	err = retry(ctx, func() error {
		fresh = false
		return s.inTx(ctx, func(b *pgx.Batch) {
			said := &c.Said
			b.Queue(insertCallback, c.Channel, said.ID, string(said.Kind), orNull(said.PaymentID), orNull(said.ProviderKey),
				text(said.Reference), amount(said.Amount), text(said.Currency), text(said.Cause), timestamp(said.OccurredAt), c.Body,
			).Query(func(rows pgx.Rows) error {
				return scanEach(rows, func() error {
					fresh = true
					return rows.Scan(&c.ReceivedAt)
				})
			})
		}, func(b *pgx.Batch) error {
			if fresh {
				outbox.Queue(b, []outbox.Message{callbackMessage(s.topics, &c)})
			}
			return nil
		})
	})
	if err != nil {
		return false, fmt.Errorf("store a callback of channel %q: %w", c.Channel, err)
	}
	if fresh {
		s.wake()
	}
	return fresh, nil
}

func callbackMessage(topics payment.Topics, c *Callback) outbox.Message {
	m := payment.CallbackMessage{
		Channel: c.Channel, CallbackID: c.Said.ID, ProviderReference: c.Said.Reference, Kind: string(c.Said.Kind),
		Amount: c.Said.Amount, Currency: c.Said.Currency, Cause: c.Said.Cause, ReceivedAt: c.ReceivedAt,
	}
	key := c.Said.Reference
	if c.Said.ProviderKey != uuid.Nil {
		m.ProviderKey, key = &c.Said.ProviderKey, c.Said.ProviderKey.String()
	}
	out := outbox.Message{
		ID: payment.CallbackID(c.Channel, c.Said.ID), Topic: topics.Callbacks, Key: []byte(key),
		Type: payment.EventCallback, Payload: m.AppendJSON(nil),
	}
	if c.Said.PaymentID != uuid.Nil {
		out.Subject = c.Said.PaymentID.String()
	}
	return out
}

// pickCallbacks moves the next look of what it returns: if its worker dies, it
// comes again then.
const pickCallbacks = `
UPDATE settleonce.callbacks c SET next_check_at = clock_timestamp() + $1::interval, tries = tries + 1
WHERE c.ctid = ANY (ARRAY(SELECT ctid FROM settleonce.callbacks
    WHERE next_check_at <= statement_timestamp() ORDER BY next_check_at LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING channel, callback_id, kind, payment, provider_key, coalesce(provider_reference, ''), coalesce(amount, 0),
    coalesce(currency, ''), coalesce(cause, ''), occurred_at, received_at, clock_timestamp() - received_at, tries,
    coalesce(result, '') = '` + string(CallbackReported) + `'`

// PickCallbacks takes up to limit callbacks that something is still to be done
// about, the longest waiting first. They are not picked again within leaseFor.
func (s *Store) PickCallbacks(ctx context.Context, leaseFor time.Duration, limit int) ([]Callback, error) {
	var picked []Callback
	err := retry(ctx, func() error {
		rows, err := s.pool.Query(ctx, pickCallbacks, leaseFor, limit)
		if err != nil {
			return err
		}
		picked, err = pgx.CollectRows(rows, scanCallback)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pick callbacks: %w", err)
	}
	return picked, nil
}

func scanCallback(row pgx.CollectableRow) (Callback, error) {
	var c Callback
	var id, key pgtype.UUID
	var occurred pgtype.Timestamptz
	said := &c.Said
	err := row.Scan(&c.Channel, &said.ID, &said.Kind, &id, &key, &said.Reference, &said.Amount, &said.Currency, &said.Cause,
		&occurred, &c.ReceivedAt, &c.Age, &c.Tries, &c.Reported)
	said.PaymentID, said.ProviderKey, said.OccurredAt = id.Bytes, key.Bytes, occurred.Time
	return c, err
}

// The open payments are few, so a callback that repeats our key, and not our
// payment, is looked for among all of them. Payments that ended are found by
// what provider_references knows.
const (
	matchOpen = `
SELECT o.channel, p.provider_key, coalesce(p.provider_reference, ''), coalesce(o.decline_reference, ''), o.payment
FROM (SELECT payment, channel, decline_reference FROM settleonce.open_payments WHERE channel = ANY ($1::text[]) LIMIT 100000) AS o
CROSS JOIN LATERAL (SELECT provider_key, provider_reference FROM settleonce.payments WHERE id = o.payment OFFSET 0) AS p
WHERE p.provider_key = ANY ($2::uuid[]) OR p.provider_reference = ANY ($3::text[]) OR o.decline_reference = ANY ($3::text[])`

	// A past attempt's key is in no column of its payment any more.
	matchAttempts = `
SELECT p.channel, a.provider_key, a.payment FROM settleonce.attempts a
JOIN settleonce.payments p ON p.id = ANY (ARRAY[a.payment])
WHERE a.provider_key = ANY ($1::uuid[]) AND p.channel = ANY ($2::text[])`

	matchReferences = `
SELECT r.channel, r.reference, r.payment FROM unnest($1::text[], $2::text[]) AS u(channel, reference)
JOIN settleonce.provider_references r ON r.channel = ANY (ARRAY[u.channel]) AND r.reference = ANY (ARRAY[u.reference])`
)

// name is one way in which a provider may call a payment.
type name struct{ channel, text string }

// MatchCallbacks says which payment each callback is about; uuid.Nil where none
// was found. It looks at what the callbacks repeat of ours, and at nothing that
// was not verified.
func (s *Store) MatchCallbacks(ctx context.Context, callbacks []Callback) ([]uuid.UUID, error) {
	found := make([]uuid.UUID, len(callbacks))
	var q matchQuery
	for i := range callbacks {
		if found[i] = callbacks[i].Said.PaymentID; found[i] == uuid.Nil {
			q.add(&callbacks[i])
		}
	}
	if len(q.names) == 0 {
		return found, nil
	}
	known, err := s.names(ctx, &q)
	if err != nil {
		return nil, fmt.Errorf("match callbacks: %w", err)
	}
	for i := range callbacks {
		for _, n := range namesOf(&callbacks[i]) {
			if found[i] == uuid.Nil {
				found[i] = known[n]
			}
		}
	}
	return found, nil
}

// namesOf are the names that a callback gives, the best first.
func namesOf(c *Callback) []name {
	var names []name
	if c.Said.ProviderKey != uuid.Nil {
		names = append(names, name{c.Channel, c.Said.ProviderKey.String()})
	}
	if c.Said.Reference != "" {
		names = append(names, name{c.Channel, c.Said.Reference})
	}
	return names
}

// matchQuery is what one look-up asks for.
type matchQuery struct {
	names      []name
	keys       []pgtype.UUID
	references []string
}

func (q *matchQuery) add(c *Callback) {
	q.names = append(q.names, namesOf(c)...)
	if c.Said.ProviderKey != uuid.Nil {
		q.keys = append(q.keys, pgUUID(c.Said.ProviderKey))
	}
	if c.Said.Reference != "" {
		q.references = append(q.references, c.Said.Reference)
	}
}

func (s *Store) names(ctx context.Context, q *matchQuery) (map[name]uuid.UUID, error) {
	channels, texts := make([]string, len(q.names)), make([]string, len(q.names))
	for i, n := range q.names {
		channels[i], texts[i] = n.channel, n.text
	}
	known := make(map[name]uuid.UUID)
	b := &pgx.Batch{}
	b.Queue(matchOpen, channels, q.keys, q.references).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			var channel, reference, declined string
			var key, id pgtype.UUID
			err := rows.Scan(&channel, &key, &reference, &declined, &id)
			for _, text := range []string{uuid.UUID(key.Bytes).String(), reference, declined} {
				known[name{channel, text}] = id.Bytes
			}
			return err
		})
	})
	b.Queue(matchAttempts, q.keys, channels).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			var channel string
			var key, id pgtype.UUID
			err := rows.Scan(&channel, &key, &id)
			known[name{channel, uuid.UUID(key.Bytes).String()}] = id.Bytes
			return err
		})
	})
	b.Queue(matchReferences, channels, texts).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			var n name
			var id pgtype.UUID
			err := rows.Scan(&n.channel, &n.text, &id)
			known[n] = id.Bytes
			return err
		})
	})
	return known, s.pool.SendBatch(ctx, b).Close()
}

func orNull(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }

func amount(n int64) pgtype.Int8 { return pgtype.Int8{Int64: n, Valid: n != 0} }
