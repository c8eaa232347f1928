package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer/edge"
)

// startTimeout bounds the checks at the start of a role.
const startTimeout = 30 * time.Second

// worker is what the roles of one process share: one pool, one Kafka client, one
// registry of channels.
type worker struct {
	cfg      *config.Config
	log      zerolog.Logger
	metrics  *telemetry.Metrics
	tracer   *tracing.Tracer // nil: off
	admin    *telemetry.Admin
	pool     *pgxpool.Pool
	kafka    *kafka.Client
	store    *store.Store
	topics   payment.Topics
	channels *channel.Registry

	// edge is the gateway's, once it listens.
	edge *edge.Server
	// guest is who may use the edge beside the callers of the table; nil for nobody.
	guest *edge.StaticCallers
	// started is called once the admin endpoints listen; nil for nobody.
	started func()
	closers []func()
	// verifies says that the process takes callbacks: only then are their secrets read.
	verifies bool
	// quiet leaves out what a development stack need not be told.
	quiet bool
}

// openWorker connects, checks the preconditions of the guarantees, and returns
// what roles need. The role's name shows in logs and in pg_stat_activity.
func openWorker(ctx context.Context, p process, c *config.Config, role string) (*worker, error) {
	log, err := newLogger(p, c)
	if err != nil {
		return nil, err
	}
	w := &worker{
		cfg: c, log: log.With().Str("role", role).Logger(),
		metrics: telemetry.NewMetrics(buildInfo().Version), topics: topicNames(c),
		quiet: role == devRole, verifies: role == "gateway" || role == "all" || role == devRole,
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the start took longer than %s", startTimeout))
	defer cancel()
	if err := w.open(ctx, role); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *worker) open(ctx context.Context, role string) error {
	var err error
	if err = w.openTracer(ctx); err != nil {
		return err
	}
	if w.channels, err = w.openChannels(); err != nil {
		return err
	}
	if w.kafka, err = openKafka(ctx, w.cfg, w.log); err != nil {
		return err
	}
	w.closers = append(w.closers, w.kafka.Close)
	if w.pool, err = openPool(ctx, w.cfg, role); err != nil {
		return err
	}
	w.closers = append(w.closers, w.pool.Close)
	w.store = store.New(store.Config{Pool: w.pool, Topics: w.topics, Logger: w.log})
	if err := checkStart(ctx, w); err != nil {
		return err
	}
	return w.openAdmin()
}

func (w *worker) close() {
	for _, end := range slices.Backward(w.closers) {
		end()
	}
}

// openTracer comes first, so that it is closed last.
func (w *worker) openTracer(ctx context.Context) error {
	t := &w.cfg.Tracing
	var err error
	w.tracer, err = tracing.Open(ctx, tracing.Config{
		Endpoint: t.Endpoint, Ratio: t.SampleRatio, Service: t.ServiceName, Version: buildInfo().Version, Logger: w.log,
	})
	if err != nil {
		return asUsage(err)
	}
	w.closers = append(w.closers, w.tracer.Close)
	return nil
}

func (w *worker) openChannels() (*channel.Registry, error) {
	entries := make(map[string]channel.Entry, len(w.cfg.Channels))
	for name, c := range w.cfg.Channels {
		if c.Type == config.ChannelInstant {
			entries[name] = channel.Entry{Adapter: sim.NewInstant(), Capabilities: c.Capabilities}
			continue
		}
		signing, err := w.signing(&c)
		if err != nil {
			return nil, asUsage(err)
		}
		adapter, err := sim.NewAdapter(sim.AdapterConfig{
			BaseURL: c.URL, Capabilities: c.Capabilities, MaxIdle: c.Capabilities.MaxInFlight, Callbacks: signing,
		})
		if err != nil {
			return nil, asUsage(fmt.Errorf("channel %s: %w", name, err))
		}
		w.closers = append(w.closers, adapter.Close)
		entries[name] = channel.Entry{Adapter: adapter, Capabilities: c.Capabilities}
	}
	registry, err := channel.NewRegistry(entries)
	return registry, asUsage(err)
}

// signing is what the channel's callbacks are verified with.
func (w *worker) signing(c *config.Channel) (channel.CallbackSigning, error) {
	if !w.verifies {
		return channel.CallbackSigning{}, nil
	}
	return c.CallbackSigning()
}

// named reports whether callbacks of a channel repeat less than our payment id.
func (w *worker) named(channel string) bool { return w.cfg.Channels[channel].CallbackNames }

func (w *worker) openAdmin() error {
	w.metrics.CollectSnapshot(snapshotOf(w.store), w.log)
	w.metrics.CollectPool(w.poolStats)
	if w.cfg.Admin.Address == "" {
		return nil
	}
	var err error
	w.admin, err = telemetry.NewAdmin(telemetry.AdminConfig{
		Address: w.cfg.Admin.Address, PProf: w.cfg.Admin.PProf, Metrics: w.metrics, Log: w.log,
	})
	if err != nil {
		return err
	}
	w.admin.Ready("kafka", remember(5*time.Second, w.kafka.Ping))
	w.admin.Ready("postgres", w.pool.Ping)
	w.admin.Ready("migrations", remember(30*time.Second, func(ctx context.Context) error { return checkMigrations(ctx, w.pool) }))
	return nil
}

// role is one of the jobs of a process. Run drains when its context ends.
type role struct {
	name string
	run  func(context.Context) error
	// last ends after the others have drained: it publishes what they left.
	last bool
}

// run runs the roles and the admin endpoints until ctx ends or one of them
// fails; then all drain. The endpoints answer until the last role has drained.
func (w *worker) run(ctx context.Context, roles ...role) error {
	ended, endAdmin := context.WithCancel(context.WithoutCancel(ctx))
	defer endAdmin()
	served := make(chan error, 1)
	if err := w.serveAdmin(ended, served); err != nil {
		return err
	}
	if w.admin != nil {
		defer context.AfterFunc(ctx, w.admin.Drain)()
	}
	if w.started != nil {
		w.started()
	}
	err := runStages(ctx, roles, w.log)
	endAdmin()
	return errors.Join(err, <-served)
}

// runStages runs all roles at once, and ends those that are last after the rest.
func runStages(ctx context.Context, roles []role, log zerolog.Logger) error {
	ctx, endFirst := context.WithCancel(ctx)
	defer endFirst()
	lastCtx, endLast := context.WithCancel(context.WithoutCancel(ctx))
	defer endLast()
	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() error {
		<-firstCtx.Done() // so that the first stage lasts as long as it is wanted
		return nil
	})
	var last errgroup.Group
	for _, r := range roles {
		if r.last {
			last.Go(func() error {
				defer endFirst()
				return r.start(lastCtx, log)
			})
			continue
		}
		first.Go(func() error { return r.start(firstCtx, log) })
	}
	err := first.Wait()
	endLast()
	return errors.Join(err, last.Wait())
}

