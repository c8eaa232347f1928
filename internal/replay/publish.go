package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
)

// ErrDone says that a replay has nothing left to do.
var ErrDone = errors.New("the replay is done already")

// Run publishes what is left of a replay, at most perSecond records a second (0:
// as fast as Kafka takes them), and returns how far it came. When ctx ends it
// stops, and can be run again later: from the last batch that was kept, so that a
// crash publishes some records twice, which their readers recognise.
func (p *Player) Run(ctx context.Context, r store.Replay, perSecond float64) (store.Replay, error) {
	if r.State == store.ReplayDone {
		return r, ErrDone
	}
	var s Selection
	if err := json.Unmarshal(r.Selection, &s); err != nil {
		return r, fmt.Errorf("read the replay's selection: %w", err)
	}
	publisher, err := p.cfg.Kafka.NewPublisher(kafka.PublisherConfig{Timeout: publishTimeout})
	if err != nil {
		return r, err
	}
	closing := context.WithoutCancel(ctx)
	defer func() {
		closing, cancel := context.WithTimeout(closing, closeTimeout)
		defer cancel()
		_ = publisher.Close(closing) // everything was acknowledged, or reported
	}()
	limit := rate.NewLimiter(rate.Inf, 1)
	if perSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(perSecond), batchSize)
	}
	r.State = store.ReplayRunning
	err = p.read(ctx, &s, r.Positions, func(batch []kafka.Record) error {
		if err := publish(ctx, publisher, limit, &r, batch); err != nil {
			return err
		}
		r.Published += int64(len(batch))
		return nil
	}, func() error { return p.cfg.Store.KeepReplay(ctx, &r) })
	r.State = store.ReplayDone
	if err != nil {
		r.State = store.ReplayStopped
	}
	keeping, cancel := context.WithTimeout(closing, closeTimeout)
	defer cancel()
	return r, errors.Join(err, p.cfg.Store.KeepReplay(keeping, &r))
}

const (
	closeTimeout = 10 * time.Second
	// publishTimeout bounds one attempt: nobody waits for a replay as for a payment, and it
	// should outlast a broker that pauses.
	publishTimeout = 30 * time.Second
)

// publish sends a batch, record by record into the limit's pace.
func publish(ctx context.Context, publisher *kafka.Publisher, limit *rate.Limiter, r *store.Replay, batch []kafka.Record) error {
	if limit.Limit() != rate.Inf {
		if err := limit.WaitN(ctx, len(batch)); err != nil {
			return fmt.Errorf("wait for the rate limit: %w", err)
		}
	}
	messages := make([]kafka.Message, len(batch))
	for i := range batch {
		messages[i] = again(&batch[i], r)
	}
	if err := publisher.Publish(ctx, messages...); err != nil {
		return fmt.Errorf("publish %d records of %s again: %w", len(batch), r.Topic, err)
	}
	return nil
}

// again is the record as it is published once more: unchanged, with the replay's
// id in a header.
func again(record *kafka.Record, r *store.Replay) kafka.Message {
	headers := slices.DeleteFunc(slices.Clone(record.Headers), func(h kafka.Header) bool { return h.Key == Header })
	headers = append(headers, kafka.Header{Key: Header, Value: []byte(r.ID.String())})
	return kafka.Message{Topic: r.Topic, Key: record.Key, Value: record.Value, Headers: headers}
}
