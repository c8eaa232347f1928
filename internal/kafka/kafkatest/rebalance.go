package kafkatest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

func rebalanceChecks() []check {
	return []check{
		{"B7_MovedPartition", checkMovedPartition},
		{"B8_BlockedHandler", checkBlockedHandler},
		{"B9_StaleFinish", checkStaleFinish},
		{"SessionsOverlap", checkManyMembers},
	}
}

// moved waits until b owns one of the topic's two partitions and a the other,
// and returns b's.
func moved(t *testing.T, topic string, a, b *member) int {
	t.Helper()
	eventually(t, func() bool { return len(a.owns(topic)) == 1 && len(b.owns(topic)) == 1 }, "one partition each")
	require.NotEqual(t, a.owns(topic), b.owns(topic))
	return b.owns(topic)[0]
}

// B7: at a revoke, 0–3 and 6–9 are finished: committed is 4, and the new owner
// starts there.
func checkMovedPartition(t *testing.T, s *suite) {
	topic := s.topic(t, "moved", 2)
	for p := range 2 {
		s.produce(t, topic, p, 10)
	}
	cfg := kafka.ConsumerConfig{Topics: []string{topic}, DrainTimeout: 200 * time.Millisecond, CommitInterval: time.Hour}
	a := s.join(t, cfg, false)
	a.waitFor(t, 20)
	for _, d := range a.deliveries() {
		if d.Offset < 4 || d.Offset > 5 {
			d.Finish()
		}
	}
	b := s.join(t, cfg, false)
	p := moved(t, topic, a, b)
	eventually(t, func() bool { return len(b.of(p)) >= 6 }, "the rest")
	require.Equal(t, []string{"v4", "v5", "v6", "v7", "v8", "v9"}, values(b.of(p)))
	require.Equal(t, int64(4), s.committed(t, s.group(""), topic)[p])
	require.False(t, a.of(p)[4].Live())
	require.True(t, b.of(p)[0].Live())
}

// B8: a handler is blocked while its partition moves. The old member's late
// Finish commits nothing; the drain does not wait for it.
func checkBlockedHandler(t *testing.T, s *suite) {
	topic := s.topic(t, "blocked", 2)
	for p := range 2 {
		s.produce(t, topic, p, 3)
	}
	release := make(chan struct{})
	var late, overlaps atomic.Int32
	var inside [2]atomic.Int32
	a := s.join(t, kafka.ConsumerConfig{
		Topics: []string{topic}, DrainTimeout: 300 * time.Millisecond,
		Handler: func(_ context.Context, batch []*kafka.Delivery) error {
			if inside[batch[0].Partition].Add(1) > 1 {
				overlaps.Add(1)
			}
			defer inside[batch[0].Partition].Add(-1)
			<-release
			for _, d := range batch {
				if !d.Live() {
					late.Add(1)
				}
			}
			kafka.Finish(batch)
			return nil
		},
	}, false)
	eventually(t, func() bool { return len(a.of(0)) > 0 && len(a.of(1)) > 0 }, "both handlers entered")
	b := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, false)
	p := moved(t, topic, a, b)
	eventually(t, func() bool { return len(b.of(p)) == 3 }, "the new owner has the records")
	eventually(t, func() bool { st := a.consumer.Stats(); return len(st) == 1 && st[0].Queued == 3 }, "the old owner fetched its own again")
	require.Never(t, func() bool { return overlaps.Load() > 0 }, 50*time.Millisecond, time.Millisecond, "one handler at a time")
	close(release)
	eventually(t, func() bool { return late.Load() >= 4 }, "late finishes of both partitions")
	s.eventuallyCommitted(t, s.group(""), topic, 1-p, 3) // a took its own partition up again
	require.Equal(t, int64(-1), s.committed(t, s.group(""), topic)[p])
	kafka.Finish(b.of(p)[:2])
	s.eventuallyCommitted(t, s.group(""), topic, p, 2)
}

// B9: deliveries of an earlier generation, finished under the next one, move
// nothing, neither backwards nor forwards.
func checkStaleFinish(t *testing.T, s *suite) {
	topic := s.topic(t, "stale", 2)
	for p := range 2 {
		s.produce(t, topic, p, 5)
	}
	cfg := kafka.ConsumerConfig{Topics: []string{topic}, DrainTimeout: 100 * time.Millisecond}
	a := s.join(t, cfg, false)
	a.waitFor(t, 10)
	old := a.deliveries()
	b := s.join(t, cfg, true)
	p := moved(t, topic, a, b)
	s.eventuallyCommitted(t, s.group(""), topic, p, 5)
	eventually(t, func() bool { return len(a.of(1-p)) >= 10 }, "delivered again in the second generation")
	require.NoError(t, b.leave(t))
	eventually(t, func() bool { return len(a.owns(topic)) == 2 }, "both again")
	kafka.Finish(old)
	eventually(t, func() bool { return len(a.of(1-p)) >= 15 }, "delivered again in each generation")
	require.Equal(t, int64(5), s.committed(t, s.group(""), topic)[p])
	require.Equal(t, int64(-1), s.committed(t, s.group(""), topic)[1-p])
	fresh := a.deliveries()[len(old):]
	kafka.Finish(fresh)
	s.eventuallyCommitted(t, s.group(""), topic, 1-p, 5)
	require.Equal(t, int64(5), s.committed(t, s.group(""), topic)[p])
}

// Members come and go under load: nothing is skipped, and per partition each
// owner sees the records in order.
func checkManyMembers(t *testing.T, s *suite) {
	const perPartition = 300
	topic := s.topic(t, "churn", 4)
	cfg := kafka.ConsumerConfig{Topics: []string{topic}, MaxInFlight: 20}
	seen := make(map[int]map[int64]bool)
	members := []*member{s.join(t, cfg, true), s.join(t, cfg, true)}
	for i := range 3 {
		for p := range 4 {
			s.produceValues(t, topic, p, i*100, (i+1)*100)
		}
		extra := s.join(t, cfg, true)
		eventually(t, func() bool { return len(extra.owns(topic)) > 0 }, "the newcomer has work")
		members = append(members, extra)
		require.NoError(t, members[i].leave(t))
	}
	for p := range 4 {
		s.eventuallyCommitted(t, s.group(""), topic, p, perPartition)
		seen[p] = make(map[int64]bool)
	}
	for _, m := range members {
		for _, d := range m.deliveries() {
			seen[d.Partition][d.Offset] = true
		}
	}
	for p := range 4 {
		require.Len(t, seen[p], perPartition)
	}
}
