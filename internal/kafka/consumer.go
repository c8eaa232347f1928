package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
)

// Handler takes over a batch of one partition's records, in offset order. It is
// called for one batch at a time per partition, and for several partitions at
// once.
//
// It returns nil when it has taken the records over, which is before they are
// finished; it may block, and fetching then pauses. ctx carries the values of
// Run's context and ends when the partition is revoked or the consumer stops;
// returning its error then is right. An error while ctx is alive says that no
// progress is possible: the consumer leaves the generation, backs off, and gets
// the unfinished records again.
type Handler func(ctx context.Context, batch []*Delivery) error

// ConsumerConfig describes a member of a consumer group. Group, Topics and
// Handler are required.
type ConsumerConfig struct {
	// Group is the consumer group; its offsets are committed under this name.
	Group string
	// Topics are consumed together; all must exist when Run starts.
	Topics []string
	// Handler takes the records over.
	Handler Handler
	// StartOffset, when set, is asked at each assignment of a partition, with
	// the offset committed in Kafka (-1 when none), and answers the offset that
	// the application has stored as its next one (negative when none). The lower
	// of the two is where reading starts; an error ends the generation.
	StartOffset func(ctx context.Context, topic string, partition int, committed int64) (int64, error)

	// MaxInFlight bounds the unfinished records of one partition; at the bound
	// nothing is handed out or fetched until half of it is free. Defaults to 2000.
	MaxInFlight int
	// MaxInFlightBytes bounds the same in bytes; one larger record still passes.
	// Defaults to 8 MiB.
	MaxInFlightBytes int

	// FetchMaxBytes bounds one fetch answer per broker; a partition gets at most
	// a quarter of it. Defaults to 2 MiB.
	FetchMaxBytes int
	// FetchMaxWait is how long an idle broker holds a fetch. Records end the wait
	// at once, so it costs no latency. Defaults to 1 s.
	FetchMaxWait time.Duration
	// FetchPace is the least time between two fetches of a busy partition: it
	// turns many small answers into fewer larger ones. Defaults to 2 ms.
	FetchPace time.Duration

	// SessionTimeout is how long the group waits for a silent member.
	// Defaults to 10 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is also how soon a rebalance is noticed. At most 1 s and
	// a third of SessionTimeout. Defaults to 500 ms.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the group waits for members to rejoin.
	// Defaults to 10 s.
	RebalanceTimeout time.Duration
	// JoinGroupBackoff is the pause after a failed join or a failed handler.
	// Defaults to 500 ms.
	JoinGroupBackoff time.Duration
	// CommitInterval is how often finished offsets are committed; a drain commits
	// once more. Defaults to 200 ms.
	CommitInterval time.Duration
	// DrainTimeout bounds the wait for records in flight at a revoke or stop.
	// Heartbeats have stopped by then, so it must stay below SessionTimeout and
	// RebalanceTimeout. Defaults to half of the smaller.
	DrainTimeout time.Duration
	// StallTimeout ends Run with ErrStalled when the oldest unfinished record of
	// a partition stays unfinished that long; negative switches the watchdog off.
	// Defaults to 2 minutes.
	StallTimeout time.Duration
}

