package downstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/downstream"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// message is the event as the relay publishes it.
func message(id uuid.UUID, version int, state payment.State, kind payment.EventType) kafka.Message {
	e := payment.Event{
		PaymentID: id, IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-1", Obligation: "order-1",
		Amount: 1999, Currency: "EUR", Channel: "sim", State: state, Version: version, Attempt: 1, OccurredAt: time.Now().UTC(),
	}
	return kafka.Message{
		Topic: payment.NewTopics("").Events, Key: id[:], Value: e.AppendJSON(nil),
		Headers: []kafka.Header{
			{Key: "ce_id", Value: []byte(payment.EventID(id, version, kind).String())},
			{Key: "ce_type", Value: []byte(kind)},
			{Key: "ce_time", Value: []byte(e.OccurredAt.Format(time.RFC3339Nano))},
		},
	}
}

// Each event is applied once, in order, with its effect, however often it comes.
func TestRun_AppliesEachEventOnce(t *testing.T) {
	t.Parallel()
	topics := payment.NewTopics("")
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topics.Events, topics.DeadLetter))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kafka.NewClient(kafka.Config{Brokers: cluster.ListenAddrs()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	publisher, err := client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close(context.Background())) })
	pool := pgtest.New(t, downstream.Migrate)
	require.NoError(t, downstream.Migrate(t.Context(), pool.Config().ConnString()), "a second time")

	id := uuid.New()
	first, second := message(id, 1, payment.Unknown, payment.EventUnknown), message(id, 2, payment.Succeeded, payment.EventSucceeded)
	last := message(uuid.New(), 1, payment.Declined, payment.EventDeclined)
	last.Key = id[:] // behind the others
	require.NoError(t, publisher.Publish(t.Context(), first, second, first, second, first, last))
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	for range 2 {
		running.Go(func() error {
			return downstream.Run(ctx, downstream.Config{DSN: pool.Config().ConnString(), Brokers: cluster.ListenAddrs()})
		})
	}
	count := func(sql string, args ...any) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count("SELECT count(*) FROM downstream.payments") == 2 }, 3*time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, running.Wait())
	require.Equal(t, 3, count("SELECT count(*) FROM downstream.applied"))
	require.Equal(t, 1, count("SELECT count(*) FROM downstream.payments WHERE payment = $1 AND state = 'succeeded' AND version = 2 AND times = 2", id))
}

func TestRun_RefusesWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, downstream.Run(t.Context(), downstream.Config{DSN: "postgres://%"}), "read the address")
	require.Error(t, downstream.Migrate(t.Context(), "postgres://%"))
}
