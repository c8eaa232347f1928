package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func groupChecks() []check {
	return []check{
		{"ResetOffsets", checkResetOffsets},
		{"OffsetsAt", checkOffsetsAt},
		{"ReadRange", checkReadRange},
	}
}

// Offsets of a group with members are not to be changed; those of an empty one,
// or of one that never was, are.
func checkResetOffsets(t *testing.T, s *suite) {
	topic, group := s.topic(t, "reset", 2), s.group("")
	s.produce(t, topic, 0, 10)
	found, err := s.client.DescribeGroup(s.context(t), group)
	require.NoError(t, err)
	require.False(t, found.Running())
	require.NoError(t, s.client.ResetOffsets(s.context(t), group, topic, map[int]int64{0: 7, 1: 0}))
	member := s.kgo(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.SessionTimeout(session))
	fetched := member.PollFetches(s.context(t))
	require.NoError(t, fetched.Err0())
	require.EqualValues(t, 7, fetched.Records()[0].Offset)
	found, err = s.client.DescribeGroup(s.context(t), group)
	require.NoError(t, err)
	require.True(t, found.Running(), found.State)
	require.Len(t, found.Members, 1)
	require.Error(t, s.client.ResetOffsets(s.context(t), group, topic, map[int]int64{0: 1}))
	require.NoError(t, member.LeaveGroupContext(context.WithoutCancel(t.Context())))
	require.Eventually(t, func() bool {
		found, err := s.client.DescribeGroup(s.context(t), group)
		return err == nil && !found.Running()
	}, patience, 50*time.Millisecond)
	require.NoError(t, s.client.ResetOffsets(s.context(t), group, topic, map[int]int64{0: 1}))
	committed, err := s.client.CommittedOffsets(s.context(t), group, topic)
	require.NoError(t, err)
	require.Equal(t, map[int]int64{0: 1, 1: 0}, committed)
}

func checkOffsetsAt(t *testing.T, s *suite) {
	topic := s.topic(t, "times", 2)
	begun := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	cl := s.kgo(t)
	for i := range 5 {
		r := record(topic, 0, "v")
		r.Timestamp = begun.Add(time.Duration(i) * time.Minute)
		require.NoError(t, cl.ProduceSync(s.context(t), r).FirstErr())
	}
	for at, want := range map[time.Time]int64{
		begun.Add(-time.Hour): 0, begun: 0, begun.Add(time.Second): 1, begun.Add(4 * time.Minute): 4, begun.Add(30 * time.Minute): 5,
	} {
		got, err := s.client.OffsetsAt(s.context(t), topic, at)
		require.NoError(t, err)
		require.Equal(t, map[int]int64{0: want, 1: 0}, got, at)
	}
	_, err := s.client.OffsetsAt(s.context(t), topic+"-none", begun)
	require.ErrorIs(t, err, kafka.ErrUnknownTopic)
}

func checkReadRange(t *testing.T, s *suite) {
	topic := s.topic(t, "range", 1)
	s.produce(t, topic, 0, 100)
	var offsets []int64
	read := func(from, to int64) int64 {
		offsets = nil
		next, err := s.client.ReadRange(s.context(t), topic, 0, from, to, func(r kafka.Record) error {
			offsets = append(offsets, r.Offset)
			return nil
		})
		require.NoError(t, err)
		return next
	}
	require.EqualValues(t, 42, read(40, 42))
	require.Equal(t, []int64{40, 41}, offsets)
	require.EqualValues(t, 100, read(98, 1000))
	require.Equal(t, []int64{98, 99}, offsets)
	require.EqualValues(t, 7, read(7, 7))
	require.Empty(t, offsets)
	starts, err := s.client.StartOffsets(s.context(t), topic)
	require.NoError(t, err)
	require.Equal(t, map[int]int64{0: 0}, starts)
}
