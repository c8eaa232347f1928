package kafkawire_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/devstack/kafkawire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// body is an answer from behind its correlation id.
func body(answer kmsg.Response) []byte {
	var out []byte
	if answer.IsFlexible() {
		out = append(out, 1, 7, 2, 0xaa, 0xbb) // one tagged field of two bytes
	}
	return answer.AppendTo(out)
}

func elsewhere(host *string, port *int32) error {
	*host, *port = "proxy", *port+1
	return nil
}

// Every version of the answers is read, and nothing else in them changes.
func TestRename(t *testing.T) {
	t.Parallel()
	for version := range kmsg.NewPtrMetadataResponse().MaxVersion() + 1 {
		answer := kmsg.NewPtrMetadataResponse()
		answer.SetVersion(version)
		answer.ControllerID = 3
		answer.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 3, Host: "127.0.0.1", Port: 9}, {NodeID: 4, Host: "other", Port: 10}}
		got, err := kafkawire.Rename(kafkawire.Request{Key: kmsg.Metadata.Int16(), Version: version}, body(answer), elsewhere)
		require.NoError(t, err)
		read := kmsg.NewPtrMetadataResponse()
		read.SetVersion(version)
		if read.IsFlexible() {
			got = got[1:]
		}
		require.NoError(t, read.ReadFrom(got))
		require.Len(t, read.Brokers, 2)
		require.Equal(t, "proxy", read.Brokers[0].Host)
		require.Equal(t, int32(11), read.Brokers[1].Port)
		require.Equal(t, int32(4), read.Brokers[1].NodeID)
	}
	for version := range kmsg.NewPtrFindCoordinatorResponse().MaxVersion() + 1 {
		answer := kmsg.NewPtrFindCoordinatorResponse()
		answer.SetVersion(version)
		answer.Host, answer.Port = "one", 1
		answer.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: "g", Host: "two", Port: 1}, {Key: "k", Host: "", Port: -1}}
		got, err := kafkawire.Rename(kafkawire.Request{Key: kmsg.FindCoordinator.Int16(), Version: version}, body(answer), elsewhere)
		require.NoError(t, err)
		require.Contains(t, string(got), "proxy")
		require.NotContains(t, string(got), "one\x00")
	}
}

func TestApplied(t *testing.T) {
	t.Parallel()
	request := kafkawire.Request{Key: kmsg.Produce.Int16(), Version: 8}
	require.True(t, request.Produces() && !request.CommitsOffsets() && !request.NamesBrokers())
	for code, want := range map[int16]bool{0: true, 6: false} {
		answer := kmsg.NewPtrProduceResponse()
		answer.SetVersion(8)
		done, other := kmsg.NewProduceResponseTopicPartition(), kmsg.NewProduceResponseTopicPartition()
		other.ErrorCode = code
		answer.Topics = []kmsg.ProduceResponseTopic{{Topic: "t", Partitions: []kmsg.ProduceResponseTopicPartition{done, other}}}
		got, err := kafkawire.Applied(request, body(answer))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	answer := kmsg.NewPtrProduceResponse()
	answer.SetVersion(8)
	got, err := kafkawire.Applied(request, body(answer))
	require.NoError(t, err)
	require.False(t, got, "an answer about nothing")
	_, err = kafkawire.Applied(request, []byte{1, 2})
	require.Error(t, err)
	_, err = kafkawire.Applied(kafkawire.Request{Key: kmsg.OffsetCommit.Int16(), Version: 8}, []byte{1, 7, 100})
	require.ErrorContains(t, err, "do not end")
}
