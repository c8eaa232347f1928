package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/consumer"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/reconciler"
)

// The roles by name.
const (
	roleConsumer   = "consumer"
	roleOutbox     = "outbox"
	roleReconciler = "reconciler"
	roleGateway    = "gateway"
)

// roleGroups are the settings that every role uses.
var roleGroups = []config.Group{
	config.GroupKafka, config.GroupTopics, config.GroupPostgres, config.GroupAdmin, config.GroupLog, config.GroupTracing,
}

func newConsumer(p process) *cobra.Command {
	cmd := newRole(p, roleConsumer, []string{roleConsumer})
	cmd.Short = "Claim commands, call the channel, and store the outcome"
	offer(cmd, config.GroupCallers, config.GroupConsumer, config.GroupReconciler, config.GroupChannel)
	return cmd
}

func newOutbox(p process) *cobra.Command {
	cmd := newRole(p, roleOutbox, []string{roleOutbox})
	cmd.Short = "Publish replies, events and wake-ups from the database to Kafka"
	offer(cmd, config.GroupCallers, config.GroupRelay)
	offerOne(cmd, "window")
	return cmd
}

func newReconciler(p process) *cobra.Command {
	cmd := newRole(p, roleReconciler, []string{roleReconciler})
	cmd.Short = "Find out what became of payments without an answer"
	offer(cmd, config.GroupCallers, config.GroupConsumer, config.GroupReconciler, config.GroupChannel)
	return cmd
}

func newAll(p process) *cobra.Command {
	cmd := newRole(p, "all", []string{roleOutbox, roleReconciler, roleConsumer})
	cmd.Short = "Run every role in one process"
	offer(cmd, config.GroupCallers, config.GroupConsumer, config.GroupRelay, config.GroupReconciler, config.GroupChannel)
	return cmd
}

func newRole(p process, name string, roles []string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, GroupID: sectionRoles, Args: cobra.NoArgs,
		Example: fmt.Sprintf("  settleonce %[1]s --kafka-brokers kafka:9092 --postgres-dsn-file /run/secrets/dsn\n"+
			"  settleonce %[1]s --config /etc/settleonce.yaml\n"+
			"  settleonce health --ready          ask it whether it works", name),
		Long: "Before it works it checks Kafka, the topics, the database's version and its durability. Any number\n" +
			"may run: they share the work. The first signal finishes what is under way, a second one stops at once;\n" +
			"nothing is lost either way.",
	}
	offer(cmd, roleGroups...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load(cmd, p)
		if err != nil {
			return err
		}
		if err := crashpoint.Arm(p.variable(crashpoint.Variable)); err != nil {
			return asUsage(err)
		}
		tuneMemory()
		w, err := openWorker(cmd.Context(), p, &l.Config, name)
		if err != nil {
			return err
		}
		defer w.close()
		return w.runRoles(cmd.Context(), roles...)
	}
	return cmd
}

// runRoles builds the roles, then runs them.
func (w *worker) runRoles(ctx context.Context, names ...string) error {
	r := &roleSet{worker: w}
	w.store = store.New(store.Config{Pool: w.pool, Topics: w.topics, Wake: r.wake(), Named: w.named, Logger: w.log})
	if slices.Contains(names, roleConsumer) || slices.Contains(names, roleGateway) {
		if err := checkCallers(ctx, w); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := r.build(ctx, name); err != nil {
			return fmt.Errorf("role %s: %w", name, err)
		}
	}
	r.observe()
	return w.run(ctx, r.roles...)
}

// roleSet builds the roles of one process.
type roleSet struct {
	*worker

	roles []role
	relay *outbox.Relay
	waker *outbox.Waker
	// stats of the consuming roles, and after how long a stuck record is a fault.
	stats []func() []kafka.PartitionStats
}

func (r *roleSet) build(ctx context.Context, name string) error {
	var run func(context.Context) error
	var err error
	switch name {
	case roleConsumer:
		run, err = r.consumer()
	case roleOutbox:
		run, err = r.outbox()
	case roleReconciler:
		run, err = r.reconciler()
	case roleGateway:
		run, err = r.gateway(ctx)
	default:
		return errors.New("there is no such role")
	}
	if err == nil {
		r.roles = append(r.roles, role{name: name, run: run, last: name == roleOutbox})
	}
	return err
}

// wake tells the relay here at once, and those of other processes where this one
// does not own every shard.
func (r *roleSet) wake() func() {
	r.waker = outbox.NewWaker(r.pool)
	r.roles = append(r.roles, role{name: "waker", last: true, run: func(ctx context.Context) error {
		r.waker.Run(ctx)
		return nil
	}})
	return func() {
		if r.relay != nil {
			r.relay.Wake()
			if r.relay.Stats().Shards == outbox.Shards {
				return
			}
		}
		r.waker.Wake()
	}
}

func (r *roleSet) consumer() (func(context.Context) error, error) {
	settler, err := r.settler()
	if err != nil {
		return nil, err
	}
	source, err := r.callerSource()
	if err != nil {
		return nil, err
	}
	c, err := consumer.New(consumer.Config{
		Kafka: r.kafka, Store: r.store, Settler: settler, Topics: r.cfg.Callers.CommandTopics(r.cfg.Topics.Prefix),
		Group: r.cfg.Topics.Prefix + "settleonce-consumer", Callers: source.callers, Registered: source.registered, Signatures: source.signatures,
		Lanes: r.cfg.Consumer.Claimers, Batch: r.cfg.Consumer.Batch, Stall: r.cfg.Consumer.StallTimeout,
		SessionTimeout: r.cfg.Consumer.SessionTimeout, Announce: r.cfg.Consumer.Announce,
		Metrics: r.metrics, Tracer: r.tracer, Logger: r.log,
	})
	if err != nil {
		return nil, err
	}
	r.stats = append(r.stats, c.Stats)
	return c.Run, nil
}

