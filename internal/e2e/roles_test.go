package e2e_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/reconciler"
)

// role is one running role of the stack.
type role struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
	// fails says that the test looks at err itself.
	fails bool

	assigned func() map[string][]int
}

func (s *stack) launch(run func(context.Context) error) *role {
	ctx, cancel := context.WithCancel(s.ctx)
	r := &role{t: s.t, cancel: cancel, done: make(chan struct{}), assigned: func() map[string][]int { return nil }}
	go func() {
		defer close(r.done)
		r.err = run(ctx)
	}()
	s.t.Cleanup(r.stop)
	return r
}

// stop ends the role and waits for it; again does nothing.
func (r *role) stop() {
	r.cancel()
	<-r.done
	if !r.fails {
		require.NoError(r.t, r.err)
	}
}

// failure waits until the role ends by itself, and returns why.
func (r *role) failure() error {
	r.t.Helper()
	r.fails = true
	select {
	case <-r.done:
	case <-time.After(waitFor):
		require.Fail(r.t, "the role went on")
	}
	return r.err
}

// partitions is how many partitions the role's member owns.
func (r *role) partitions() int {
	n := 0
	for _, list := range r.assigned() {
		n += len(list)
	}
	return n
}

// owns waits until the role's member owns something.
func (r *role) owns() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.partitions() > 0 }, waitFor, tick, "no partition assigned")
}

func (s *stack) startRelay() {
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: s.pool, Kafka: s.kafka, Tracer: s.set.tracer, Logger: s.logs.logger()})
	require.NoError(s.t, err)
	s.relays = append(s.relays, s.launch(relay.Run))
}

func (s *stack) startConsumer() *role {
	cfg := consumer.Config{
		Kafka: s.kafka, Store: s.store, Settler: s.settler(), Callers: s.set.callers, Stall: s.set.stall,
		Metrics: telemetry.NewMetrics("test"), Tracer: s.set.tracer, Logger: s.logs.logger(),
	}
	if s.set.consumer != nil {
		s.set.consumer(s, &cfg)
	}
	c, err := consumer.New(cfg)
	require.NoError(s.t, err)
	r := s.launch(c.Run)
	r.assigned = c.Assigned
	s.consumers = append(s.consumers, r)
	return r
}

func (s *stack) startReconciler() *role {
	c, err := reconciler.New(reconciler.Config{
		Kafka: s.kafka, Store: s.store, Settler: s.settler(), Budget: s.set.budget, Batch: s.set.batch, Stall: s.set.stall,
		UnmatchedAfter: s.set.unmatched, Metrics: telemetry.NewMetrics("test"), Logger: s.logs.logger(),
	})
	require.NoError(s.t, err)
	r := s.launch(c.Run)
	r.assigned = c.Assigned
	s.reconcilers = append(s.reconcilers, r)
	return r
}

// stopAll stops roles at the same time.
func stopAll(roles ...*role) {
	for _, r := range roles {
		r.cancel()
	}
	for _, r := range roles {
		r.stop()
	}
}

// logs keeps the roles' warnings and errors for the test to look at.
type logs struct {
	t     testing.TB
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger() zerolog.Logger { return zerolog.New(l).Level(zerolog.WarnLevel) }

// Write takes one line.
func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, strings.TrimSpace(string(line)))
	if testing.Verbose() {
		l.t.Log(l.lines[len(l.lines)-1])
	}
	return len(line), nil
}

// with returns the lines that contain the text.
func (l *logs) with(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.lines), func(line string) bool { return !strings.Contains(line, text) })
}
