package producer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/devstack"
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
	// A pause of the machine makes nothing unknown, nor is anything sent twice for it.
	cfg := producer.Config{Brokers: cluster.ListenAddrs(), Timeout: time.Minute}
	if change != nil {
		change(&cfg)
	}
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	return p
}

// onProduce sees every produce request before the broker does.
func onProduce(cluster *kfake.Cluster, see func(*kmsg.ProduceRequest)) {
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		if produce, ok := request.(*kmsg.ProduceRequest); ok {
			see(produce)
		}
		return nil, nil, false //nolint:nilnil // how kfake spells "go on as if nobody had looked"
	})
}

// impatient gives up before the others do, for tests in which Kafka does not confirm. What
// it sends has arrived by then, also on a machine that pauses.
func impatient(c *producer.Config) { c.Attempts, c.Timeout = 1, 20*time.Second }

// hasty gives up sooner, for tests that go on until all has arrived.
func hasty(c *producer.Config) { c.Attempts, c.Timeout = 1, 4*time.Second }

// ping waits until a broker answers: one look has only some seconds.
func ping(t *testing.T, p *producer.Producer) {
	t.Helper()
	require.Eventually(t, func() bool { return p.Ping(t.Context()) == nil }, 90*time.Second, 10*time.Millisecond)
}

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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
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
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
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
	require.ErrorAs(t, err, &unknown)
	return unknown
}

// exampleT lets an example have what a test has.
type exampleT struct {
	testing.TB

	cleanups []func()
}

func (e *exampleT) Helper() {}

func (e *exampleT) Context() context.Context { return context.Background() }

func (e *exampleT) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *exampleT) Errorf(format string, args ...any) { fmt.Printf(format, args...) }

func (e *exampleT) FailNow() { panic("the example cannot go on") }

func (e *exampleT) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

// exampleServices starts a broker and a database, where a service would name its own.
func exampleServices() (brokers []string, dsn string, stop func()) {
	var t exampleT
	kafka, err := devstack.StartKafka(devstack.KafkaConfig{})
	require.NoError(&t, err)
	t.Cleanup(func() { _ = kafka.Close() })
	cluster, err := kgo.NewClient(kgo.SeedBrokers(kafka.Brokers()...))
	require.NoError(&t, err)
	defer cluster.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "payment.commands", NumPartitions: 16, ReplicationFactor: 1}}
	_, err = request.RequestWith(context.Background(), cluster)
	require.NoError(&t, err)
	return kafka.Brokers(), pgtest.DSN(&t, nil), t.end
}
