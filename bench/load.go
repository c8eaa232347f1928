package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// load publishes commands and reads their outcome events.
type load struct {
	cfg       Config
	client    *kafka.Client
	publisher *kafka.Publisher
	topics    payment.Topics
	seed      uint64

	// slots bounds the commands without an outcome.
	slots chan struct{}

	mu       sync.Mutex
	sentAt   map[string]time.Time
	latency  []time.Duration
	recent   []payment.Command
	outcomes atomic.Int64
	unique   atomic.Int64
	repeats  atomic.Int64

	measuring atomic.Bool
	stopWatch context.CancelFunc
	watched   chan error
}

func newLoad(client *kafka.Client, cfg Config) (*load, error) {
	publisher, err := client.NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return nil, err
	}
	l := &load{
		cfg: cfg, client: client, publisher: publisher, topics: payment.NewTopics(cfg.Fleet.Prefix), seed: rand.Uint64(),
		slots: make(chan struct{}, cfg.Window), sentAt: make(map[string]time.Time, 4*cfg.Window), watched: make(chan error, 1),
	}
	for range cfg.Window {
		l.slots <- struct{}{}
	}
	return l, nil
}

func (l *load) close() {
	if l.stopWatch != nil {
		l.stopWatch()
		<-l.watched //nolint:errcheck // it ends because it was told to
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = l.publisher.Close(ctx)
}

// watch reads the events topic in a consumer group of its own, from the start.
func (l *load) watch(ctx context.Context) error {
	reader, err := l.client.NewConsumer(kafka.ConsumerConfig{
		Group: "settleonce-bench-" + uuid.NewString(), Topics: []string{l.topics.Events}, Handler: l.observe,
		CommitInterval: time.Second,
	})
	if err != nil {
		return fmt.Errorf("prepare the reader of events: %w", err)
	}
	ctx, l.stopWatch = context.WithCancel(ctx)
	go func() { l.watched <- reader.Run(ctx) }()
	for len(reader.Assigned()) == 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-l.watched:
			return fmt.Errorf("read events: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// observe counts outcome events; the key says whose it is.
func (l *load) observe(_ context.Context, batch []*kafka.Delivery) error {
	now, measuring := time.Now(), l.measuring.Load()
	done := 0
	l.mu.Lock()
	for _, d := range batch {
		if !outcome(d.Headers) {
			continue
		}
		at, ok := l.sentAt[string(d.Key)]
		if !ok {
			continue // a repetition of the same event
		}
		delete(l.sentAt, string(d.Key))
		done++
		if measuring {
			l.latency = append(l.latency, now.Sub(at))
		}
	}
	l.mu.Unlock()
	l.outcomes.Add(int64(done))
	for range done {
		select {
		case l.slots <- struct{}{}:
		default:
		}
	}
	kafka.Finish(batch)
	return nil
}

func outcome(headers []kafka.Header) bool {
	for _, h := range headers {
		if h.Key == "ce_type" {
			t := payment.EventType(h.Value)
			return t == payment.EventSucceeded || t == payment.EventDeclined
		}
	}
	return false
}

// senders publish side by side: a publish waits for the broker's acknowledgement.
const senders = 2

// maxPublish is the most commands in one publish.
const maxPublish = 256

func (l *load) generate(ctx context.Context) error {
	var group sync.WaitGroup
	errs := make(chan error, senders)
	next := l.pacer()
	for n := range uint64(senders) {
		group.Go(func() {
			if err := l.sender(ctx, n, next); err != nil && ctx.Err() == nil {
				errs <- err
			}
		})
	}
	group.Wait()
	close(errs)
	return <-errs
}

// pacer returns when the next command is to be sent, for a fixed rate.
func (l *load) pacer() func() time.Time {
	var mu sync.Mutex
	at := time.Now()
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Duration(float64(time.Second) / l.cfg.Rate))
		return at
	}
}

func (l *load) sender(ctx context.Context, n uint64, next func() time.Time) error {
	random := rand.New(rand.NewPCG(l.seed, n))
	for {
		commands, ok := l.take(ctx, next)
		if !ok {
			return nil
		}
		now := time.Now()
		l.mu.Lock()
		for i := range commands {
			l.sentAt[commands[i].IdempotencyKey.String()] = now
		}
		repeats := l.repeat(random, len(commands))
		l.recent = append(l.recent, commands...)
		if len(l.recent) > 8192 {
			l.recent = append(l.recent[:0], l.recent[len(l.recent)-4096:]...)
		}
		l.mu.Unlock()
		l.unique.Add(int64(len(commands)))
		l.repeats.Add(int64(len(repeats)))
		if err := l.publisher.Publish(context.WithoutCancel(ctx), l.messages(append(commands, repeats...))...); err != nil {
			return fmt.Errorf("publish commands: %w", err)
		}
	}
}

// take makes the next commands: one at its time, or as many as there are slots.
func (l *load) take(ctx context.Context, next func() time.Time) ([]payment.Command, bool) {
	if l.cfg.Rate > 0 {
		select {
		case <-time.After(time.Until(next())):
			return []payment.Command{l.command(time.Now())}, true
		case <-ctx.Done():
			return nil, false
		}
	}
	select {
	case <-l.slots:
	case <-ctx.Done():
		return nil, false
	}
	now := time.Now()
	commands := []payment.Command{l.command(now)}
	for len(commands) < maxPublish {
		select {
		case <-l.slots:
			commands = append(commands, l.command(now))
		default:
			return commands, true
		}
	}
	return commands, true
}

// repeat picks recent commands to deliver again, so that their share of all
// deliveries is as configured.
func (l *load) repeat(random *rand.Rand, fresh int) []payment.Command {
	var out []payment.Command
	for range fresh {
		if len(l.recent) > 0 && random.Float64() < l.cfg.Duplicates/(1-l.cfg.Duplicates) {
			out = append(out, l.recent[random.IntN(len(l.recent))])
		}
	}
	return out
}

var made atomic.Uint64

func (l *load) command(now time.Time) payment.Command {
	n := made.Add(1)
	random := rand.NewPCG(l.seed, n)
	var key uuid.UUID
	binary.LittleEndian.PutUint64(key[0:], random.Uint64())
	binary.LittleEndian.PutUint64(key[8:], random.Uint64())
	key[6], key[8] = key[6]&0x0f|0x40, key[8]&0x3f|0x80
	return payment.Command{
		IdempotencyKey: key, Caller: "shop", Operation: payment.OperationCharge,
		OrderID: "order-" + strconv.FormatUint(l.seed%1e6, 36) + "-" + strconv.FormatUint(n, 10), Amount: int64(100 + n%9900), Currency: "EUR",
		CustomerID: "cust-1", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: now.UTC().Truncate(time.Millisecond),
	}
}

func (l *load) messages(commands []payment.Command) []kafka.Message {
	out := make([]kafka.Message, len(commands))
	for i := range commands {
		out[i] = kafka.Message{
			Topic: l.topics.Commands, Key: []byte(commands[i].IdempotencyKey.String()), Value: commands[i].AppendJSON(nil),
		}
	}
	return out
}

// pass lets time pass and tells about it.
func (l *load) pass(ctx context.Context, phase string, d time.Duration) {
	started := time.Now()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for time.Since(started) < d {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.cfg.Progress(Progress{Phase: phase, Elapsed: time.Since(started), Outcomes: l.outcomes.Load()})
		case <-time.After(time.Until(started.Add(d))):
		}
	}
}

// drain waits until every command has its outcome, or nothing moves any more.
func (l *load) drain(ctx context.Context) {
	started := time.Now()
	for l.outcomes.Load() < l.unique.Load() && time.Since(started) < drainFor && ctx.Err() == nil {
		l.pass(ctx, "draining", 100*time.Millisecond)
	}
}
