package producer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

const partitions = 16

func TestMain(m *testing.M) { pgtest.Main(m) }

// intent is a valid one, changed as a test needs it.
func intent(change func(*producer.Intent)) producer.Intent {
	i := producer.Intent{
		Caller: "shop", OrderID: "order-1001", Amount: 1999, Currency: "EUR", CustomerID: "cust-7",
		PaymentMethod: "tok_visa", Channel: "sim",
	}
	if change != nil {
		change(&i)
	}
	return i
}

func commands(t *testing.T, n int) []payment.Command {
	t.Helper()
	cmds := make([]payment.Command, n)
	for i := range cmds {
		var err error
		cmds[i], err = producer.NewCommand(intent(func(in *producer.Intent) { in.OrderID = fmt.Sprintf("order-%d", i) }))
		require.NoError(t, err)
	}
	return cmds
}

// broker starts a Kafka with the command topic under a prefix.
func broker(t *testing.T, prefix string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	topic := payment.NewTopics(prefix).Commands
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster
}

func newProducer(t *testing.T, cluster *kfake.Cluster, change func(*producer.Config)) *producer.Producer {
	t.Helper()
	cfg := producer.Config{Brokers: cluster.ListenAddrs()}
	if change != nil {
		change(&cfg)
	}
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	return p
}

// impatient gives up soon, for tests in which Kafka does not confirm.
func impatient(c *producer.Config) { c.Attempts, c.Timeout = 1, 300*time.Millisecond }

// reader reads a topic from its start.
func reader(t *testing.T, cluster *kfake.Cluster, topic string) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// take reads n records.
func take(t *testing.T, c *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "%d of %d records", len(records), n)
		records = append(records, fetches.Records()...)
	}
	require.Len(t, records, n)
	return records
}

// takeKeys reads until it has seen n different keys.
func takeKeys(t *testing.T, c *kgo.Client, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	keys := make(map[string]bool)
	for len(keys) < n {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0(), "%d of %d keys", len(keys), n)
		fetches.EachRecord(func(r *kgo.Record) { keys[string(r.Key)] = true })
	}
}

// requireNoMore reads on until a record that was published after everything else,
// so that nothing before it can have been missed.
func requireNoMore(t *testing.T, cluster *kfake.Cluster, c *kgo.Client, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer w.Close()
	for partition := range int32(partitions) {
		mark := &kgo.Record{Topic: topic, Partition: partition, Value: []byte("mark")}
		require.NoError(t, w.ProduceSync(ctx, mark).FirstErr())
	}
	for _, record := range take(t, c, partitions) {
		require.Equal(t, "mark", string(record.Value), "a record too many")
	}
}

func header(record *kgo.Record, name string) string {
	for _, h := range record.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func asUnknown(t *testing.T, err error) *producer.UnknownError {
	t.Helper()
	require.ErrorIs(t, err, producer.ErrUnknown)
	var unknown *producer.UnknownError
	require.True(t, errors.As(err, &unknown))
	return unknown
}