// WithDefaults returns a copy with the defaults filled in.
func (c ConsumerConfig) WithDefaults() ConsumerConfig {
	setDefault(&c.MaxInFlight, 2000)
	setDefault(&c.MaxInFlightBytes, 8<<20)
	setDefault(&c.FetchMaxBytes, 2<<20)
	setDefault(&c.FetchMaxWait, time.Second)
	setDefault(&c.FetchPace, 2*time.Millisecond)
	setDefault(&c.SessionTimeout, 10*time.Second)
	setDefault(&c.HeartbeatInterval, 500*time.Millisecond)
	setDefault(&c.RebalanceTimeout, 10*time.Second)
	setDefault(&c.JoinGroupBackoff, 500*time.Millisecond)
	setDefault(&c.CommitInterval, 200*time.Millisecond)
	setDefault(&c.DrainTimeout, min(c.SessionTimeout, c.RebalanceTimeout)/2)
	setDefault(&c.StallTimeout, 2*time.Minute)
	c.Topics = append([]string(nil), c.Topics...)
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c ConsumerConfig) Validate() error {
	switch {
	case c.Group == "":
		return errors.New("consumer group: give it a name")
	case len(c.Topics) == 0:
		return errors.New("consumer topics: name at least one")
	case c.Handler == nil:
		return errors.New("consumer handler: set one")
	case c.MaxInFlight < 1 || c.MaxInFlightBytes < 1:
		return errors.New("consumer bounds in flight: use 1 record and 1 byte or more")
	case c.FetchMaxBytes < 4096:
		return fmt.Errorf("consumer fetch size %d is too small, use 4096 bytes or more", c.FetchMaxBytes)
	}
	return c.validateTimes()
}

func (c ConsumerConfig) validateTimes() error {
	for name, d := range map[string]time.Duration{
		"fetch wait": c.FetchMaxWait, "session timeout": c.SessionTimeout, "heartbeat interval": c.HeartbeatInterval,
		"rebalance timeout": c.RebalanceTimeout, "join back-off": c.JoinGroupBackoff, "commit interval": c.CommitInterval,
		"drain timeout": c.DrainTimeout,
	} {
		if d <= 0 {
			return fmt.Errorf("consumer %s %s is not positive, leave it unset for the default", name, d)
		}
	}
	switch {
	case c.FetchPace < 0:
		return fmt.Errorf("consumer fetch pace %s is negative, leave it unset for the default", c.FetchPace)
	case c.HeartbeatInterval > time.Second || c.HeartbeatInterval > c.SessionTimeout/3:
		return fmt.Errorf("consumer heartbeat interval %s is too long, use at most 1 s and a third of the session timeout (%s)",
			c.HeartbeatInterval, c.SessionTimeout)
	case c.DrainTimeout >= min(c.SessionTimeout, c.RebalanceTimeout):
		return fmt.Errorf("consumer drain timeout %s is too long, use less than the session timeout (%s) and the rebalance timeout (%s)",
			c.DrainTimeout, c.SessionTimeout, c.RebalanceTimeout)
	}
	return nil
}

// Consumer is one member of a consumer group.
type Consumer struct {
	client *Client
	cfg    ConsumerConfig
	log    zerolog.Logger

	mu      sync.Mutex
	running bool
	current *generation
	workers map[topicPartition]chan struct{} // closed when the partition's last worker has returned
}

type topicPartition struct {
	topic     string
	partition int
}

// NewConsumer validates cfg and returns a consumer. It does not connect.
func (c *Client) NewConsumer(cfg ConsumerConfig) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Consumer{
		client:  c,
		cfg:     cfg,
		log:     c.log.With().Str("group", cfg.Group).Logger(),
		workers: make(map[topicPartition]chan struct{}),
	}, nil
}

// Run joins the group and consumes until ctx ends or a fatal error. When ctx
// ends it stops fetching, waits up to DrainTimeout for the records in flight,
// commits what is finished, leaves the group and returns nil. Fatal are
// ErrStalled, ErrOffsetOutOfRange, ErrUnknownTopic, and topics or a group that
// the broker refuses for good; lost brokers and rebalances are not. A handler that ignores
// its context may still be running when Run has returned; its Finish calls do
// nothing then. Run may be called again after it returned, not before.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if err := c.requireTopics(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	conns := newConnSet(c.client.cfg.Dial)
	group, err := kafkago.NewConsumerGroup(c.groupConfig(conns))
	if err != nil {
		return fmt.Errorf("configure consumer group: %w", err)
	}
	defer c.leave(group, conns)
	return c.generations(ctx, group)
}

func (c *Consumer) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return errors.New("consumer is already running")
	}
	c.running = true
	return nil
}

func (c *Consumer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	c.current = nil
}

