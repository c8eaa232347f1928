package settle_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// patience is for what must come: nothing is timed by it.
const patience = 5 * time.Minute

// A process that sends nothing takes no more from the channel's rate limit than it
// can hold: the others would be left with a part of it.
func TestIdleGateLeavesTheRateLimitAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	channels, err := channel.NewRegistry(map[string]channel.Entry{
		"sim": {Adapter: neverCalled{}, Capabilities: channel.Capabilities{Identity: "sim/test", RateLimit: 10}.WithDefaults()},
	})
	require.NoError(t, err)
	settler, err := settle.New(settle.Config{
		Store: store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()}),
		Rules: settle.Rules{Channels: channels}, Logger: zerolog.Nop(),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- settler.Run(ctx) }()
	gate, ok := settler.Gate("sim")
	require.True(t, ok)
	const holds = 3 // a quarter of a second's worth
	require.Eventually(t, func() bool {
		granted := gate.Reserve(10).Granted
		gate.Release(granted, granted)
		return granted == holds
	}, patience, 10*time.Millisecond, "it takes what it can hold")
	var last time.Time
	still := 0
	require.Eventually(t, func() bool {
		var at time.Time
		err := pool.QueryRow(t.Context(), `SELECT submits_refilled_at FROM settleonce.channel_budgets`).Scan(&at)
		if err != nil || !at.Equal(last) {
			last, still = at, 0
			return false
		}
		still++
		return still == 3
	}, patience, 300*time.Millisecond, "and no more")
	require.Equal(t, holds, gate.Reserve(10).Granted)
	stop()
	require.NoError(t, <-ended)
}

// neverCalled is a channel that is never called.
type neverCalled struct{ channel.Adapter }
