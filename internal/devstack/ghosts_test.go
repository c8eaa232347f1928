package devstack_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/devstack"
)

// A member that is killed while it waits for the answer to its join must not
// keep its partitions: the others get them within a session. Whether the broker
// notices by itself is a matter of luck, so there are several groups.
func TestKafkaRemovesMembersKilledWhileJoining(t *testing.T) {
	t.Parallel()
	k := startKafka(t, devstack.KafkaConfig{})
	admin := client(t, k)
	createTopic(t, admin, "shared")
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("group-%d", i)
		survivor := client(t, k, kgo.ConsumerGroup(groups[i]), kgo.ConsumeTopics("shared"), kgo.SessionTimeout(6*time.Second),
			kgo.RebalanceTimeout(6*time.Second), kgo.HeartbeatInterval(200*time.Millisecond), kgo.Balancers(kgo.RangeBalancer()))
		go survivor.PollFetches(t.Context())
	}
	// haunted are the groups that had a second member at some time: on a busy machine the first
	// ghost may be gone before the last one comes.
	haunted := map[string]bool{}
	alone := func() bool {
		request := kmsg.NewPtrDescribeGroupsRequest()
		request.Groups = groups
		response, err := request.RequestWith(t.Context(), admin)
		require.NoError(t, err)
		all := true
		for _, g := range response.Groups {
			if len(g.Members) > 1 {
				haunted[g.Group] = true
			}
			all = all && g.State == "Stable" && len(g.Members) == 1
		}
		return all
	}
	require.Eventually(t, alone, wait, 20*time.Millisecond)
	for _, group := range groups {
		for end := time.Now().Add(wait); !haunted[group] && time.Now().Before(end); { // a pause may outlast a ghost
			joinAndDie(t, k.Brokers()[0], group)
			for soon := time.Now().Add(10 * time.Second); !haunted[group] && time.Now().Before(soon); {
				alone()
			}
		}
		require.True(t, haunted[group], "the ghost never became a member")
	}
	require.Eventually(t, alone, wait, 20*time.Millisecond, "a ghost stays")
}

// wait is for what must come.
const wait = 90 * time.Second

// joinAndDie sends a join and resets the connection without waiting.
func joinAndDie(t *testing.T, address, group string) {
	t.Helper()
	request := kmsg.NewPtrJoinGroupRequest()
	request.Version, request.Group, request.ProtocolType = 1, group, "consumer"
	request.SessionTimeoutMillis, request.RebalanceTimeoutMillis = 6000, 6000
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"shared"}
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", meta.AppendTo(nil)
	request.Protocols = append(request.Protocols, protocol)
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	require.NoError(t, err)
	_, err = conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("ghost")).AppendRequest(nil, request, 1))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}
