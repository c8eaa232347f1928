package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// PublisherConfig tunes a Publisher. The zero value is safe: all replicas
// acknowledge, keys are placed as Java does.
type PublisherConfig struct {
	// Linger is how long a partial batch waits for company. Defaults to 5 ms.
	Linger time.Duration
	// BatchSize is the most messages in one batch, at most 1000 (the library
	// allocates it up front for every partition). Defaults to 500.
	BatchSize int
	// BatchBytes is the most bytes in one batch; larger messages are refused.
	// Defaults to 900,000, below the broker's default limit of 1,048,588.
	BatchBytes int
	// Attempts is how often a batch is sent before the error is returned.
	// Defaults to 3.
	Attempts int
	// Timeout bounds one attempt. Defaults to 5 s.
	Timeout time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (c PublisherConfig) WithDefaults() PublisherConfig {
	setDefault(&c.Linger, 5*time.Millisecond)
	setDefault(&c.BatchSize, 500)
	setDefault(&c.BatchBytes, maxBatchBytes)
	setDefault(&c.Attempts, 3)
	setDefault(&c.Timeout, requestTimeout)
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c PublisherConfig) Validate() error {
	switch {
	case c.Linger < 0:
		return fmt.Errorf("publisher linger %s is negative, use 1 ms to 1 s", c.Linger)
	case c.BatchSize < 1 || c.BatchSize > 1000:
		return fmt.Errorf("publisher batch size %d is out of range, use 1 to 1000", c.BatchSize)
	case c.BatchBytes < 1:
		return fmt.Errorf("publisher batch bytes %d is out of range, use 1 or more", c.BatchBytes)
	case c.Attempts < 1:
		return fmt.Errorf("publisher attempts %d is out of range, use 1 or more", c.Attempts)
	case c.Timeout <= 0:
		return fmt.Errorf("publisher timeout %s is not positive, use 1 s to 30 s", c.Timeout)
	}
	return nil
}

// Publisher publishes the messages of upstream services. It is safe for
// concurrent use; concurrent calls share batches.
type Publisher struct {
	client *Client
	writer *kafkago.Writer
	wait   time.Duration
}

// NewPublisher validates cfg and returns a publisher. It does not connect.
func (c *Client) NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w := &kafkago.Writer{
		Addr:            c.addr,
		Balancer:        kafkago.Murmur2Balancer{},
		RequiredAcks:    kafkago.RequireAll,
		BatchTimeout:    cfg.Linger,
		BatchSize:       cfg.BatchSize,
		BatchBytes:      int64(cfg.BatchBytes),
		MaxAttempts:     cfg.Attempts,
		WriteTimeout:    cfg.Timeout,
		ReadTimeout:     cfg.Timeout,
		WriteBackoffMin: 50 * time.Millisecond,
		WriteBackoffMax: 500 * time.Millisecond,
		Transport:       c.transport,
	}
	return &Publisher{client: c, writer: w, wait: cfg.Timeout}, nil
}

// PublishErrors has one entry for each message of the call, in its order: nil
// when all in-sync replicas have the message, else an error that means
// "unknown" (it may be there, or come later): publish it again with the same key.
type PublishErrors []error

// Error counts the failures and quotes the first.
func (e PublishErrors) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("publish: %d of %d messages unconfirmed, first: %v", failed, len(e), first)
}

// Unwrap gives errors.Is and errors.As the distinct failures.
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
// PublishErrors. A message without a key goes to any partition.
func (p *Publisher) Publish(ctx context.Context, msgs ...Message) error {
	if len(msgs) == 0 {
		return nil
	}
	in := make([]kafkago.Message, len(msgs))
	for i, m := range msgs {
		in[i] = kafkago.Message{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: toHeaders(m.Headers)}
	}
	return positional(p.write(ctx, in), len(msgs))
}

// write repeats the library's look-up failure for a topic that its cached
// metadata does not show yet; nothing was sent then.
func (p *Publisher) write(ctx context.Context, msgs []kafkago.Message) error {
	for attempt := 1; ; attempt++ {
		err := p.writer.WriteMessages(ctx, msgs...)
		if attempt == 3 || !errors.Is(err, kafkago.UnknownTopicOrPartition) || isPositional(err) {
			return err
		}
		p.client.refresh()
		if sleep(ctx, time.Duration(attempt)*100*time.Millisecond) != nil {
			return err
		}
	}
}

// Close waits for batches under way, at most until ctx ends. Messages that are
// then still unconfirmed are unknown.
func (p *Publisher) Close(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- p.writer.Close() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("close publisher: %w", ctx.Err())
	}
}

func isPositional(err error) bool {
	var many kafkago.WriteErrors
	return errors.As(err, &many)
}

func positional(err error, n int) error {
	if err == nil {
		return nil
	}
	out := make(PublishErrors, n)
	var many kafkago.WriteErrors
	if errors.As(err, &many) && len(many) == n {
		copy(out, many)
		return out
	}
	var large kafkago.MessageTooLargeError
	if errors.As(err, &large) || strings.Contains(err.Error(), kafkago.MessageSizeTooLarge.Error()) {
		err = fmt.Errorf("%w: %w", ErrMessageTooLarge, err)
	}
	for i := range out {
		out[i] = err
	}
	return out
}

func toHeaders(in []Header) []kafkago.Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]kafkago.Header, len(in))
	for i, h := range in {
		out[i] = kafkago.Header{Key: h.Key, Value: h.Value}
	}
	return out
}
