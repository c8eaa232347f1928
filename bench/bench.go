// Package bench measures the whole path: a command is published to Kafka, and its
// outcome event is read back from Kafka. Workers and channel simulator are
// processes of their own; load generator and reader are here. Correctness is
// counted beside speed, from the simulator's ledger and the topics alone.
package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
)

// Config is one measurement.
type Config struct {
	Fleet fleet.Config
	// Warm is run before the measurement, Duration is measured. Default to 3 and 10 s.
	Warm, Duration time.Duration
	// Rate is commands per second, at fixed times; 0 sends as fast as Window
	// allows.
	Rate float64
	// Window is the commands that may be without an outcome at once. Defaults to 2048.
	Window int
	// Duplicates is the share of deliveries that repeat a recent command. Defaults
	// to 0.1; negative means none.
	Duplicates float64
	// Latency of the channel.
	Latency time.Duration
	// Instant replaces the HTTP channel by one in the worker's own process.
	Instant bool
	// Workers is the number of worker processes, each with every role. Defaults to 1.
	Workers int
	// InFlight is the calls under way at once in a worker. Defaults to 512, or to
	// 2048 with a Latency.
	InFlight int
	// Env is added to the workers' environment.
	Env []string
	// Progress is told what is going on; nil for nobody.
	Progress func(Progress)
}

// Progress is told about once a second.
type Progress struct {
	Phase    string
	Elapsed  time.Duration
	Outcomes int64
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if c.Warm == 0 {
		c.Warm = 3 * time.Second
	}
	if c.Duration == 0 {
		c.Duration = 10 * time.Second
	}
	if c.Window == 0 {
		c.Window = 2048
	}
	if c.Duplicates == 0 {
		c.Duplicates = 0.1
	}
	c.Duplicates = max(0, c.Duplicates)
	if c.Workers == 0 {
		c.Workers = 1
	}
	if c.InFlight == 0 {
		c.InFlight = 512
		if c.Latency > 0 {
			c.InFlight = 2048
		}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c Config) Validate() error {
	switch {
	case c.Duplicates >= 1:
		return errors.New("set the share of duplicates below 1")
	case c.Rate < 0 || c.Window < 1 || c.Workers < 1 || c.Latency < 0:
		return errors.New("set rate and latency to 0 or more, and window and workers to at least 1")
	case c.Instant && c.Latency > 0:
		return errors.New("the instant channel has no latency: leave one of the two out")
	}
	return nil
}

// drainFor bounds the wait for outstanding outcomes at the end.
const drainFor = 30 * time.Second

// Run starts a fleet, measures, checks, and stops it.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	cfg.Fleet.SimBehaviour = fmt.Sprintf(`{"latency":%q}`, cfg.Latency)
	f, err := fleet.Start(ctx, cfg.Fleet)
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if stopErr := f.Stop(stopping); err == nil {
			err = stopErr
		}
	}()
	if err != nil {
		return Report{}, err
	}
	workers, err := startWorkers(ctx, f, cfg)
	if err != nil {
		return Report{}, err
	}
	report, err := measure(ctx, f, cfg, workers)
	return report, err
}

func startWorkers(ctx context.Context, f *fleet.Fleet, cfg Config) ([]*fleet.Child, error) {
	env := append([]string{
		"SETTLEONCE_LOG_LEVEL=warn", fmt.Sprintf("SETTLEONCE_CHANNEL_MAX_IN_FLIGHT=%d", cfg.InFlight),
	}, cfg.Env...)
	if cfg.Instant {
		env = append(env, "SETTLEONCE_CHANNEL_TYPE=instant")
	}
	workers := make([]*fleet.Child, cfg.Workers)
	for i := range workers {
		w, err := f.StartWorker(ctx, "all", i+1, env...)
		if err != nil {
			return nil, err
		}
		workers[i] = w
	}
	return workers, nil
}

func measure(ctx context.Context, f *fleet.Fleet, cfg Config, workers []*fleet.Child) (Report, error) {
	run, err := newLoad(f.Client(), cfg)
	if err != nil {
		return Report{}, err
	}
	defer run.close()
	if err := run.watch(ctx); err != nil {
		return Report{}, err
	}
	sending, stopSending := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() { sent <- run.generate(sending) }()
	run.pass(ctx, "warm-up", cfg.Warm)
	from := run.snapshot(workers)
	run.measuring.Store(true)
	run.pass(ctx, "measuring", cfg.Duration)
	run.measuring.Store(false)
	to := run.snapshot(workers)
	stopSending()
	if err := <-sent; err != nil {
		return Report{}, err
	}
	run.drain(ctx)
	report := newReport(cfg, f.Brokers(), run, from, to)
	if err := report.check(ctx, f, run); err != nil {
		return report, err
	}
	return report, ctx.Err()
}