func (r *roleSet) reconciler() (func(context.Context) error, error) {
	settler, err := r.settler()
	if err != nil {
		return nil, err
	}
	c := &r.cfg.Reconciler
	rec, err := reconciler.New(reconciler.Config{
		Kafka: r.kafka, Store: r.store, Settler: settler, Topics: r.topics.Requery,
		Group: r.cfg.Topics.Prefix + "settleonce-reconciler", Budget: store.QueryPolicy{Share: c.QueryShare, Floor: c.QueryFloor},
		SessionTimeout: r.cfg.Consumer.SessionTimeout, SweepEvery: c.SweepEvery, Batch: c.SweepBatch, Queries: c.MaxInFlight, CleanEvery: c.RetentionEvery,
		Callbacks: r.topics.Callbacks, UnmatchedAfter: c.UnmatchedAfter,
		Metrics: r.metrics, Logger: r.log,
	})
	if err != nil {
		return nil, err
	}
	r.stats = append(r.stats, rec.Stats)
	return rec.Run, nil
}

func (r *roleSet) outbox() (func(context.Context) error, error) {
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Pool: r.pool, Kafka: r.kafka, TransactionalPrefix: r.cfg.Topics.Prefix, Source: "settleonce",
		BatchSize: r.cfg.Relay.Batch, Lease: r.cfg.Relay.Lease, Poll: r.cfg.Relay.Poll, Tracer: r.tracer, Logger: r.log,
	})
	if err != nil {
		return nil, err
	}
	r.relay = relay
	return relay.Run, nil
}

// settler is one per role: each drains when its role does.
func (r *roleSet) settler() (*settle.Settler, error) {
	c := r.cfg
	return settle.New(settle.Config{
		Store: r.store, Finalizers: c.Consumer.Finalizers, Batch: c.Consumer.FinalizeBatch, DrainTimeout: c.Consumer.DrainTimeout,
		Metrics: r.metrics, Tracer: r.tracer, Logger: r.log,
		Rules: settle.Rules{
			Channels:    r.channels,
			RepayNamed:  func(namespace string) bool { return slices.Contains(c.Callers.RepayNamed, namespace) },
			Freshness:   payment.Freshness{Window: c.Consumer.Window, Skew: c.Consumer.Skew},
			ParkedLimit: c.Reconciler.ParkedLimit, ReviewAfter: c.Reconciler.ReviewAfter,
			WatchEvery: c.Reconciler.WatchFirst, WatchAtMost: c.Reconciler.WatchMax, Lease: c.Consumer.Lease,
		},
	})
}

// observe connects the roles with metrics and probes.
func (r *roleSet) observe() {
	if len(r.stats) > 0 {
		r.metrics.CollectLag(r.lag)
	}
	if r.relay != nil {
		r.metrics.CollectRelay(r.relayStats)
	}
	if r.admin == nil {
		return
	}
	r.admin.Live("watchdog", r.watchdog)
	r.admin.Ready("fetch", r.fetching)
}

func (r *roleSet) partitions() []kafka.PartitionStats {
	var all []kafka.PartitionStats
	for _, stats := range r.stats {
		all = append(all, stats()...)
	}
	return all
}

func (r *roleSet) lag() []telemetry.PartitionLag {
	var lag []telemetry.PartitionLag
	for _, s := range r.partitions() {
		lag = append(lag, telemetry.PartitionLag{Topic: s.Topic, Partition: s.Partition, Messages: s.Lag, Age: s.LagTime})
	}
	return lag
}

func (r *roleSet) relayStats() telemetry.RelayStats {
	s := r.relay.Stats()
	return telemetry.RelayStats{
		Published: s.Published, PublishErrors: s.PublishErrors, DatabaseErrors: s.DatabaseErrors, Parked: s.Parked,
		Fenced: s.Fenced, LostLeases: s.LostLeases, ProducerChanges: s.ProducerChanges, Shards: s.Shards,
	}
}

// watchdog stands behind the roles' own: a process that should have ended
// because a partition hangs, and has not, is to be killed.
func (r *roleSet) watchdog(context.Context) error {
	for _, s := range r.partitions() {
		if s.OldestInFlight > 2*r.cfg.Consumer.StallTimeout {
			return fmt.Errorf("%s/%d made no progress for %s", s.Topic, s.Partition, s.OldestInFlight.Round(time.Second))
		}
	}
	return nil
}

// fetchSilence is how long an owned partition may go without an answer.
const fetchSilence = time.Minute

func (r *roleSet) fetching(context.Context) error {
	for _, s := range r.partitions() {
		if !s.FetchedAt.IsZero() && time.Since(s.FetchedAt) > fetchSilence {
			return fmt.Errorf("%s/%d had no answer from Kafka for %s", s.Topic, s.Partition, time.Since(s.FetchedAt).Round(time.Second))
		}
	}
	return nil
}

// callerRules are the configured callers, for topics under a prefix.
type callerRules struct {
	*config.Callers

	prefix string
}

// May reports whether the topic may carry the caller's commands.
func (c callerRules) May(topic, caller string) bool { return c.Callers.May(c.prefix, topic, caller) }
