package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// transactionTimeout only has to lie below the broker's maximum: no transaction
// is ever opened.
const transactionTimeout = time.Minute

// FencedProducer owns a transactional id: it publishes numbered batches that the
// broker stores once however often they are sent, and that it refuses once a
// newer owner of the id has written to the partition (G10). No transactions are
// involved; readers of any isolation level see the messages at once.
type FencedProducer struct {
	client *Client
	id     string
	serial uint64 // order in which several producers are locked

	producerID atomic.Int64
	epoch      atomic.Int32

	mu     sync.Mutex // held while publishing and renewing
	lanes  map[topicPartition]*lane
	broken error // publishes nothing until renewed: numbers may be in use that lanes do not know of
}

// lane is the numbering of one producer in one partition, in this epoch. One
// batch is under way at a time.
type lane struct {
	next    int32  // sequence of the next message
	acked   bool   // something was stored in this epoch
	pending *chunk // sent, outcome unknown: has to be sent again, unchanged, before anything else
}

// NewFencedProducer takes the transactional id over: it gets a new epoch, with
// which its first batch in a partition shuts every older owner out of that
// partition. A coordinator that is not ready is asked again until ctx ends.
// ErrUnauthorized says which rights are missing.
func (c *Client) NewFencedProducer(ctx context.Context, transactionalID string) (*FencedProducer, error) {
	if transactionalID == "" {
		return nil, errors.New("fenced producer: give it a transactional id")
	}
	return c.newProducer(ctx, transactionalID)
}

// newProducer makes a producer; without an id nobody can take its numbering over.
func (c *Client) newProducer(ctx context.Context, id string) (*FencedProducer, error) {
	p := &FencedProducer{client: c, id: id, serial: producerSerial.Add(1)}
	if err := p.Renew(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

var producerSerial atomic.Uint64 //nolint:gochecknoglobals // a process-wide lock order

// ProducerID is the id that the broker gave to the transactional id. It changes
// only when the broker forgot the transactional id, or used all epochs up.
func (p *FencedProducer) ProducerID() int64 { return p.producerID.Load() }

// Epoch is the producer's current epoch.
func (p *FencedProducer) Epoch() int16 { return int16(p.epoch.Load()) } //nolint:gosec // stored from an int16

// Renew takes a new epoch and numbers from the start; what was unresolved is
// forgotten. It waits for a publish under way. Call it daily, because plain
// batches do not keep a transactional id alive, and after ErrRenew, but only
// while the lease is known to hold: it shuts any other owner out.
func (p *FencedProducer) Renew(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for backoff := 25 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		session, err := p.client.initProducerID(ctx, p.id)
		if err == nil {
			p.producerID.Store(int64(session.ProducerID))
			p.epoch.Store(int32(session.ProducerEpoch)) //nolint:gosec // an int16 on the wire
			p.lanes = make(map[topicPartition]*lane)
			p.broken = nil
			return nil
		}
		if p.id != "" {
			err = fmt.Errorf("transactional id %q: %w", p.id, err)
		}
		err = fmt.Errorf("get a producer epoch: %w", err)
		if errors.Is(err, ErrUnauthorized) || errors.Is(err, kafkago.InvalidTransactionTimeout) || ctx.Err() != nil {
			return err
		}
		if sleep(ctx, backoff) != nil {
			return err
		}
	}
}

func (c *Client) initProducerID(ctx context.Context, id string) (*kafkago.ProducerSession, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.library().InitProducerID(ctx, &kafkago.InitProducerIDRequest{
		TransactionalID: id, TransactionTimeoutMs: int(transactionTimeout / time.Millisecond), ProducerID: -1, ProducerEpoch: -1,
	})
	if err == nil {
		err = res.Error
	}
	switch {
	case err == nil:
		return res.Producer, nil
	case errors.Is(err, kafkago.TransactionalIDAuthorizationFailed):
		return nil, fmt.Errorf("%w: grant Write and Describe on the transactional id: %w", ErrUnauthorized, err)
	case errors.Is(err, kafkago.ClusterAuthorizationFailed):
		return nil, fmt.Errorf("%w: grant Write on the topic, and before Kafka 3.0 IdempotentWrite on the cluster: %w", ErrUnauthorized, err)
	}
	return nil, c.explain(err)
}

// lane returns the producer's numbering in a partition; the lock is held.
func (p *FencedProducer) lane(tp topicPartition) *lane {
	l := p.lanes[tp]
	if l == nil {
		l = &lane{}
		p.lanes[tp] = l
	}
	return l
}

// after is the sequence n messages later; numbers wrap to 0 behind 2^31-1.
func after(sequence int32, n int) int32 {
	return int32((int64(sequence) + int64(n)) % (math.MaxInt32 + 1))
}
