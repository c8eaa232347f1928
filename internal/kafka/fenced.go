package kafka

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// maxBatchBytes keeps a batch below the broker's default limit of 1,048,588.
	maxBatchBytes   = 900_000
	maxBatchRecords = 10_000
	// maxMessageBytes keeps a request below socket.request.max.bytes (100 MiB),
	// past which a broker hangs up without an answer.
	maxMessageBytes = 16 << 20
	// maxRequestBytes bounds one produce request of several batches.
	maxRequestBytes = 16 << 20
	// fencedPatience is how long PublishFenced tries what is left when all the
	// rest is answered.
	fencedPatience = time.Second
)

// FencedBatch is what one producer has to publish, in order.
type FencedBatch struct {
	Producer *FencedProducer
	Messages []Message

	// places is filled in where it is not nil: one per message.
	places []Place
}

// FencedResult answers a FencedBatch.
type FencedResult struct {
	// Errors has one entry for each message, in order: nil when all in-sync
	// replicas have it. ErrFenced: stop. ErrRenew: check the lease, renew, publish
	// again. Permanent errors: publishing again does not help. ErrUnresolved and
	// everything else: publish again, the same message first.
	Errors []error
}

// Err returns the first error of the batch, nil when all is published.
func (r FencedResult) Err() error {
	for _, err := range r.Errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// PublishFenced publishes the batches of several producers together, in as few
// requests as possible: one for each leading broker, with one record batch for
// each partition. Within a producer and partition, messages keep their order. An
// answer that says nothing makes it send the same bytes again, until ctx ends or
// nothing else has come in for a second (one partition that is not writable must
// not hold the others up for long). What is then open is ErrUnresolved, and the
// producer sends those very bytes again before anything else to the partition.
//
// Results are in the order of batches; a producer's batches are published in that
// order too. Messages must not be changed before their producer has published
// them, was renewed or is dropped: an unresolved batch is compared with them.
func (c *Client) PublishFenced(ctx context.Context, batches []FencedBatch) []FencedResult {
	return c.publishFenced(ctx, batches, c.cfg.ConfirmTimeout, fencedPatience)
}

func (c *Client) publishFenced(ctx context.Context, batches []FencedBatch, timeout, patience time.Duration) []FencedResult {
	f := &fencedCall{
		client: c, batches: batches, results: make([]FencedResult, len(batches)), timeout: timeout, patience: patience,
	}
	for i, b := range batches {
		f.results[i].Errors = make([]error, len(b.Messages))
	}
	defer lockProducers(batches)()
	f.plan(ctx)
	f.send(ctx)
	f.leaveOpen(ctx)
	return f.results
}

// lockProducers locks each producer once, in one order for all calls.
func lockProducers(batches []FencedBatch) (unlock func()) {
	var ps []*FencedProducer
	for _, b := range batches {
		if !slices.Contains(ps, b.Producer) {
			ps = append(ps, b.Producer)
		}
	}
	slices.SortFunc(ps, func(a, b *FencedProducer) int { return int(a.serial) - int(b.serial) }) //nolint:gosec // small numbers
	for _, p := range ps {
		p.mu.Lock()
	}
	return func() {
		for _, p := range ps {
			p.mu.Unlock()
		}
	}
}

// fencedCall is one PublishFenced.
type fencedCall struct {
	client  *Client
	batches []FencedBatch
	results []FencedResult
	queues  map[topicPartition][]*chunk // in order; only a queue's first is under way
	order   []topicPartition
	unready int           // answers that said nothing
	timeout time.Duration // of one request

	patience time.Duration // how long to go on without a result
	moved    time.Time     // when the last one came
}

// ref points at a message of the call.
type ref struct{ batch, message int }

// chunk becomes one record batch.
type chunk struct {
	topicPartition

	producer *FencedProducer
	messages []*Message
	refs     []ref // nil for a pending chunk that is not of this call
	bound    int   // at least the encoded size
	encoded  []byte
	sequence int32
	sent     bool // may be in the log
	unsure   bool // an answer was lost or said nothing: an earlier send may be in the log, or still arrive
	unknown  int  // answers "unknown topic" in a row
}

func (f *fencedCall) message(r ref) *Message { return &f.batches[r.batch].Messages[r.message] }

func (f *fencedCall) set(r ref, err error) { f.results[r.batch].Errors[r.message] = err }

// send works in rounds: the first chunk of every queue, all leaders at once.
func (f *fencedCall) send(ctx context.Context) {
	f.moved = time.Now()
	for backoff := 10 * time.Millisecond; len(f.queues) > 0 && ctx.Err() == nil && time.Since(f.moved) < f.patience; {
		before := f.unready
		f.round(ctx)
		if f.unready == before {
			backoff = 10 * time.Millisecond
			continue
		}
		if sleep(ctx, backoff) != nil {
			return
		}
		backoff = min(2*backoff, 500*time.Millisecond)
	}
}

func (f *fencedCall) round(ctx context.Context) {
	leaders, err := f.client.leaders(ctx, f.topics())
	if err != nil {
		f.client.refresh()
		f.unready++
		return
	}
	byLeader := make(map[int32][]*chunk)
	size := make(map[int32]int)
	for _, tp := range f.order {
		queue := f.queues[tp]
		if len(queue) == 0 {
			continue
		}
		leader, ok := leaders[tp]
		head := queue[0]
		switch {
		case !ok:
			f.client.refresh()
			f.unready++
		case size[leader] == 0 || size[leader]+head.bound <= maxRequestBytes:
			size[leader] += head.bound
			byLeader[leader] = append(byLeader[leader], head)
		}
	}
	f.exchange(ctx, byLeader)
}

// exchange sends one request to each leader and takes the answers in.
func (f *fencedCall) exchange(ctx context.Context, byLeader map[int32][]*chunk) {
	type outcome struct {
		chunk  *chunk
		answer produced
	}
	var mu sync.Mutex
	var got []outcome
	var wg sync.WaitGroup
	for _, chunks := range byLeader {
		for _, k := range chunks {
			k.encode()
		}
		wg.Go(func() {
			answers := f.client.produce(ctx, f.timeout, chunks)
			mu.Lock()
			defer mu.Unlock()
			for i, k := range chunks {
				got = append(got, outcome{k, answers[i]})
			}
		})
	}
	wg.Wait()
	for _, o := range got {
		f.settle(o.chunk, o.answer)
	}
}

func (f *fencedCall) topics() []string {
	var out []string
	for _, tp := range f.order {
		if !slices.Contains(out, tp.topic) {
			out = append(out, tp.topic)
		}
	}
	return out
}

// encode numbers the chunk, once: a repetition must be the same bytes.
func (k *chunk) encode() {
	k.sent = true
	if k.encoded != nil {
		return
	}
	k.sequence = k.producer.lane(k.topicPartition).next
	s := stamp{producerID: k.producer.ProducerID(), epoch: k.producer.Epoch(), sequence: k.sequence}
	codec, _ := codecOf(k.producer.client.cfg.Compression)
	k.encoded = encodeBatch(s, k.time(), k.messages, codec)
}

// time is the timestamp of the chunk's records.
func (k *chunk) time() time.Time {
	var latest time.Time
	for _, m := range k.messages {
		if m.Time.After(latest) {
			latest = m.Time
		}
	}
	if latest.IsZero() {
		return time.Now()
	}
	return latest
}

// leaveOpen answers what was cut off, and keeps what may be in the log for the
// producer's next publish.
func (f *fencedCall) leaveOpen(ctx context.Context) {
	open := ErrUnresolved
	if ctx.Err() != nil {
		open = fmt.Errorf("%w: %w", ErrUnresolved, context.Cause(ctx))
	}
	for tp, queue := range f.queues {
		for _, k := range queue {
			f.fail(k, open)
			if k.sent {
				k.refs = nil
				k.producer.lane(tp).pending = k
			}
		}
	}
}

func (f *fencedCall) fail(k *chunk, err error) {
	for _, r := range k.refs {
		f.set(r, err)
	}
}

func sameMessage(a, b *Message) bool {
	return a.Topic == b.Topic && bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) &&
		bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil) &&
		slices.EqualFunc(a.Headers, b.Headers, func(x, y Header) bool {
			return x.Key == y.Key && bytes.Equal(x.Value, y.Value) && (x.Value == nil) == (y.Value == nil)
		})
}
