package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/kafka"
)

type roundResult struct {
	claimed, published int
}

// round claims, publishes and deletes one batch. With an error, what it did not
// delete stays and is published again.
func (o *OutboxPublisher) round(ctx context.Context) (roundResult, error) {
	// Ending in the middle would leave everything unknown for no reason.
	work, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), o.cfg.PublishTimeout+statementTime,
		errors.New("outbox round took too long"))
	defer cancel()
	tx, err := o.pool.Begin(ctx)
	if err != nil {
		return roundResult{}, fmt.Errorf("begin outbox round: %w", err)
	}
	defer func() { _ = tx.Rollback(work) }() // no effect after the commit
	rows, err := o.claim(work, tx)
	if err != nil || len(rows) == 0 {
		return roundResult{}, err
	}
	batch, err := o.sort(work, tx, rows)
	if err != nil {
		return roundResult{}, err
	}
	done, refused, publishErr := o.publish(work, batch)
	for seq, reason := range refused {
		if err := o.park(work, tx, seq, reason); err != nil {
			return roundResult{}, err
		}
	}
	if _, err := tx.Exec(work, deleteSQL, done); err != nil {
		return roundResult{}, fmt.Errorf("delete %d published commands: %w", len(done), err)
	}
	if err := tx.Commit(work); err != nil {
		return roundResult{}, fmt.Errorf("commit outbox round: %w", err)
	}
	return roundResult{claimed: len(rows), published: len(done)}, publishErr
}

func (o *OutboxPublisher) claim(ctx context.Context, tx pgx.Tx) ([]outboxRow, error) {
	limit := fmt.Sprintf("%dms", (o.cfg.PublishTimeout + statementTime).Milliseconds())
	batch := &pgx.Batch{}
	batch.Queue(limitIdleSQL, limit)
	if again := o.deferred.again(time.Now(), o.cfg.BatchSize); len(again) > 0 {
		batch.Queue(reclaimSQL, o.cfg.BatchSize, again)
	} else {
		batch.Queue(claimSQL, o.cfg.BatchSize, o.deferred.waiting())
	}
	results := tx.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // an error shows in what was read before
	if _, err := results.Exec(); err != nil {
		return nil, fmt.Errorf("limit outbox round: %w", err)
	}
	found, err := results.Query()
	if err != nil {
		return nil, fmt.Errorf("claim commands: %w", err)
	}
	rows, err := pgx.CollectRows(found, func(r pgx.CollectableRow) (outboxRow, error) {
		var row outboxRow
		err := r.Scan(&row.seq, &row.id, &row.aggregateType, &row.aggregateID, &row.ceType, &row.payload, &row.createdAt)
		return row, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim commands: %w", err)
	}
	return rows, nil
}

type outboxBatch struct {
	seqs     []int64
	messages []kafka.Message
}

// sort tells the rows that can be published from those that cannot, and parks the
// latter: one bad row must not hold up the others, nor get lost.
func (o *OutboxPublisher) sort(ctx context.Context, tx pgx.Tx, rows []outboxRow) (outboxBatch, error) {
	var batch outboxBatch
	for i := range rows {
		row := &rows[i]
		message, err := row.message(o.producer)
		if err == nil {
			batch.seqs = append(batch.seqs, row.seq)
			batch.messages = append(batch.messages, message)
			continue
		}
		if err := o.park(ctx, tx, row.seq, err); err != nil {
			return outboxBatch{}, err
		}
	}
	return batch, nil
}

func (o *OutboxPublisher) park(ctx context.Context, tx pgx.Tx, seq int64, reason error) error {
	if _, err := tx.Exec(ctx, parkSQL, seq, reason.Error()); err != nil {
		return fmt.Errorf("park outbox row %d: %w", seq, err)
	}
	o.log.Error().Err(reason).Int64("seq", seq).
		Msg("outbox row cannot be published and was parked, correct it and set parked_reason to null")
	return nil
}

// publish returns the rows that all in-sync replicas have, those that the topic
// will never take as they are, and an error that covers all but the first.
func (o *OutboxPublisher) publish(ctx context.Context, batch outboxBatch) (done []int64, refused map[int64]error, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.cfg.PublishTimeout, errors.New("no answer from Kafka in time"))
	defer cancel()
	if err = o.producer.publisher.Publish(ctx, batch.messages...); err == nil {
		return batch.seqs, nil, nil
	}
	var each kafka.PublishErrors
	if !errors.As(err, &each) || len(each) != len(batch.seqs) {
		return nil, nil, err
	}
	var failed []int64
	refused = make(map[int64]error)
	for i, seq := range batch.seqs {
		switch {
		case each[i] == nil:
			done = append(done, seq)
		case errors.Is(each[i], kafka.ErrMessageTooLarge):
			refused[seq], each[i] = each[i], nil // it is told where it is parked
		default:
			failed = append(failed, seq)
		}
	}
	if len(failed) == 0 {
		return done, refused, nil
	}
	o.deferred.add(time.Now(), failed)
	return done, refused, err
}
