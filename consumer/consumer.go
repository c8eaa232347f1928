// Package consumer turns delivered payment commands into settled payments.
//
// Records of a partition go to one lane, which claims them in batches, in order:
// one round trip classifies a whole batch, one commit makes it durable together
// with replies, dead letters and offsets. Only then are records finished (their
// offsets may be committed) and the permitted sends made, any number at once and
// outside any transaction. What they come to is stored in group commits.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// Config is what a Consumer needs.
type Config struct {
	Kafka   *kafka.Client
	Store   *store.Store
	Settler *settle.Settler
	// Topics are the command topics to consume. Defaults to payment.commands.
	Topics []string
	// Group is the consumer group. Defaults to "settleonce-consumer".
	Group string
	// Callers says who may write which topic. Defaults to AnyCaller.
	Callers Callers
	// Registered says that Callers is a copy of the table of callers: every claim
	// compares with the table itself, so that an old copy does no harm.
	Registered bool
	// Signatures judges who wrote a record. Defaults to nobody: no record is asked.
	Signatures Signatures
	// Lanes is the number of claims under way at once. Defaults to 3.
	Lanes int
	// Batch is the most commands in one claim. Defaults to 256.
	Batch int
	// BusyWait is how long a command waits for a free slot of its channel before
	// it is parked. Defaults to 1 s.
	BusyWait time.Duration
	// SessionTimeout is how long the group waits for a silent member, and for
	// members to rejoin. Defaults to 10 s.
	SessionTimeout time.Duration
	// Announce publishes accepted events and replies. Defaults to off: Kafka's
	// acknowledgement already says durable, and every message costs.
	Announce bool
	// Stall ends the process when a partition makes no progress that long.
	// Defaults to 2 minutes.
	Stall   time.Duration
	Metrics *telemetry.Metrics
	// Tracer records what becomes of each command. Defaults to nobody: then a
	// command's own traceparent goes on with its reply and events.
	Tracer *tracing.Tracer
	Logger zerolog.Logger
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if len(c.Topics) == 0 {
		c.Topics = []string{payment.NewTopics("").Commands}
	}
	if c.Group == "" {
		c.Group = "settleonce-consumer"
	}
	if c.Callers == nil {
		c.Callers = AnyCaller{}
	}
	if c.Lanes == 0 {
		c.Lanes = 3
	}
	if c.Batch == 0 {
		c.Batch = 256
	}
	if c.BusyWait == 0 {
		c.BusyWait = time.Second
	}
	if c.Stall == 0 {
		c.Stall = 2 * time.Minute
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c Config) Validate() error {
	switch {
	case c.Kafka == nil || c.Store == nil || c.Settler == nil:
		return errors.New("a consumer needs Kafka, a store and a settler")
	case c.Lanes < 1 || c.Batch < 1 || c.Batch > 5000:
		return errors.New("set the number of claim lanes to at least 1 and the claim batch between 1 and 5000")
	}
	return nil
}

// Consumer claims commands and settles them.
type Consumer struct {
	cfg   Config
	kafka *kafka.Consumer
	lanes []*lane
	// suspect says that commits may be lost: nothing new is sent before its
	// provider was asked.
	suspect atomic.Bool
}

// New returns a Consumer. It does nothing until Run.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg}
	for range cfg.Lanes {
		c.lanes = append(c.lanes, newLane(c))
	}
	group, err := cfg.Kafka.NewConsumer(kafka.ConsumerConfig{
		Group: cfg.Group, Topics: cfg.Topics, Handler: c.route, StartOffset: c.startOffset, StallTimeout: cfg.Stall,
		SessionTimeout: cfg.SessionTimeout, RebalanceTimeout: cfg.SessionTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the command consumer: %w", err)
	}
	c.kafka = group
	return c, nil
}

// Assigned returns the partitions this member owns, by topic.
func (c *Consumer) Assigned() map[string][]int { return c.kafka.Assigned() }

// Stats returns the state of the assigned partitions.
func (c *Consumer) Stats() []kafka.PartitionStats { return c.kafka.Stats() }

// Run consumes until ctx ends or no progress is possible. On the way out it
// stops fetching, lets the lanes finish what they claimed, and waits for the
// calls under way and their results.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.checkInstallation(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	// Lanes outlive the group, and the settler outlives the lanes: each stops when
	// nothing can reach it any more.
	laneCtx, stopLanes := context.WithCancel(context.WithoutCancel(ctx))
	settleCtx, stopSettler := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettler()
	defer stopLanes()
	var settler errgroup.Group
	settler.Go(func() error { return c.cfg.Settler.Run(settleCtx) })
	var lanes sync.WaitGroup
	for _, l := range c.lanes {
		lanes.Go(func() { l.run(laneCtx) })
	}
	lanes.Go(func() { c.watchSuspicion(laneCtx) })
	err := c.kafka.Run(ctx)
	stopLanes()
	lanes.Wait()
	stopSettler()
	return errors.Join(err, settler.Wait())
}

// checkInstallation notices a database that is not the one it was (a restore, a
// promoted standby): commits may be lost. It waits for one that does not answer.
func (c *Consumer) checkInstallation(ctx context.Context) error {
	var in store.Installation
	var refused error
	err := settle.UntilDone(ctx, func() (err error) {
		if in, err = c.cfg.Store.CheckInstallation(ctx); store.Unheard(err) {
			return err
		}
		refused = err
		return nil
	}, func(err error) {
		c.cfg.Logger.Warn().Err(err).Msg("the database cannot be reached at the start; trying again")
	})
	if err != nil { // ctx ended first
		return nil //nolint:nilerr // stopping is not a failure
	}
	if refused == nil {
		c.notice(in.Suspect)
	}
	return refused
}

func (c *Consumer) notice(suspect string) {
	if was := c.suspect.Swap(suspect != ""); suspect != "" && !was {
		c.cfg.Logger.Error().Str("reason", suspect).
			Msg("commits may be lost: new payments wait until their provider was asked; acknowledge with: settleonce recover")
	}
}

// watchSuspicion follows the database, other workers and operators. It only saves
// a claim from being made twice: each claim looks for itself.
func (c *Consumer) watchSuspicion(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if in, err := c.cfg.Store.CheckInstallation(ctx); err == nil {
			c.notice(in.Suspect)
		}
	}
}

// startOffset lets the lower of Kafka's and the stored offset win. A stored one
// behind Kafka's marks the installation suspect before the first record of the
// partition is seen.
func (c *Consumer) startOffset(ctx context.Context, topic string, partition int, committed int64) (int64, error) {
	start, err := c.cfg.Store.StartOffset(ctx, c.cfg.Group, store.Partition{Topic: topic, Number: partition}, committed)
	if err != nil {
		return 0, err
	}
	if start < committed {
		c.suspect.Store(true)
	}
	return start, nil
}

// route hands a partition's records to its lane, which keeps their order.
func (c *Consumer) route(ctx context.Context, batch []*kafka.Delivery) error {
	if len(batch) == 0 {
		return nil
	}
	l := c.lanes[batch[0].Partition%len(c.lanes)]
	select {
	case l.in <- batch:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
