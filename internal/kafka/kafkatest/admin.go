package kafkatest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func adminChecks() []check {
	return []check{
		{"Ping", checkPing},
		{"EnsureTopics", checkEnsureTopics},
		{"DescribeTopics", checkDescribeTopics},
		{"ReadAll", checkReadAll},
	}
}

func checkPing(t *testing.T, s *suite) {
	require.NoError(t, s.client.Ping(s.context(t)))
	nobody, err := kafka.NewClient(kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	defer nobody.Close()
	require.ErrorContains(t, nobody.Ping(s.context(t)), "127.0.0.1:1")
	ctx, cancel := context.WithCancel(s.context(t))
	cancel()
	require.ErrorIs(t, s.client.Ping(ctx), context.Canceled)
}

// Missing topics are created, existing ones never changed.
func checkEnsureTopics(t *testing.T, s *suite) {
	existing := s.topic(t, "existing", 3)
	fresh := s.name + "-fresh"
	got, err := s.client.EnsureTopics(s.context(t), []kafka.TopicSpec{
		{Name: existing, Partitions: 5, Replication: 1, Config: map[string]string{"retention.ms": "1000"}},
		{Name: fresh, Partitions: 2, Replication: 1, Config: map[string]string{"retention.ms": "86400000", "cleanup.policy": "delete"}},
	})
	require.NoError(t, err)
	require.Equal(t, []kafka.TopicResult{{Name: existing}, {Name: fresh, Created: true}}, got)
	described, err := s.client.DescribeTopics(s.context(t), []string{existing, fresh})
	require.NoError(t, err)
	require.Equal(t, 3, described[0].Partitions)
	require.NotEqual(t, "1000", described[0].Config["retention.ms"])
	require.Equal(t, "86400000", described[1].Config["retention.ms"])

	clash := []kafka.TopicSpec{{Name: fresh + ".v", Partitions: 1, Replication: 1}}
	_, err = s.client.EnsureTopics(s.context(t), clash)
	require.NoError(t, err)
	clash[0].Name = fresh + "_v" // would have the same metric names as the one with a dot
	got, err = s.client.EnsureTopics(s.context(t), clash)
	require.ErrorIs(t, err, kafka.ErrInvalidTopic)
	require.Error(t, got[0].Err)
}

func checkDescribeTopics(t *testing.T, s *suite) {
	topic := s.topic(t, "described", 3)
	got, err := s.client.DescribeTopics(s.context(t), []string{s.name + "-none", topic})
	require.NoError(t, err)
	require.Equal(t, kafka.TopicDescription{Name: s.name + "-none"}, got[0])
	require.True(t, got[1].Exists)
	require.Equal(t, 3, got[1].Partitions)
	require.Equal(t, 1, got[1].Replication)
	for _, name := range []string{"cleanup.policy", "retention.ms", "min.insync.replicas", "max.message.bytes"} {
		require.NotEmpty(t, got[1].Config[name], name)
	}
}

func checkReadAll(t *testing.T, s *suite) {
	topic := s.topic(t, "all", 3)
	require.Empty(t, s.log(t, topic))
	s.produce(t, topic, 0, 2)
	s.produce(t, topic, 2, 1000)
	cl := s.kgo(t, kgo.TransactionalID(s.name))
	s.transact(t, cl, topic, kgo.TryAbort, "a1")
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(s.context(t), record(topic, 0, "open")).FirstErr())
	got := s.log(t, topic)
	require.Equal(t, []string{"v0", "v1"}, got[0])
	require.Len(t, got[2], 1000)
	require.NoError(t, cl.EndTransaction(s.context(t), kgo.TryAbort))

	calls := 0
	require.ErrorIs(t, s.client.ReadAll(s.context(t), topic, func(kafka.Record) error { calls++; return errTest }), errTest)
	require.Equal(t, 1, calls)
	require.ErrorIs(t, s.client.ReadAll(s.context(t), topic+"-none", func(kafka.Record) error { return nil }), kafka.ErrUnknownTopic)
}
