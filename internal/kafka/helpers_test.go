package kafka_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

func newClient(t testing.TB, cfg kafka.Config) *kafka.Client {
	t.Helper()
	client, err := kafka.NewClient(cfg)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func handTo(got chan<- *kafka.Delivery) kafka.Handler {
	return func(ctx context.Context, batch []*kafka.Delivery) error {
		for _, d := range batch {
			select {
			case got <- d:
				d.Finish()
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
}

// run runs the consumer until the test ends.
func run(t testing.TB, c *kafka.Consumer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}
