package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrClosed says that the publisher was closed before the call.
var ErrClosed = errors.New("publisher is closed")

// PublisherConfig tunes a Publisher. The zero value is safe: all in-sync
// replicas acknowledge, keys are placed as Java does.
type PublisherConfig struct {
	// BatchSize is the most messages that go out together. Defaults to 5000.
	BatchSize int
	// Attempts times Timeout is how long a message is tried before the call
	// returns an error, whatever its context allows. Defaults to 3.
	Attempts int
	// Timeout bounds one attempt. Defaults to 5 s.
	Timeout time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (c PublisherConfig) WithDefaults() PublisherConfig {
	setDefault(&c.BatchSize, 5000)
	setDefault(&c.Attempts, 3)
	setDefault(&c.Timeout, requestTimeout)
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c PublisherConfig) Validate() error {
	switch {
	case c.BatchSize < 1:
		return fmt.Errorf("publisher batch size %d is out of range, use 1 or more", c.BatchSize)
	case c.Attempts < 1:
		return fmt.Errorf("publisher attempts %d is out of range, use 1 or more", c.Attempts)
	case c.Timeout <= 0:
		return fmt.Errorf("publisher timeout %s is not positive, use 1 s to 30 s", c.Timeout)
	}
	return nil
}

// Publisher publishes the messages of upstream services. It is safe for
// concurrent use: what arrives while a request is under way shares the next one,
// so batches form under load by themselves and nothing waits without. Its
// batches are numbered, so that its own repetitions are stored once.
type Publisher struct {
	client *Client
	cfg    PublisherConfig

	mu     sync.Mutex
	queue  []*publishCall
	busy   chan struct{} // closed when the flush under way ends, nil when there is none
	closed bool

	producer *FencedProducer // of the flush; nil when a new numbering is needed
}

// Place is where a record is in its topic.
type Place struct {
	Partition int
	// Offset is -1 where the broker did not tell: it had the record already.
	Offset int64
}

type publishCall struct {
	messages []Message
	places   []Place // nil where nobody wants to know
	errs     []error // set before done is closed
	done     chan struct{}
}

// NewPublisher validates cfg and returns a publisher. It does not connect.
func (c *Client) NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Publisher{client: c, cfg: cfg}, nil
}

// PublishErrors has one entry for each message of the call, in its order: nil
// when all in-sync replicas have the message, else an error that means
// "unknown" (it may be there, or come later): publish it again with the same key.
// Permanent tells the errors that need somebody to change something first.
type PublishErrors []error

// Error counts the failures and quotes the first.
func (e PublishErrors) Error() string {
	failed := e.Unwrap()
	if len(failed) == 0 {
		return "publish: all messages confirmed"
	}
	return fmt.Sprintf("publish: %d of %d messages unconfirmed, first: %v", len(failed), len(e), failed[0])
}

// Unwrap gives errors.Is and errors.As the failures.
func (e PublishErrors) Unwrap() []error {
	var out []error
	for _, err := range e {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// Publish returns nil when all in-sync replicas have every message, else
// PublishErrors. A message without a key is placed by its value. The messages
// must not be changed afterwards, also when the call failed.
func (p *Publisher) Publish(ctx context.Context, msgs ...Message) error {
	return p.run(ctx, &publishCall{messages: msgs, done: make(chan struct{})})
}

// PublishPlaced is Publish, and tells where each message is. Places are to be
// used only where there is no error.
func (p *Publisher) PublishPlaced(ctx context.Context, msgs ...Message) ([]Place, error) {
	places := make([]Place, len(msgs))
	for i := range places {
		places[i].Offset = -1
	}
	if err := p.run(ctx, &publishCall{messages: msgs, places: places, done: make(chan struct{})}); err != nil {
		return nil, err // after an error the call may still be under way, and fill them in
	}
	return places, nil
}

func (p *Publisher) run(ctx context.Context, call *publishCall) error {
	msgs := call.messages
	if len(msgs) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return failAll(len(msgs), err)
	}
	if !p.enqueue(call) {
		return failAll(len(msgs), ErrClosed)
	}
	select {
	case <-call.done:
		return positional(call.errs)
	case <-ctx.Done():
		p.withdraw(call)
		return failAll(len(msgs), fmt.Errorf("%w: %w", ErrUnresolved, ctx.Err()))
	}
}

// Close refuses new calls and waits for those under way, at most until ctx ends.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	busy := p.busy
	p.mu.Unlock()
	if busy == nil {
		return nil
	}
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close publisher: %w", ctx.Err())
	}
}

func (p *Publisher) enqueue(call *publishCall) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queue = append(p.queue, call)
	if p.busy == nil {
		p.busy = make(chan struct{})
		go p.flush(p.busy) // ends with the queue; Close waits for it
	}
	return true
}

// withdraw takes a call out that nothing was sent of.
func (p *Publisher) withdraw(call *publishCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.queue {
		if c == call {
			p.queue = append(p.queue[:i:i], p.queue[i+1:]...)
			return
		}
	}
}

// flush publishes until the queue is empty.
func (p *Publisher) flush(ended chan struct{}) {
	for {
		calls := p.next()
		if calls == nil {
			close(ended)
			return
		}
		p.publish(calls)
		for _, c := range calls {
			close(c.done)
		}
	}
}

// next takes the calls of one batch; without any, the flush is over.
func (p *Publisher) next() []*publishCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.busy, p.queue = nil, nil
		return nil
	}
	n, messages := 0, 0
	for n < len(p.queue) && (n == 0 || messages+len(p.queue[n].messages) <= p.cfg.BatchSize) {
		messages += len(p.queue[n].messages)
		n++
	}
	calls := p.queue[:n:n]
	p.queue = p.queue[n:]
	return calls
}

// publish fills the errors of the calls. A numbering that the broker does not
// follow is replaced: no lease hangs on it.
func (p *Publisher) publish(calls []*publishCall) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(p.cfg.Attempts)*p.cfg.Timeout)
	defer cancel()
	for range 3 {
		if p.producer == nil {
			producer, err := p.client.newProducer(ctx, "")
			if err != nil {
				for _, c := range calls {
					c.errs = failAll(len(c.messages), err)
				}
				return
			}
			p.producer = producer
		}
		batches := make([]FencedBatch, len(calls))
		for i, c := range calls {
			batches[i] = FencedBatch{Producer: p.producer, Messages: c.messages, places: c.places}
		}
		calls = p.outdated(calls, p.client.publishFenced(ctx, batches, p.cfg.Timeout, time.Duration(p.cfg.Attempts)*p.cfg.Timeout))
		if len(calls) == 0 {
			return
		}
		p.producer = nil
	}
}

// outdated stores the results and returns the calls to publish with another
// numbering.
func (p *Publisher) outdated(calls []*publishCall, results []FencedResult) []*publishCall {
	var out []*publishCall
	for i, r := range results {
		calls[i].errs = r.Errors
		for _, err := range r.Errors {
			if errors.Is(err, ErrRenew) || errors.Is(err, ErrFenced) {
				out = append(out, calls[i])
				break
			}
		}
	}
	return out
}

func positional(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return PublishErrors(errs)
		}
	}
	return nil
}

func failAll(n int, err error) PublishErrors {
	out := make(PublishErrors, n)
	for i := range out {
		out[i] = err
	}
	return out
}
