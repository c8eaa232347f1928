package settle_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// counting is a channel that counts what is submitted.
type counting struct {
	silent

	submits *atomic.Int64
}

// Submit implements channel.Adapter.
func (c counting) Submit(context.Context, channel.Request) payment.Answer {
	c.submits.Add(1)
	return payment.Answer{Class: payment.ClassUnknown}
}

// TestG11_SendDoesNotStartLate: a worker that was stopped between its permit and its
// send lets it be, even where the deadline is not over: by then somebody else may
// have been told that nothing is on its way.
func TestG11_SendDoesNotStartLate(t *testing.T) {
	t.Parallel()
	adapter := counting{submits: &atomic.Int64{}}
	registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: adapter, Capabilities: promising().WithDefaults()}})
	require.NoError(t, err)
	settler, err := settle.New(settle.Config{
		Store: store.New(store.Config{Pool: pgtest.New(t, pgtest.Schema), Topics: payment.NewTopics(""), Logger: zerolog.Nop()}),
		Rules: settle.Rules{Channels: registry}, Logger: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- settler.Run(ctx) }()
	gate, ok := settler.Gate("sim")
	require.True(t, ok)
	require.Equal(t, 2, gate.Reserve(2).Granted)
	now := time.Now()
	for _, start := range []time.Time{now.Add(-time.Millisecond), now.Add(time.Minute)} {
		settler.Submit(settle.Permit{
			Payment: store.Payment{ID: uuid.New(), Channel: "sim"}, Lease: mine, Start: start, Deadline: now.Add(time.Minute), Actor: "test",
		})
	}
	stop()
	require.NoError(t, <-ended)
	require.EqualValues(t, 1, adapter.submits.Load(), "only the one in time")
}
