package kafkatest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

// member is a running consumer that keeps what it was given.
type member struct {
	consumer *kafka.Consumer
	stop     context.CancelFunc
	ended    chan error

	mu     sync.Mutex
	got    []*kafka.Delivery
	sizes  []int
	finish bool
}

// join starts a consumer. Without a handler in cfg it keeps the deliveries, and
// finishes them at once when finish is set.
func (s *suite) join(t *testing.T, cfg kafka.ConsumerConfig, finish bool) *member {
	t.Helper()
	return s.joinWith(t, s.client, cfg, finish)
}

func (s *suite) joinWith(t *testing.T, client *kafka.Client, cfg kafka.ConsumerConfig, finish bool) *member {
	t.Helper()
	m := &member{ended: make(chan error, 1), finish: finish}
	if cfg.Group == "" {
		cfg.Group = s.group("")
	}
	inner := cfg.Handler
	cfg.Handler = func(ctx context.Context, batch []*kafka.Delivery) error {
		m.keep(batch)
		if inner != nil {
			return inner(ctx, batch)
		}
		return nil
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = session
	}
	if cfg.RebalanceTimeout == 0 {
		cfg.RebalanceTimeout = rebalance
	}
	if cfg.HeartbeatInterval == 0 {
		cfg.HeartbeatInterval = 100 * time.Millisecond
	}
	if cfg.JoinGroupBackoff == 0 {
		cfg.JoinGroupBackoff = 100 * time.Millisecond
	}
	if cfg.CommitInterval == 0 {
		cfg.CommitInterval = 20 * time.Millisecond
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 200 * time.Millisecond
	}
	consumer, err := client.NewConsumer(cfg)
	require.NoError(t, err)
	m.consumer = consumer
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	m.stop = cancel
	go func() { m.ended <- consumer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if m.ended != nil {
			require.NoError(t, <-m.ended)
		}
	})
	return m
}

func (m *member) keep(batch []*kafka.Delivery) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got = append(m.got, batch...)
	m.sizes = append(m.sizes, len(batch))
	if m.finish {
		kafka.Finish(batch)
	}
}

// leave stops the consumer, waits for it and returns its error.
func (m *member) leave(t *testing.T) error {
	t.Helper()
	m.stop()
	return m.wait(t)
}

func (m *member) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-m.ended:
		m.ended = nil
		return err
	case <-time.After(patience):
		require.FailNow(t, "the consumer did not end")
		return nil
	}
}

func (m *member) deliveries() []*kafka.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*kafka.Delivery(nil), m.got...)
}

// of returns the deliveries of one partition.
func (m *member) of(partition int) []*kafka.Delivery {
	var out []*kafka.Delivery
	for _, d := range m.deliveries() {
		if d.Partition == partition {
			out = append(out, d)
		}
	}
	return out
}

func (m *member) waitFor(t *testing.T, n int) []*kafka.Delivery {
	t.Helper()
	eventually(t, func() bool { return len(m.deliveries()) >= n }, "%d deliveries", n)
	return m.deliveries()
}

func (m *member) owns(topic string) []int { return m.consumer.Assigned()[topic] }

func values(ds []*kafka.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = string(d.Value)
	}
	return out
}
