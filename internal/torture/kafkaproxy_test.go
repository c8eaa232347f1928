package torture

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/kafka"
)

// throughKafkaProxy starts a cluster with a topic "t", and a client that knows only
// the proxy.
func throughKafkaProxy(t *testing.T, l *losses) (*proxy, *devstack.Kafka, *kafka.Client) {
	t.Helper()
	broker, err := devstack.StartKafka(devstack.KafkaConfig{Brokers: brokers, Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	direct := kafkaClient(t, broker.Brokers()...)
	_, err = direct.EnsureTopics(t.Context(), []kafka.TopicSpec{{Name: "t", Partitions: 6, Replication: 1}})
	require.NoError(t, err)
	p := newKafkaProxy(l)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	own, err := p.via(t.Context(), broker.Brokers()[0])
	require.NoError(t, err)
	return p, broker, kafkaClient(t, own)
}

func kafkaClient(t *testing.T, addresses ...string) *kafka.Client {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{Brokers: addresses})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func publish(t *testing.T, client *kafka.Client, p *kafka.FencedProducer, value string) {
	t.Helper()
	m := kafka.Message{Topic: "t", Key: []byte(value), Value: []byte(value)}
	for {
		err := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: []kafka.Message{m}}})[0].Err()
		if err == nil {
			return
		}
		require.ErrorIs(t, err, kafka.ErrUnresolved)
	}
}

func valuesIn(t *testing.T, client *kafka.Client) (values []string) {
	t.Helper()
	require.NoError(t, client.ReadAll(t.Context(), "t", func(r kafka.Record) error {
		values = append(values, string(r.Value))
		return nil
	}))
	return values
}

// A client that was told of one broker finds the others through the proxy alone:
// when that is cut, it reaches none.
func TestProxy_KafkaLeadsToEveryBroker(t *testing.T) {
	t.Parallel()
	p, broker, client := throughKafkaProxy(t, newLosses())
	producer, err := client.NewFencedProducer(t.Context(), "id")
	require.NoError(t, err)
	var want []string
	for _, value := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // partitions of all brokers
		publish(t, client, producer, value)
		want = append(want, value)
	}
	require.ElementsMatch(t, want, valuesIn(t, client))
	p.mu.Lock()
	require.Len(t, p.routes, brokers)
	p.mu.Unlock()
	p.sever()
	require.Error(t, client.Ping(t.Context()))
	_, err = client.CommittedOffsets(t.Context(), "group", "t")
	require.Error(t, err)
	require.ElementsMatch(t, want, valuesIn(t, kafkaClient(t, broker.Brokers()...)), "the direct way is open")
	p.mend()
	require.ElementsMatch(t, want, valuesIn(t, client))
}

// The broker has the record whose answer is lost; a producer that sends it again
// leaves one of it.
func TestProxy_KafkaLosesProduceAnswers(t *testing.T) {
	t.Parallel()
	l := newLosses()
	_, broker, client := throughKafkaProxy(t, l)
	producer, err := client.NewFencedProducer(t.Context(), "id")
	require.NoError(t, err)
	publish(t, client, producer, "before")
	l.mu.Lock()
	l.left[produceAnswer] = 2
	l.mu.Unlock()
	publish(t, client, producer, "during")
	require.Equal(t, map[loss]int{produceAnswer: 2}, l.counts())
	require.ElementsMatch(t, []string{"before", "during"}, valuesIn(t, kafkaClient(t, broker.Brokers()...)))
}

// Offsets whose answer is lost are stored all the same.
func TestProxy_KafkaLosesOffsetAnswers(t *testing.T) {
	t.Parallel()
	l := newLosses()
	p, broker, client := throughKafkaProxy(t, l)
	own, err := p.via(t.Context(), broker.Brokers()[0])
	require.NoError(t, err)
	member, err := kgo.NewClient(kgo.SeedBrokers(own), kgo.ConsumerGroup("group"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.RequestRetries(0))
	require.NoError(t, err)
	t.Cleanup(member.Close)
	producer, err := client.NewFencedProducer(t.Context(), "id")
	require.NoError(t, err)
	publish(t, client, producer, "one")
	fetched := member.PollFetches(t.Context())
	require.NoError(t, fetched.Err())
	require.Len(t, fetched.Records(), 1)
	l.mu.Lock()
	l.left[offsetAnswer] = 1
	l.mu.Unlock()
	require.Error(t, member.CommitRecords(t.Context(), fetched.Records()...))
	require.Equal(t, map[loss]int{offsetAnswer: 1}, l.counts())
	committed, err := client.CommittedOffsets(t.Context(), "group", "t")
	require.NoError(t, err)
	require.Equal(t, int64(1), committed[int(fetched.Records()[0].Partition)])
}

func TestProxy_SaysWhenNothingWasLost(t *testing.T) {
	t.Parallel()
	l := newLosses()
	lost := make(chan error, 1)
	go func() { lost <- l.lose(t.Context(), commitAnswer, 1) }()
	require.Eventually(t, func() bool { return l.take(commitAnswer) }, time.Minute, time.Millisecond)
	require.NoError(t, <-lost)
	require.Equal(t, map[loss]int{commitAnswer: 1}, l.counts())
	require.True(t, !l.wanted(commitAnswer) && !l.take(commitAnswer))
	require.ErrorContains(t, l.loseWithin(t.Context(), commitAnswer, 1, time.Millisecond), "nothing came by")
	require.False(t, l.wanted(commitAnswer))
}
