package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/payment"
)

// Transition is one row of a payment's history.
type Transition struct {
	At                time.Time     `json:"at"`
	State             payment.State `json:"state"`
	Version           int           `json:"version"`
	Attempt           int           `json:"attempt"`
	Send              int           `json:"send"`
	RequestHash       string        `json:"requestHash,omitempty"`
	ProviderReference string        `json:"providerReference,omitempty"`
	Cause             string        `json:"cause,omitempty"`
	Actor             string        `json:"actor"`
}

// Told is what one delivery of the command was answered.
type Told struct {
	At        time.Time         `json:"at"`
	Topic     string            `json:"topic"`
	Partition int               `json:"partition"`
	Offset    int64             `json:"offset"`
	Kind      payment.ReplyKind `json:"kind"`
	Code      payment.Code      `json:"code,omitempty"`
	State     payment.State     `json:"state"`
	Version   int               `json:"version"`
}

// Status is a payment with everything that happened to it.
type Status struct {
	Payment    Payment
	Open       *Open
	History    []Transition
	Deliveries []Told
}

// ErrNotFound says that no payment has this key.
var ErrNotFound = errors.New("no payment has this key")

// Status returns one payment with its history and what each later delivery was
// told, or ErrNotFound.
func (s *Store) Status(ctx context.Context, id uuid.UUID) (Status, error) {
	found, err := s.Read(ctx, []uuid.UUID{id})
	if err != nil {
		return Status{}, err
	}
	if len(found) == 0 {
		return Status{}, ErrNotFound
	}
	st := Status{Payment: found[0].Payment, Open: found[0].Open}
	if st.History, err = s.history(ctx, &st.Payment, everything); err != nil {
		return Status{}, err
	}
	st.Deliveries, err = s.deliveries(ctx, id, everything)
	return st, err
}

// FindByKey returns the ids of the payments with this idempotency key, one per
// caller. Without a caller there is no index for it: it reads the whole table.
func (s *Store) FindByKey(ctx context.Context, key uuid.UUID) ([]uuid.UUID, error) {
	rows, err := s.pool.Query(ctx, `SELECT id FROM settleonce.payments WHERE idempotency_key = $1 LIMIT 100`, pgUUID(key))
	if err != nil {
		return nil, fmt.Errorf("find payments by key: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[pgtype.UUID])
	if err != nil {
		return nil, fmt.Errorf("find payments by key: %w", err)
	}
	out := make([]uuid.UUID, len(ids))
	for i, id := range ids {
		out[i] = id.Bytes
	}
	return out, nil
}

// everything is no limit.
const everything = math.MaxInt32

// history reads between the payment's first and last row: the time bounds make
// the BRIN index find them, at the cost of reading what all payments did in that
// time. A row is written in the transaction that changes the payment, so it is at
// most a statement's timeout younger. It returns the latest ones, at most that many.
func (s *Store) history(ctx context.Context, p *Payment, most int) ([]Transition, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT at, state, version, attempt, send, coalesce(request_hash, ''), coalesce(provider_reference, ''), coalesce(cause, ''), actor
		FROM settleonce.payment_history
		WHERE payment = $1 AND at BETWEEN $2::timestamptz - interval '1 second' AND $3::timestamptz + interval '15 seconds'
		ORDER BY at DESC LIMIT $4`,
		pgUUID(p.ID), p.CreatedAt, p.UpdatedAt, most)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	defer rows.Close()
	var out []Transition
	err = scanEach(rows, func() error {
		var t Transition
		err := rows.Scan(&t.At, &t.State, &t.Version, &t.Attempt, &t.Send, &t.RequestHash, &t.ProviderReference, &t.Cause, &t.Actor)
		out = append(out, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	slices.Reverse(out)
	return out, nil
}

func (s *Store) deliveries(ctx context.Context, id uuid.UUID, most int) ([]Told, error) {
	rows, err := s.pool.Query(ctx, `SELECT at, topic, partition, "offset", kind, coalesce(code, ''), state, version
		FROM settleonce.deliveries WHERE payment = $1 ORDER BY at DESC, "offset" DESC LIMIT $2`, pgUUID(id), most)
	if err != nil {
		return nil, fmt.Errorf("read the deliveries: %w", err)
	}
	defer rows.Close()
	var out []Told
	err = scanEach(rows, func() error {
		var t Told
		err := rows.Scan(&t.At, &t.Topic, &t.Partition, &t.Offset, &t.Kind, &t.Code, &t.State, &t.Version)
		out = append(out, t)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the deliveries: %w", err)
	}
	slices.Reverse(out)
	return out, nil
}
