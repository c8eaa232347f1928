// Package downstream is the service behind settleonce in a torture run: it applies
// each payment event once, through consumer/inbox and nothing else of ours, in a
// database of its own.
//
// It is as careless as the inbox allows: whatever it is handed it applies, the last
// event wins, and it counts. So a message that is applied twice, out of order or not
// at all shows in its tables, which internal/check reads.
package downstream

import (
	"context"
	_ "embed" // for downstream.sql
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/consumer/inbox"
)

const (
	// Name is the consumer's, and its group's after the prefix.
	Name = "downstream"
	// Topic is what it consumes, without prefix.
	Topic = "payment.events"
)

// maxConns is fewer than there are partitions: what waits for a connection is applied
// in larger batches.
const maxConns = 4

//go:embed downstream.sql
var tables string

// Migrate makes the tables, and those of the inbox, in the service's own database.
// It may be run again, and by one process at a time.
func Migrate(ctx context.Context, dsn string) error {
	if err := inbox.Migrate(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to the downstream database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, tables); err != nil {
		return fmt.Errorf("make the downstream tables: %w", err)
	}
	return nil
}

// Config is one process of the service.
type Config struct {
	// DSN is the service's own database, with the tables of Migrate. Required.
	DSN string
	// Brokers are the bootstrap addresses of Kafka, "host:port" each. Required.
	Brokers []string
	// Prefix stands before the names of topic and group. Defaults to none.
	Prefix string
	// SessionTimeout is how long the group waits for a silent member. Defaults to the
	// inbox's, 10 s.
	SessionTimeout time.Duration
	// Logger is told what the inbox tells. The zero value discards.
	Logger zerolog.Logger
}

// Run applies events until ctx ends, and then returns nil. An error says that the
// process must be started again.
func Run(ctx context.Context, cfg Config) error {
	settings, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return fmt.Errorf("read the address of the downstream database: %w", err)
	}
	settings.MaxConns = maxConns
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return fmt.Errorf("connect to the downstream database: %w", err)
	}
	defer pool.Close()
	in, err := inbox.New(inbox.Config{
		Name: Name, Topics: []string{Topic}, Handler: Apply, Pool: pool, Brokers: cfg.Brokers, Prefix: cfg.Prefix,
		SessionTimeout: cfg.SessionTimeout, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	return errors.Join(in.Run(ctx), in.Close(context.WithoutCancel(ctx)))
}

// One statement for each event. The row of the payment is written first, so that two
// applications to a payment are numbered in the order of their commits.
const applySQL = `WITH believed AS (
    INSERT INTO downstream.payments AS p (payment, state, version, event, times) VALUES ($1, $2, $3, $4, 1)
    ON CONFLICT (payment) DO UPDATE SET state = EXCLUDED.state, version = EXCLUDED.version, event = EXCLUDED.event, times = p.times + 1
    RETURNING payment)
INSERT INTO downstream.applied (event, payment, version) SELECT $4, payment, $3 FROM believed`

// Apply is the inbox's handler.
func Apply(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
	event, err := m.Event()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, applySQL, event.PaymentID, event.State.String(), event.Version, m.ID); err != nil {
		return fmt.Errorf("apply event %s: %w", m.ID, err)
	}
	return nil
}
