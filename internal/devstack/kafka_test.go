package devstack_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/devstack"
)

func startKafka(t *testing.T, cfg devstack.KafkaConfig) *devstack.Kafka {
	t.Helper()
	k, err := devstack.StartKafka(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

func client(t *testing.T, k *devstack.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(k.Brokers()...))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func createTopic(t *testing.T, c *kgo.Client, name string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)
	response, err := request.RequestWith(t.Context(), c)
	require.NoError(t, err)
	require.Zero(t, response.Topics[0].ErrorCode)
	require.EqualValues(t, 16, response.Topics[0].NumPartitions)
}

func TestKafkaKeepsRecordsOverRestart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kafka")

	k := startKafka(t, devstack.KafkaConfig{DataDir: dir})
	c := client(t, k)
	createTopic(t, c, "kept")
	require.NoError(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte("1999 EUR")}).FirstErr())
	c.Close()
	require.NoError(t, k.Close())

	again := startKafka(t, devstack.KafkaConfig{DataDir: dir})
	fetches := client(t, again, kgo.ConsumeTopics("kept")).PollRecords(t.Context(), 1)
	require.NoError(t, fetches.Err())
	require.Equal(t, "1999 EUR", string(fetches.Records()[0].Value))
}

func TestKafkaFolderIsHeldByOneBroker(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kafka")
	startKafka(t, devstack.KafkaConfig{DataDir: dir})
	_, err := devstack.StartKafka(devstack.KafkaConfig{DataDir: dir})
	require.ErrorContains(t, err, "in use by another process")
}

func TestKafkaDoesNotInventTopics(t *testing.T) {
	t.Parallel()
	c := client(t, startKafka(t, devstack.KafkaConfig{Brokers: 3}), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	require.Error(t, c.ProduceSync(t.Context(), &kgo.Record{Topic: "typo"}).FirstErr())
}

func TestKafkaConfigRefusals(t *testing.T) {
	t.Parallel()
	_, err := devstack.StartKafka(devstack.KafkaConfig{Brokers: 2, Ports: []int{1}})
	require.ErrorContains(t, err, "give each broker one")
	_, err = devstack.StartKafka(devstack.KafkaConfig{Partitions: -1})
	require.ErrorContains(t, err, "use 1 or more")
}
