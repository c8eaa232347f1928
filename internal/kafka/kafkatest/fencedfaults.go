package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func fencedFaultChecks() []check {
	return []check{
		{"FencedAnswerLost", checkFencedAnswerLost},
		{"FencedRequestLost", checkFencedRequestLost},
		{"FencedUnresolvedSame", checkFencedUnresolvedSame},
		{"FencedUnresolvedMore", checkFencedUnresolvedMore},
		{"FencedUnresolvedOther", checkFencedUnresolvedOther},
		{"FencedUnresolvedRenewed", checkFencedUnresolvedRenewed},
		{"FencedUnresolvedOldOwner", checkFencedUnresolvedOldOwner},
	}
}

// leaders counts the brokers that lead partitions of the topics.
func (s *suite) leaders(t *testing.T, topics ...string) int {
	t.Helper()
	cl := s.kgo(t, kgo.ConsumeTopics(topics...))
	seen := make(map[int32]bool)
	for _, topic := range topics {
		for p := range s.partitions(t, topic) {
			eventually(t, func() bool {
				leader, _, err := cl.PartitionLeader(topic, int32(p)) //nolint:gosec // small
				if err == nil && leader >= 0 {
					seen[leader] = true
				}
				return seen[leader]
			}, "leader of %s/%d", topic, p)
		}
	}
	return len(seen)
}

func (s *suite) partitions(t *testing.T, topic string) int {
	t.Helper()
	partitions := 0
	eventually(t, func() bool {
		got, err := s.client.DescribeTopics(s.context(t), []string{topic})
		if err == nil {
			partitions = got[0].Partitions
		}
		return partitions > 0
	}, "partitions of %s", topic)
	return partitions
}

// fetchOther reads n records of partition 0 with the other library.
func (s *suite) fetchOther(t *testing.T, topic string, n int) []*kgo.Record {
	t.Helper()
	cl := s.kgo(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	var out []*kgo.Record
	for len(out) < n {
		fs := cl.PollFetches(s.context(t))
		require.NoError(t, fs.Err())
		out = append(out, fs.Records()...)
	}
	return out
}

// B6: the write succeeds, the answer is lost, the next batch is queued at once:
// the repetition is absorbed by the broker.
func checkFencedAnswerLost(t *testing.T, s *suite) {
	topic := s.topic(t, "lost", 1)
	p := s.producer(t, "")
	require.NoError(t, s.send(s.context(t), p, topic, "1").Err())
	for range 3 {
		s.faults.Lose(apiProduce, 3)
		s.insist(t, p, topic, "2", "3")
		require.Zero(t, s.faults.Left(apiProduce))
		require.NoError(t, s.send(s.context(t), p, topic, "4").Err())
	}
	require.Equal(t, []string{"1", "2", "3", "4", "2", "3", "4", "2", "3", "4"}, s.log(t, topic)[0])
	ends, err := s.client.EndOffsets(s.context(t), topic)
	require.NoError(t, err)
	require.Equal(t, map[int]int64{0: 10}, ends)
}

func checkFencedRequestLost(t *testing.T, s *suite) {
	topic := s.topic(t, "refused", 1)
	p := s.producer(t, "")
	s.faults.Refuse(apiProduce, 3)
	s.insist(t, p, topic, "1", "2")
	require.Equal(t, []string{"1", "2"}, s.log(t, topic)[0])
}

// unresolved publishes with a context that ends before any answer arrives; what
// was written is there all the same.
func (s *suite) unresolved(t *testing.T, p *kafka.FencedProducer, topic string, vs ...string) {
	t.Helper()
	s.faults.Lose(apiProduce, 1000)
	defer s.faults.Lose(apiProduce, 0)
	within := 100 * time.Millisecond
	eventually(t, func() bool { // a busy machine may not get to the write in time
		within = min(2*within, 10*time.Second)
		ctx, cancel := context.WithTimeout(s.context(t), within)
		defer cancel()
		for _, err := range s.send(ctx, p, topic, vs...).Errors {
			require.ErrorIs(t, err, kafka.ErrUnresolved)
			require.False(t, kafka.Permanent(err))
		}
		ends, err := s.client.EndOffsets(s.context(t), topic)
		return err == nil && ends[0] > 0
	}, "written")
}

// The caller presents the same messages again: stored once.
func checkFencedUnresolvedSame(t *testing.T, s *suite) {
	topic := s.topic(t, "same", 1)
	p := s.producer(t, "")
	s.unresolved(t, p, topic, "1", "2")
	require.NoError(t, s.send(s.context(t), p, topic, "1", "2").Err())
	require.NoError(t, s.send(s.context(t), p, topic, "3").Err())
	require.Equal(t, []string{"1", "2", "3"}, s.log(t, topic)[0])
}

// The caller presents them with more behind: the batch is cut where the first
// one ended.
func checkFencedUnresolvedMore(t *testing.T, s *suite) {
	topic := s.topic(t, "more", 1)
	p := s.producer(t, "")
	s.unresolved(t, p, topic, "1", "2")
	got := s.send(s.context(t), p, topic, "1", "2", "3")
	require.NoError(t, got.Err())
	require.Equal(t, []string{"1", "2", "3"}, s.log(t, topic)[0])
}

// The caller presents something else: the open batch still goes first, so that
// the numbers stay in line.
func checkFencedUnresolvedOther(t *testing.T, s *suite) {
	topic := s.topic(t, "other", 1)
	p := s.producer(t, "")
	s.unresolved(t, p, topic, "1", "2")
	require.NoError(t, s.send(s.context(t), p, topic, "1", "9").Err())
	require.Equal(t, []string{"1", "2", "9"}, s.log(t, topic)[0])
}

// Renewing forgets the open batch: its messages may be there twice then, the
// second behind the first.
func checkFencedUnresolvedRenewed(t *testing.T, s *suite) {
	topic := s.topic(t, "renewed", 1)
	p := s.producer(t, "")
	s.unresolved(t, p, topic, "1", "2")
	require.NoError(t, p.Renew(s.context(t)))
	require.NoError(t, s.send(s.context(t), p, topic, "1", "2", "3").Err())
	require.Equal(t, []string{"1", "2", "1", "2", "3"}, s.log(t, topic)[0])
}

// B6: an old relay frozen in the middle of a write wakes up after the new one
// has published: refused, and its repetition is not stored behind newer messages.
func checkFencedUnresolvedOldOwner(t *testing.T, s *suite) {
	topic := s.topic(t, "frozen", 1)
	old := s.producer(t, "")
	s.unresolved(t, old, topic, "1")
	next := s.producer(t, "")
	require.NoError(t, s.send(s.context(t), next, topic, "1", "2").Err())
	require.ErrorIs(t, s.send(s.context(t), old, topic, "1").Err(), kafka.ErrFenced)
	require.Equal(t, []string{"1", "1", "2"}, s.log(t, topic)[0])
}
