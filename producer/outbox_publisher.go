package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
)

// Rows are claimed by row lock, so a publisher that dies gives them back with its
// connection. The scan starts at the oldest row every time: a remembered position
// would pass over a row whose transaction committed late.
const (
	claimSQL = `SELECT seq, id, aggregatetype, aggregateid, type, payload, created_at FROM settleonce_outbox.commands
WHERE parked_reason IS NULL AND seq <> ALL($2::bigint[]) ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`
	reclaimSQL = `SELECT seq, id, aggregatetype, aggregateid, type, payload, created_at FROM settleonce_outbox.commands
WHERE parked_reason IS NULL AND seq = ANY($2::bigint[]) ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED`
	deleteSQL = `DELETE FROM settleonce_outbox.commands WHERE seq = ANY($1::bigint[])`
	parkSQL   = `UPDATE settleonce_outbox.commands SET parked_reason = $2 WHERE seq = $1`
	// A frozen publisher must not keep its rows from the others for ever: the
	// server ends its session, which frees them.
	limitIdleSQL = `SELECT set_config('idle_in_transaction_session_timeout', $1, true)`
)

const (
	// statementTime is what a round's own statements may take beside the publish.
	statementTime = 10 * time.Second
	backoffMin    = 200 * time.Millisecond
	backoffMax    = 30 * time.Second
)

// OutboxConfig tunes an OutboxPublisher. The zero value is usable.
type OutboxConfig struct {
	// BatchSize is the most commands in one round, at most 1000. Defaults to 500.
	BatchSize int
	// PollInterval is how long an empty outbox is left alone: the most that a
	// command waits for the publisher. Defaults to 100 ms.
	PollInterval time.Duration
	// PublishTimeout bounds the wait for Kafka in one round; commands that are not
	// acknowledged by then are published again. Make it longer than the
	// producer's Attempts × Timeout. Defaults to 20 s.
	PublishTimeout time.Duration
	// Logger is told of rounds that failed and of rows that were parked. The zero
	// value discards.
	Logger zerolog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c OutboxConfig) WithDefaults() OutboxConfig {
	if c.BatchSize == 0 {
		c.BatchSize = 500
	}
	if c.PollInterval == 0 {
		c.PollInterval = 100 * time.Millisecond
	}
	if c.PublishTimeout == 0 {
		c.PublishTimeout = 20 * time.Second
	}
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c OutboxConfig) Validate() error {
	switch {
	case c.BatchSize < 1 || c.BatchSize > 1000:
		return fmt.Errorf("outbox batch size %d is out of range, use 1 to 1000", c.BatchSize)
	case c.PollInterval < time.Millisecond:
		return fmt.Errorf("outbox poll interval %s is too short, use 1 ms or more", c.PollInterval)
	case c.PublishTimeout < time.Second:
		return fmt.Errorf("outbox publish timeout %s is too short, use 1 s or more", c.PublishTimeout)
	}
	return nil
}

// OutboxPublisher sends what EnqueueTx and EnqueueMessageTx stored: at least once, oldest first, and
// deletes a row once all in-sync replicas have its command. Any number may run on
// one table; each row is handled by one of them at a time.
//
// A crash between publish and delete publishes again, with the same key: the
// payment is not charged again (G1), its outcome is repeated (G2). Order between
// rows is best effort, and need not be more: commands of one key are retries of
// one intent, equal but for accidents that end as a conflict in any order (G8),
// and of different keys for one obligation the time of the intent decides, not
// that of the arrival (G15).
//
// A row that is neither (written by hand) is parked: parked_reason says why,
// the others go on. Correct the row and set parked_reason to null to go on with it.
type OutboxPublisher struct {
	pool     *pgxpool.Pool
	producer *Producer
	cfg      OutboxConfig
	log      zerolog.Logger
	deferred *deferral
}

// NewOutboxPublisher returns a publisher that reads from pool, one connection at
// a time, and sends with producer. Both stay the caller's to close, after Run has
// returned.
func NewOutboxPublisher(pool *pgxpool.Pool, producer *Producer, cfg OutboxConfig) (*OutboxPublisher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure outbox publisher: %w", err)
	}
	if pool == nil || producer == nil {
		return nil, errors.New("configure outbox publisher: it needs a pool and a producer, pass both")
	}
	log := cfg.Logger.With().Str("component", "command-outbox").Logger()
	return &OutboxPublisher{pool: pool, producer: producer, cfg: cfg, log: log, deferred: newDeferral()}, nil
}

// Run publishes until ctx ends, and then returns nil. Call it once. It finishes the round under
// way first, which takes at most PublishTimeout and some seconds. Errors of the
// database and of Kafka are logged and tried again with growing pauses.
func (o *OutboxPublisher) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		result, err := o.round(ctx)
		if err != nil && ctx.Err() == nil {
			o.log.Warn().Err(err).Int("published", result.published).
				Msg("outbox round failed, its commands stay and are published again")
		}
		switch {
		case err != nil && result.published == 0:
			failures++
			wait(ctx, backoff(failures))
		case result.claimed < o.cfg.BatchSize:
			failures = 0
			wait(ctx, o.cfg.PollInterval)
		default:
			failures = 0
		}
	}
	return nil
}

func backoff(failures int) time.Duration {
	pause := backoffMin << min(failures-1, 10)
	return rand.N(min(pause, backoffMax)) + backoffMin
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