// requireTopics fails early: the library would create a missing topic or wait
// for it in silence.
func (c *Consumer) requireTopics(ctx context.Context) error {
	failures := joinLog{log: c.log}
	for {
		missing, err := c.client.missingTopics(ctx, c.cfg.Topics)
		switch {
		case err == nil && len(missing) == 0:
			return nil
		case err == nil:
			return fmt.Errorf("consume %s: %w", strings.Join(missing, ", "), ErrUnknownTopic)
		case errors.Is(err, ErrUnauthorized):
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures.add(time.Now(), err, "cannot reach Kafka, trying again")
		if err := sleep(ctx, c.cfg.JoinGroupBackoff); err != nil {
			return err
		}
	}
}

func (c *Consumer) groupConfig(conns *connSet) kafkago.ConsumerGroupConfig {
	return kafkago.ConsumerGroupConfig{
		ID:                     c.cfg.Group,
		Brokers:                c.client.cfg.Brokers,
		Dialer:                 c.client.dialer(conns),
		Topics:                 c.cfg.Topics,
		GroupBalancers:         []kafkago.GroupBalancer{kafkago.RangeGroupBalancer{}},
		HeartbeatInterval:      c.cfg.HeartbeatInterval,
		WatchPartitionChanges:  true,
		PartitionWatchInterval: 10 * time.Second,
		SessionTimeout:         c.cfg.SessionTimeout,
		RebalanceTimeout:       c.cfg.RebalanceTimeout,
		JoinGroupBackoff:       c.cfg.JoinGroupBackoff,
		StartOffset:            kafkago.FirstOffset,
		Timeout:                min(requestTimeout, c.cfg.SessionTimeout/2),
		Logger:                 kafkago.LoggerFunc(func(msg string, args ...any) { c.log.Debug().Msgf(msg, args...) }),
		ErrorLogger:            kafkago.LoggerFunc(func(msg string, args ...any) { c.log.Debug().Msgf(msg, args...) }),
	}
}

// generations runs one generation after the other. The library reports every
// failed join through Next and pauses by itself; only the closed group and our
// own context end the loop.
func (c *Consumer) generations(ctx context.Context, group *kafkago.ConsumerGroup) error {
	failures := 0
	joins := joinLog{log: c.log}
	for {
		gen, err := group.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // stopping is not a failure
		case isFatalJoin(err):
			return fmt.Errorf("join group %s: %w", c.cfg.Group, c.client.explain(err))
		case err != nil:
			joins.add(time.Now(), c.client.explain(err), "joining the group failed, trying again")
			continue
		}
		joins = joinLog{log: c.log}
		g := newGeneration(ctx, c, gen, failures)
		c.setCurrent(g)
		gen.Start(g.run)
		<-g.drained
		switch {
		case g.fatal != nil:
			return g.fatal
		case ctx.Err() != nil:
			return nil //nolint:nilerr // stopping is not a failure
		case g.failed && !g.progressed():
			failures++
		default:
			failures = 0
		}
	}
}

func isFatalJoin(err error) bool {
	return errors.Is(err, kafkago.InvalidSessionTimeout) || errors.Is(err, kafkago.GroupAuthorizationFailed) ||
		errors.Is(err, kafkago.InvalidGroupId) || errors.Is(err, kafkago.InconsistentGroupProtocol)
}

func (c *Consumer) setCurrent(g *generation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = g
}

// leave closes the group. A join under way cannot be cancelled otherwise than by
// closing its connection, which leaves a ghost member until the session times
// out: it is the second choice.
func (c *Consumer) leave(group *kafkago.ConsumerGroup, conns *connSet) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = group.Close()
	}()
	t := time.NewTimer(c.cfg.SessionTimeout / 2)
	defer t.Stop()
	select {
	case <-closed:
	case <-t.C:
		c.log.Warn().Msg("leaving the group takes too long, hanging up")
		conns.closeAll()
		<-closed
	}
	conns.closeAll()
}
