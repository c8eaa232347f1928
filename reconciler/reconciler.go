// Package reconciler finds out what became of payments without an answer.
//
// A payment that was sent, or may have been, and has no authoritative answer is
// unknown: it is asked about three times (1 s, 4 s, 16 s), then handed to a
// person, and watched on until there is evidence. The delay topics only wake the
// reconciler up; when to look is written in the database, and a sweep picks up
// whatever is overdue: lost wake-ups, payments of dead workers, parked ones.
// Queries stay under a budget that all instances share (G13).
package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/payment"
)

// Config is what a Reconciler needs.
type Config struct {
	Kafka   *kafka.Client
	Store   *store.Store
	Settler *settle.Settler
	// Topics are the delay topics to consume. Defaults to payment.requery.*.
	Topics [3]string
	// Callbacks is the topic that announces callbacks. Defaults to
	// payment.callbacks.
	Callbacks string
	// UnmatchedAfter is how long a callback may match no payment before a person is
	// told. Defaults to 4 hours.
	UnmatchedAfter time.Duration
	// Group is the consumer group. Defaults to "settleonce-reconciler".
	Group string
	// SessionTimeout is how long the group waits for a silent member, and for
	// members to rejoin. Defaults to 10 s.
	SessionTimeout time.Duration
	// Budget bounds queries per channel over all instances.
	Budget store.QueryPolicy
	// SweepEvery is how often overdue checks are looked for; a check is overdue
	// when its wake-up is late by as much. Defaults to 250 ms.
	SweepEvery time.Duration
	// Batch is the most payments picked at once. Defaults to 200.
	Batch int
	// Queries is the most queries under way at once. Defaults to 128.
	Queries int
	// CleanEvery is how often keys that nothing can bring back are removed.
	// Defaults to 1 hour.
	CleanEvery time.Duration
	// Stall ends Run with kafka.ErrStalled when picking payments hangs that long.
	// Defaults to 2 minutes.
	Stall   time.Duration
	Metrics *telemetry.Metrics
	Logger  zerolog.Logger
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if c.Topics == [3]string{} {
		c.Topics = payment.NewTopics("").Requery
	}
	if c.Callbacks == "" {
		c.Callbacks = payment.NewTopics("").Callbacks
	}
	if c.UnmatchedAfter == 0 {
		c.UnmatchedAfter = 4 * time.Hour
	}
	if c.Group == "" {
		c.Group = "settleonce-reconciler"
	}
	c.Budget = c.Budget.WithDefaults()
	if c.SweepEvery == 0 {
		c.SweepEvery = 250 * time.Millisecond
	}
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.Queries == 0 {
		c.Queries = 128
	}
	if c.CleanEvery == 0 {
		c.CleanEvery = time.Hour
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
		return errors.New("a reconciler needs Kafka, a store and a settler")
	case c.SweepEvery < 10*time.Millisecond:
		return errors.New("set the sweep interval to at least 10ms")
	case c.Batch < 1 || c.Queries < 1:
		return errors.New("set the reconciler's batch and its queries under way to at least 1")
	case c.UnmatchedAfter < 0:
		return errors.New("set the time after which an unmatched callback is reported to 0 or more")
	case c.Stall < time.Second:
		return errors.New("set the reconciler's stall limit to at least 1s")
	}
	return c.Budget.Validate()
}

// Reconciler resolves payments without an answer.
type Reconciler struct {
	cfg    Config
	kafka  *kafka.Consumer
	alarms *alarms
	asking chan struct{} // a token per query under way
	rung   chan struct{} // a callback was announced

	ringing, sweeping, hearing pulse
}

// New returns a Reconciler. It does nothing until Run.
func New(cfg Config) (*Reconciler, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Reconciler{cfg: cfg, alarms: newAlarms(), asking: make(chan struct{}, cfg.Queries), rung: make(chan struct{}, 1)}
	r.ringing.what, r.sweeping.what, r.hearing.what = "picking woken payments", "the sweep of overdue payments", "the look at callbacks"
	group, err := cfg.Kafka.NewConsumer(kafka.ConsumerConfig{
		Group: cfg.Group, Topics: append(cfg.Topics[:], cfg.Callbacks), Handler: r.wake, MaxInFlight: 5000,
		SessionTimeout: cfg.SessionTimeout, RebalanceTimeout: cfg.SessionTimeout,
		// A wake-up that waits for its time must not hold up a rebalance: the next
		// owner gets it again.
		DrainTimeout: 10 * time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare the delay-topic consumer: %w", err)
	}
	r.kafka = group
	return r, nil
}

// Assigned returns the partitions this member owns, by topic.
func (r *Reconciler) Assigned() map[string][]int { return r.kafka.Assigned() }

// Stats returns the state of the assigned partitions.
func (r *Reconciler) Stats() []kafka.PartitionStats { return r.kafka.Stats() }

// Run reconciles until ctx ends, the delay topics cannot be consumed, or the
// database hangs. On the way out it stops picking and waits for the queries and
// sends under way.
func (r *Reconciler) Run(ctx context.Context) error {
	given := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	loopCtx, stopLoops := context.WithCancel(ctx)
	settleCtx, stopSettler := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettler()
	defer stopLoops()
	var settler errgroup.Group
	settler.Go(func() error { return r.cfg.Settler.Run(settleCtx) })
	var loops sync.WaitGroup
	loops.Go(func() { r.ring(loopCtx) })
	loops.Go(func() { r.sweep(loopCtx) })
	loops.Go(func() { r.hear(loopCtx) })
	loops.Go(func() { r.clean(loopCtx) })
	loops.Go(func() { r.watchdog(loopCtx, fail) })
	err := r.kafka.Run(ctx)
	if err == nil && given.Err() == nil {
		err = context.Cause(ctx)
	}
	stopLoops()
	loops.Wait()
	stopSettler()
	return errors.Join(err, settler.Wait())
}

// sweep picks what is overdue. It looks again at once while there is more than a
// batch of it.
func (r *Reconciler) sweep(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for picked := r.cfg.Batch; picked == r.cfg.Batch; {
			r.sweeping.step(func() { picked = r.sweepOnce(ctx) })
		}
	}
}

func (r *Reconciler) sweepOnce(ctx context.Context) int {
	lease := newLease()
	ids, err := r.cfg.Store.PickDue(ctx, lease, r.cfg.Settler.Rules().Lease, r.cfg.SweepEvery, r.cfg.Batch)
	if err != nil {
		r.warn(ctx, err, "sweep")
		return 0
	}
	r.check(ctx, lease, ids, nil)
	return len(ids)
}

// clean removes keys that nothing can bring back any more (G14), in small
// batches.
func (r *Reconciler) clean(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.CleanEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		removed, err := r.cfg.Store.RemoveExpired(ctx, r.cfg.Settler.Rules().Freshness)
		if err != nil {
			r.warn(ctx, err, "remove expired keys")
		}
		for table, n := range removed {
			r.cfg.Metrics.Removed(table, n)
		}
	}
}

func (r *Reconciler) warn(ctx context.Context, err error, what string) {
	if err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn().Err(err).Msg(what)
	}
}
