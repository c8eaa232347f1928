package devstack_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/devstack"
)

// leaderOf is the leader of the topic's first partition.
func leaderOf(t *testing.T, cl *kgo.Client, topic string) int32 {
	t.Helper()
	request := kmsg.NewPtrMetadataRequest()
	one := kmsg.NewMetadataRequestTopic()
	one.Topic = &topic
	request.Topics = append(request.Topics, one)
	response, err := request.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	for _, p := range response.Topics[0].Partitions { // which come in any order
		if p.Partition == 0 {
			return p.Leader
		}
	}
	require.FailNow(t, "the topic has no partition 0", topic)
	return -1
}

func TestMoveLeaders(t *testing.T) {
	t.Parallel()
	k := startKafka(t, devstack.KafkaConfig{Brokers: 3})
	cl := client(t, k)
	createTopic(t, cl, "moved")
	createTopic(t, cl, "stays")
	before, other := leaderOf(t, cl, "moved"), leaderOf(t, cl, "stays")
	n, err := devstack.MoveLeaders(t.Context(), k.Brokers(), func(topic string, p int32) bool { return topic == "moved" && p == 0 })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NotEqual(t, before, leaderOf(t, cl, "moved"))
	require.Equal(t, other, leaderOf(t, cl, "stays"))
}

func TestMoveLeaders_NeedsAnotherBroker(t *testing.T) {
	t.Parallel()
	k := startKafka(t, devstack.KafkaConfig{})
	_, err := devstack.MoveLeaders(t.Context(), k.Brokers(), func(string, int32) bool { return true })
	require.ErrorIs(t, err, devstack.ErrOneBroker)
}
