package inbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Inbox is one member of a consumer group whose handler is run once for each
// message. Any number may run: they share the partitions.
type Inbox struct {
	cfg       Config
	log       zerolog.Logger
	client    *kafka.Client
	publisher *kafka.Publisher
	consumer  *kafka.Consumer
	stats     counters
}

type counters struct {
	applied, repeated, deadLettered, retried, missing atomic.Uint64
}

// Stats are an inbox's counters since its start.
type Stats struct {
	// Applied counts messages whose handler was run and committed; Repeated those
	// that had a marker already.
	Applied, Repeated uint64
	// DeadLettered counts messages that were put into the dead letters.
	DeadLettered uint64
	// Retried counts transactions that failed and were tried again.
	Retried uint64
	// Missing counts events that were never seen although a later one of their
	// payment was (Message.Missing). Each is worth an alarm.
	Missing uint64
	// Lag is how many messages of the owned partitions are not handled yet.
	Lag int64
}

// stall is after how long a partition without progress ends Run, at least.
const stall = 2 * time.Minute

// New returns an Inbox. It does nothing until Run. Close it in the end.
func New(cfg Config) (*Inbox, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure inbox: %w", err)
	}
	client, err := kafka.NewClient(cfg.client())
	if err != nil {
		return nil, fmt.Errorf("configure inbox: %w", err)
	}
	in := &Inbox{cfg: cfg, client: client, log: cfg.Logger.With().Str("inbox", cfg.Name).Logger()}
	if in.publisher, err = client.NewPublisher(kafka.PublisherConfig{}); err == nil {
		in.consumer, err = client.NewConsumer(kafka.ConsumerConfig{
			Group: cfg.Prefix + cfg.Name, Topics: in.topics(), Handler: in.handle,
			SessionTimeout: cfg.SessionTimeout, RebalanceTimeout: cfg.SessionTimeout,
			// A handler that hangs is a dead letter before it is a stall.
			StallTimeout: max(stall, time.Duration(cfg.Attempts+1)*cfg.Timeout),
		})
	}
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("configure inbox: %w", err)
	}
	return in, nil
}

func (in *Inbox) topics() []string {
	topics := make([]string, len(in.cfg.Topics))
	for i, name := range in.cfg.Topics {
		topics[i] = in.cfg.Prefix + name
	}
	return topics
}

// Run handles messages until ctx ends, and then returns nil: the transaction
// under way is rolled back, its messages come again. A group that is new begins at
// the oldest message. An error says that it cannot go on: a topic is missing or
// keeps records for longer than Retention, or a partition made no progress for
// minutes (a database that is away): restart the process then.
func (in *Inbox) Run(ctx context.Context) error {
	if err := in.checkRetention(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var cleaning sync.WaitGroup
	cleaning.Go(func() { in.clean(ctx) })
	err := in.consumer.Run(ctx)
	stop()
	cleaning.Wait()
	if err != nil {
		return fmt.Errorf("run inbox %s: %w", in.cfg.Name, err)
	}
	return nil
}

// Close frees the connections, after Run has returned.
func (in *Inbox) Close(ctx context.Context) error {
	err := in.publisher.Close(ctx)
	in.client.Close()
	return err
}

// Stats returns the counters as they are now.
func (in *Inbox) Stats() Stats {
	s := Stats{
		Applied: in.stats.applied.Load(), Repeated: in.stats.repeated.Load(), DeadLettered: in.stats.deadLettered.Load(),
		Retried: in.stats.retried.Load(), Missing: in.stats.missing.Load(),
	}
	for _, p := range in.consumer.Stats() {
		s.Lag += p.Lag
	}
	return s
}

// checkRetention refuses topics that keep a message for longer than its marker
// is kept: it could come back and would not be known.
func (in *Inbox) checkRetention(ctx context.Context) error {
	descriptions, err := in.client.DescribeTopics(ctx, in.topics())
	if err != nil {
		return fmt.Errorf("look at the topics of inbox %s: %w", in.cfg.Name, err)
	}
	for _, d := range descriptions {
		text, told := d.Config["retention.ms"]
		if !told {
			continue
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("read retention.ms of topic %s: %w", d.Name, err)
		}
		kept := time.Duration(ms) * time.Millisecond
		if ms < 0 || kept/time.Millisecond != time.Duration(ms) {
			in.log.Warn().Str("topic", d.Name).Dur("retention", in.cfg.Retention).
				Msg("the topic keeps records for ever; those older than the markers become dead letters")
			continue
		}
		if kept >= in.cfg.Retention {
			return fmt.Errorf("topic %s keeps records for %s, and inbox %s its markers for %s only: set Retention to more than that",
				d.Name, kept, in.cfg.Name, in.cfg.Retention)
		}
	}
	return nil
}

// handle takes a batch of one partition over. It returns when all of it is
// finished: the next batch of the partition would wait in any case.
func (in *Inbox) handle(ctx context.Context, batch []*kafka.Delivery) error {
	limit, refusals, failures := in.cfg.Batch, 0, 0 // refusals are the handler's, of the first message; failures anybody's
	most := in.cfg.Batch
	for len(batch) > 0 {
		chunk := batch[:min(len(batch), limit)]
		bad, err := in.apply(ctx, chunk)
		if err == nil {
			kafka.Finish(chunk)
			batch, limit, refusals, failures = batch[len(chunk):], most, 0, 0
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		in.stats.retried.Add(1)
		if bad > 0 { // what stands before the bad message is applied first
			limit = bad
			continue
		}
		failures++
		if bad == notOurs && conflicts(err) { // it holds fewer locks then
			most = max(1, len(chunk)/2)
			limit = most
		}
		if bad == 0 {
			limit = 1 // alone, so that nothing before it waits for its pauses
			refusals++
			if p, marked := asPoison(err); marked || refusals >= in.cfg.Attempts {
				if err := in.bury(ctx, &batch[0].Record, p); err != nil {
					return err
				}
				batch[0].Finish()
				batch, limit, refusals, failures = batch[1:], most, 0, 0
				continue
			}
		}
		in.log.Warn().Err(err).Int("failures", failures).Str("topic", chunk[0].Topic).Int("partition", chunk[0].Partition).
			Int64("offset", chunk[0].Offset).Msg("messages not applied, trying again")
		if err := pause(ctx, failures); err != nil {
			return err
		}
	}
	return nil
}

const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 10 * time.Second
)

// pause waits, longer after each failure, with jitter.
func pause(ctx context.Context, failures int) error {
	longest := min(pauseMin<<min(failures, 10), pauseMax)
	timer := time.NewTimer(longest/2 + rand.N(longest/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errEnded is what a handler gets that ends the inbox's transaction.
var errEnded = errors.New("the transaction is the inbox's to end: return an error to undo it")
