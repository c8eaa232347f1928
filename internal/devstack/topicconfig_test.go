package devstack_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/devstack"
)

// Every broker tells of a setting once it is set; a topic that is not there has none.
func TestSetTopicConfig(t *testing.T) {
	t.Parallel()
	k := startKafka(t, devstack.KafkaConfig{Brokers: 3})
	cl := client(t, k)
	createTopic(t, cl, "kept")
	for _, value := range []string{"1234567", "-1"} {
		require.NoError(t, devstack.SetTopicConfig(t.Context(), k.Brokers(), "kept", "retention.ms", value))
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName, resource.ConfigNames = kmsg.ConfigResourceTypeTopic, "kept", []string{"retention.ms"}
		question := kmsg.NewPtrDescribeConfigsRequest()
		question.Resources = append(question.Resources, resource)
		answer, err := question.RequestWith(t.Context(), cl)
		require.NoError(t, err)
		require.Equal(t, value, *answer.Resources[0].Configs[0].Value)
	}
	require.Error(t, devstack.SetTopicConfig(t.Context(), k.Brokers(), "nowhere", "retention.ms", "1"))
}
