// Package receipt mails a receipt for each accepted order.
//
// A mail is an effect outside the database: no transaction can hold it. So the
// inbox only stores the wish to send, once, with an identity; a sender brings it to
// the gateway, and again under the same identity whenever the answer was lost. A
// gateway that knows its Message-Ids delivers each once. One that does not may
// deliver twice, and then the job says so: nobody is promised what cannot be kept.
package receipt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/examples/shop/order"
)

const table = `CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.receipts (
    n           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id  uuid        NOT NULL,                     -- derived from the order: the mail's identity, in every try
    order_id    text        NOT NULL,
    customer    text        NOT NULL,
    tries       integer     NOT NULL DEFAULT 0,           -- begun: counted before the gateway is called
    sent_at     timestamptz,
    maybe_twice boolean     NOT NULL DEFAULT false,       -- tried again at a gateway that forgets
    due_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS receipts_due ON shop.receipts (due_at) WHERE sent_at IS NULL`

// Migrate makes the table. It may be run again.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, table)
	return err
}

// Note is the inbox's handler: it writes down that a receipt is to be sent.
func Note(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
	d, err := order.Accepted(m)
	if d == nil || err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO shop.receipts (message_id, order_id, customer) VALUES ($1, $2, $3)", m.ID, d.Order, d.Customer)
	return err
}

// Sender brings receipts to the gateway.
type Sender struct {
	Pool *pgxpool.Pool
	// Gateway is the address of its /mails.
	Gateway string
	// Dedupes says that the gateway delivers a Message-Id once.
	Dedupes bool
	Log     zerolog.Logger
}

const (
	sendTimeout = 3 * time.Second
	// again is after how long a try without an answer is made again: longer than a
	// try can take.
	again = 5 * time.Second
	idle  = 100 * time.Millisecond
)

// beginSQL counts a try before it is made, and puts the next one off: a sender
// that dies leaves the job to the others, and no two have it at once.
const beginSQL = `UPDATE shop.receipts SET tries = tries + 1, due_at = clock_timestamp() + $2::interval, maybe_twice = maybe_twice OR (tries > 0 AND NOT $3)
	WHERE n = ANY (ARRAY(SELECT n FROM shop.receipts WHERE sent_at IS NULL AND due_at <= clock_timestamp() ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED))
	RETURNING n, message_id, order_id, customer`

// job is one mail.
type job struct {
	n        int64
	id       uuid.UUID
	order    string
	customer string
}

// Run sends until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	client := &http.Client{Timeout: sendTimeout}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		n, err := s.round(ctx, client)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn().Err(err).Msg("receipts not sent, trying again")
		}
		if n == 0 || err != nil {
			wait(ctx, idle)
		}
	}
	return nil
}

func (s *Sender) round(ctx context.Context, client *http.Client) (int, error) {
	const batch = 20
	rows, err := s.Pool.Query(ctx, beginSQL, batch, again, s.Dedupes)
	if err != nil {
		return 0, fmt.Errorf("begin receipts: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job, err error) {
		return j, row.Scan(&j.n, &j.id, &j.order, &j.customer)
	})
	if err != nil {
		return 0, fmt.Errorf("begin receipts: %w", err)
	}
	failures := make([]error, len(jobs))
	var all sync.WaitGroup
	for i := range jobs {
		all.Go(func() { failures[i] = s.send(ctx, client, &jobs[i]) })
	}
	all.Wait()
	var sent []int64
	for i, failure := range failures {
		if failure == nil {
			sent = append(sent, jobs[i].n)
		}
	}
	if _, err := s.Pool.Exec(context.WithoutCancel(ctx), "UPDATE shop.receipts SET sent_at = clock_timestamp() WHERE n = ANY ($1)", sent); err != nil {
		return len(jobs), fmt.Errorf("mark receipts as sent: %w", err)
	}
	return len(jobs), errors.Join(failures...)
}

func (s *Sender) send(ctx context.Context, client *http.Client, j *job) error {
	body := strings.NewReader("Dear " + j.customer + ", thank you for order " + j.order + ".")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Gateway, body)
	if err != nil {
		return fmt.Errorf("address the gateway: %w", err)
	}
	request.Header.Set("Message-Id", j.id.String())
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("send the receipt of order %s: %w", j.order, err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusAccepted {
		return fmt.Errorf("send the receipt of order %s: the gateway answers %s", j.order, response.Status)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
