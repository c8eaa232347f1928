package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

func boundsChecks() []check {
	return []check{
		{"MaxInFlight", checkMaxInFlight},
		{"MaxInFlightBytes", checkMaxInFlightBytes},
		{"LargeRecord", checkLargeRecord},
		{"PausedAlone", checkPausedAlone},
		{"Watchdog", checkWatchdog},
		{"Stats", checkStats},
		{"Latency", checkLatency},
	}
}

// Back-pressure by count: never more than the bound is out, and the rest follows
// when half of it is free.
func checkMaxInFlight(t *testing.T, s *suite) {
	topic := s.topic(t, "count", 1)
	s.produce(t, topic, 0, 100)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, MaxInFlight: 10}, false)
	got := m.waitFor(t, 10)
	require.Len(t, got, 10)
	kafka.Finish(got[:4])
	require.Never(t, func() bool { return len(m.deliveries()) > 10 }, 100*time.Millisecond, 10*time.Millisecond)
	for done := 4; done < 100; done++ {
		got = m.waitFor(t, done+1)
		require.LessOrEqual(t, len(got)-done, 10)
		got[done].Finish()
	}
	s.eventuallyCommitted(t, s.group(""), topic, 0, 100)
}

// Back-pressure by bytes; a record above the bound still passes, alone.
func checkMaxInFlightBytes(t *testing.T, s *suite) {
	topic := s.topic(t, "bytes", 1)
	require.NoError(t, s.publish(t, topic, make([]byte, 400), make([]byte, 400), make([]byte, 400), make([]byte, 5000), make([]byte, 1)))
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, MaxInFlightBytes: 1000}, false)
	require.Len(t, m.waitFor(t, 3), 3)
	kafka.Finish(m.deliveries()[:2])
	require.Len(t, m.waitFor(t, 4), 4)
	kafka.Finish(m.deliveries()[2:4])
	require.Len(t, m.waitFor(t, 5), 5)
}

// publish publishes values under one key each.
func (s *suite) publish(t *testing.T, topic string, vs ...[]byte) error {
	t.Helper()
	p, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(s.context(t))) }()
	msgs := make([]kafka.Message, len(vs))
	for i, v := range vs {
		msgs[i] = kafka.Message{Topic: topic, Key: []byte{}, Value: v}
	}
	return p.Publish(s.context(t), msgs...)
}

// A record above every fetch bound is delivered, also beside busy partitions.
func checkLargeRecord(t *testing.T, s *suite) {
	topic := s.topic(t, "huge", 3)
	s.produce(t, topic, 0, 500)
	require.NoError(t, s.kgo(t).ProduceSync(s.context(t), record(topic, 1, string(make([]byte, 900_000)))).FirstErr())
	s.produceValues(t, topic, 1, 0, 1)
	s.produce(t, topic, 2, 500)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, FetchMaxBytes: 8192}, true)
	m.waitFor(t, 1002)
	require.Len(t, m.of(1)[0].Value, 900_000)
}

// A full partition does not hold the others up, and goes on without waiting for a
// long poll of theirs.
func checkPausedAlone(t *testing.T, s *suite) {
	topic := s.topic(t, "paused", 2)
	s.produce(t, topic, 0, 50)
	const longPoll = 2 * patience // whoever waits for one waits in vain
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, MaxInFlight: 5, FetchMaxWait: longPoll}, false)
	eventually(t, func() bool { return len(m.of(0)) == 5 }, "partition 0 full")
	for i := range 20 {
		s.produceValues(t, topic, 1, i, i+1)
		eventually(t, func() bool { return len(m.of(1)) == i+1 }, "partition 1 flows")
		m.of(1)[i].Finish()
	}
	kafka.Finish(m.of(0))
	eventually(t, func() bool { return len(m.of(0)) == 10 }, "partition 0 goes on: it waited for a long poll of the others")
}

// A record that nobody finishes ends Run.
func checkWatchdog(t *testing.T, s *suite) {
	topic := s.topic(t, "stall", 1)
	s.produce(t, topic, 0, 3)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, StallTimeout: 300 * time.Millisecond, DrainTimeout: 100 * time.Millisecond}, false)
	got := m.waitFor(t, 3)
	kafka.Finish(got[1:])
	require.ErrorIs(t, m.wait(t), kafka.ErrStalled)
	require.Equal(t, int64(-1), s.committed(t, s.group(""), topic)[0])
}

func checkStats(t *testing.T, s *suite) {
	topic := s.topic(t, "stats", 2)
	s.produce(t, topic, 0, 10)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, MaxInFlight: 4}, false)
	got := m.waitFor(t, 4)
	got[1].Finish()
	eventually(t, func() bool { return len(m.consumer.Stats()) == 2 && m.consumer.Stats()[1].Lag == 0 }, "both answered")
	st := m.consumer.Stats()[0]
	require.Equal(t, topic, st.Topic)
	require.Equal(t, int64(10), st.Lag)
	require.Equal(t, 3, st.InFlight)
	require.Equal(t, 6, st.Queued)
	require.Equal(t, int64(-1), st.Committed)
	require.Positive(t, st.LagTime)
	require.Positive(t, st.OldestInFlight)
	got[0].Finish()
	eventually(t, func() bool { return m.consumer.Stats()[0].Committed == 2 }, "committed")
	require.Equal(t, int64(8), m.consumer.Stats()[0].Lag)
	require.Equal(t, map[string][]int{topic: {0, 1}}, m.consumer.Assigned())
}

// An idle partition is delivered from at once: the long poll ends with the first
// record. The bound is generous, the machine may be busy: the long poll is far longer.
func checkLatency(t *testing.T, s *suite) {
	topic := s.topic(t, "latency", 4)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, FetchMaxWait: 5 * time.Second}, true)
	eventually(t, func() bool { return len(m.owns(topic)) == 4 }, "assigned")
	cl := s.kgo(t)
	best := time.Hour
	for i := range 10 {
		begun := time.Now()
		require.NoError(t, cl.ProduceSync(s.context(t), record(topic, i%4, "v")).FirstErr())
		require.Eventually(t, func() bool { return len(m.deliveries()) == i+1 }, patience, time.Millisecond)
		best = min(best, time.Since(begun))
	}
	require.Less(t, best, 2*time.Second)
}