func (r role) start(ctx context.Context, log zerolog.Logger) error {
	log.Info().Msg(r.name + " runs")
	if err := r.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("role %s: %w", r.name, err)
	}
	return nil
}

func (w *worker) serveAdmin(ctx context.Context, served chan<- error) error {
	if w.admin == nil {
		served <- nil
		return nil
	}
	if err := w.admin.Listen(ctx); err != nil {
		return err
	}
	go func() { served <- w.admin.Run(ctx) }()
	return nil
}

func (w *worker) poolStats() telemetry.PoolStats {
	s := w.pool.Stat()
	return telemetry.PoolStats{
		InUse: s.AcquiredConns(), Idle: s.IdleConns(), Max: s.MaxConns(), Waits: s.EmptyAcquireCount(), WaitTime: s.EmptyAcquireWaitTime(),
	}
}

// snapshotOf turns the store's overview into gauges.
func snapshotOf(s *store.Store) telemetry.SnapshotFunc {
	return func(ctx context.Context) (telemetry.Snapshot, error) {
		o, err := s.Overview(ctx)
		if err != nil {
			return telemetry.Snapshot{}, err
		}
		snapshot := telemetry.Snapshot{
			OldestUnresolved: make(map[string]time.Duration), RetryQueue: make(map[string]int64), ReviewItems: o.Reviews,
			OutboxPending: o.Outbox, OutboxParked: o.OutboxParked, OutboxOldest: o.OutboxOldest, Suspect: o.Suspect,
			UnmatchedCallbacks: o.UnmatchedCallbacks,
		}
		addOpen(&snapshot, o.Open)
		for _, c := range o.Channels {
			snapshot.Channels = append(snapshot.Channels, telemetry.ChannelState(c))
		}
		return snapshot, nil
	}
}

// addOpen sums the counts of unresolved payments up, once by state and age and
// once by the query they wait for.
func addOpen(snapshot *telemetry.Snapshot, open []store.OpenCount) {
	ages := make(map[telemetry.UnresolvedCount]int64)
	for _, c := range open {
		state := c.State.String()
		ages[telemetry.UnresolvedCount{State: state, Age: c.Age}] += c.Count
		snapshot.OldestUnresolved[state] = max(snapshot.OldestUnresolved[state], c.Oldest)
		if c.State == payment.Unknown && c.Queries < len(payment.Tiers) {
			snapshot.RetryQueue[payment.Tiers[c.Queries].String()] += c.Count
		}
	}
	for key, n := range ages {
		key.Count = n
		snapshot.Unresolved = append(snapshot.Unresolved, key)
	}
}
