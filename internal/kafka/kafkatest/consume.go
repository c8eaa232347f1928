package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func consumeChecks() []check {
	return []check{
		{"Codecs", checkCodecs},
		{"CommitContiguous", checkCommitContiguous},
		{"CommitAnswerLost", checkCommitAnswerLost},
		{"StopDrains", checkStopDrains},
		{"StopTimesOut", checkStopTimesOut},
		{"HandlerFails", checkHandlerFails},
		{"StartOffset", checkStartOffset},
		{"StartBelowCommitted", checkStartBelowCommitted},
		{"OffsetOutOfRange", checkOffsetOutOfRange},
		{"MissingTopic", checkMissingTopic},
		{"BrokenFetches", checkBrokenFetches},
		{"ContextValues", checkContextValues},
	}
}

// Records of every codec arrive with keys, values, headers and times as they
// were written, nil and empty told apart.
func checkCodecs(t *testing.T, s *suite) {
	topic := s.topic(t, "codecs", 1)
	at := time.UnixMilli(1_780_000_000_123).UTC()
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte("2")}}
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, codec := range codecs {
		cl := s.kgo(t, kgo.ProducerBatchCompression(codec))
		require.NoError(t, cl.ProduceSync(s.context(t),
			&kgo.Record{Topic: topic, Key: []byte("key"), Value: make([]byte, 5000), Headers: headers, Timestamp: at},
			&kgo.Record{Topic: topic, Value: []byte{}, Timestamp: at},
			&kgo.Record{Topic: topic, Key: []byte{}, Timestamp: at}).FirstErr())
	}
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	got := m.waitFor(t, 3*len(codecs))
	for i := 0; i < len(got); i += 3 {
		require.Equal(t, kafka.Record{
			Topic: topic, Offset: int64(i), Time: at, Key: []byte("key"), Value: make([]byte, 5000),
			Headers: []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte("2")}},
		}, got[i].Record)
		require.Nil(t, got[i+1].Key)
		require.NotNil(t, got[i+1].Value)
		require.NotNil(t, got[i+2].Key)
		require.Nil(t, got[i+2].Value)
	}
	s.eventuallyCommitted(t, s.group(""), topic, 0, int64(len(got)))
}

// B7: only what is finished without a hole is committed, and the next owner
// starts there.
func checkCommitContiguous(t *testing.T, s *suite) {
	topic := s.topic(t, "holes", 1)
	s.produce(t, topic, 0, 10)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, DrainTimeout: 100 * time.Millisecond}, false)
	got := m.waitFor(t, 10)
	kafka.Finish(got[6:10])
	kafka.Finish([]*kafka.Delivery{got[3], got[1], got[0], got[1]})
	s.eventuallyCommitted(t, s.group(""), topic, 0, 2)
	got[2].Finish()
	got[2].Finish()
	s.eventuallyCommitted(t, s.group(""), topic, 0, 4)
	require.NoError(t, m.leave(t))
	require.False(t, got[4].Live())
	kafka.Finish(got) // too late: nothing may come of it

	next := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	require.Equal(t, []string{"v4", "v5", "v6", "v7", "v8", "v9"}, values(next.waitFor(t, 6)))
	s.eventuallyCommitted(t, s.group(""), topic, 0, 10)
}

// A commit whose answer is lost is sent again, by this generation or, when the
// loss ends it, not at all; no record is skipped.
func checkCommitAnswerLost(t *testing.T, s *suite) {
	topic := s.topic(t, "commits", 1)
	s.produce(t, topic, 0, 5)
	s.faults.Lose(apiCommit, 1)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	m.waitFor(t, 5)
	eventually(t, func() bool { return s.faults.Left(apiCommit) == 0 }, "the loss happened")
	s.produceValues(t, topic, 0, 5, 8)
	eventually(t, func() bool { return len(m.deliveries()) >= 8 }, "the rest arrives")
	s.eventuallyCommitted(t, s.group(""), topic, 0, 8)
}

// A stop waits for what is in flight and commits it.
func checkStopDrains(t *testing.T, s *suite) {
	topic := s.topic(t, "drain", 1)
	s.produce(t, topic, 0, 3)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, CommitInterval: time.Hour, DrainTimeout: rebalance - time.Second}, false)
	got := m.waitFor(t, 3)
	m.stop()
	select {
	case err := <-m.ended:
		require.FailNow(t, "ended with records in flight", "%v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.True(t, got[0].Live(), "until the drain is over")
	kafka.Finish(got)
	require.NoError(t, m.wait(t))
	require.Equal(t, int64(3), s.committed(t, s.group(""), topic)[0])
	require.Empty(t, m.consumer.Assigned())
}

// A drain is bounded, whatever the handler does.
func checkStopTimesOut(t *testing.T, s *suite) {
	topic := s.topic(t, "hung", 1)
	s.produce(t, topic, 0, 3)
	release := make(chan struct{})
	m := s.join(t, kafka.ConsumerConfig{
		Topics: []string{topic}, DrainTimeout: 200 * time.Millisecond,
		Handler: func(context.Context, []*kafka.Delivery) error { <-release; return nil },
	}, false)
	m.waitFor(t, 1)
	require.NoError(t, m.leave(t), "and while it does")
	close(release)
	require.Equal(t, int64(-1), s.committed(t, s.group(""), topic)[0])
}

var errTest = errors.New("test")

// A handler that cannot go on gets the same records again, in order.
func checkHandlerFails(t *testing.T, s *suite) {
	topic := s.topic(t, "fails", 1)
	s.produce(t, topic, 0, 4)
	var calls atomic.Int32
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, Handler: func(_ context.Context, batch []*kafka.Delivery) error {
		switch calls.Add(1) {
		case 1:
			batch[0].Finish()
			return errTest
		default:
			kafka.Finish(batch)
			return nil
		}
	}}, false)
	s.eventuallyCommitted(t, s.group(""), topic, 0, 4)
	got := m.deliveries()
	require.Equal(t, "v3", string(got[len(got)-1].Value))
	require.Contains(t, values(got[1:]), "v1")
	require.NoError(t, m.leave(t))
}

// The lower of the committed and the stored offset wins, and a lower start never
// takes the committed offset back.
func checkStartOffset(t *testing.T, s *suite) {
	topic := s.topic(t, "start", 1)
	s.produce(t, topic, 0, 10)
	for _, c := range []struct{ stored, committed, first, after int64 }{
		{stored: 6, committed: -1, first: 6, after: 8},
		{stored: 3, committed: 8, first: 3, after: 8},
		{stored: 9, committed: 8, first: 8, after: 10},
		{stored: -1, committed: 10, first: -1, after: 10},
	} {
		var asked atomic.Int64
		m := s.join(t, kafka.ConsumerConfig{
			Topics: []string{topic}, DrainTimeout: 50 * time.Millisecond,
			StartOffset: func(_ context.Context, _ string, _ int, committed int64) (int64, error) {
				asked.Store(committed)
				return c.stored, nil
			},
		}, false)
		if c.first < 0 {
			eventually(t, func() bool { return len(m.owns(topic)) == 1 }, "assigned")
			require.NoError(t, m.leave(t))
			require.Equal(t, c.committed, asked.Load())
			continue
		}
		got := m.waitFor(t, int(10-c.first))
		require.Equal(t, c.committed, asked.Load())
		require.Equal(t, c.first, got[0].Offset)
		for _, d := range got {
			if d.Offset < c.after {
				d.Finish()
			}
		}
		s.eventuallyCommitted(t, s.group(""), topic, 0, c.after)
		require.NoError(t, m.leave(t))
		require.Equal(t, c.after, s.committed(t, s.group(""), topic)[0])
	}
}

// B9: reading again below the committed offset does not take it back.
func checkStartBelowCommitted(t *testing.T, s *suite) {
	topic := s.topic(t, "below", 1)
	s.produce(t, topic, 0, 5)
	first := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	s.eventuallyCommitted(t, s.group(""), topic, 0, 5)
	require.NoError(t, first.leave(t))
	again := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, StartOffset: startAt(1)}, false)
	got := again.waitFor(t, 4)
	for _, d := range got {
		d.Finish()
		require.Never(t, func() bool {
			at, err := s.client.CommittedOffsets(s.context(t), s.group(""), topic)
			return err == nil && at[0] != 5
		}, 50*time.Millisecond, 5*time.Millisecond)
	}
	s.produceValues(t, topic, 0, 5, 6)
	again.waitFor(t, 5)[4].Finish()
	s.eventuallyCommitted(t, s.group(""), topic, 0, 6)
}

func startAt(offset int64) func(context.Context, string, int, int64) (int64, error) {
	return func(context.Context, string, int, int64) (int64, error) { return offset, nil }
}

// An offset that the log does not hold is a fatal error, never a silent reset.
func checkOffsetOutOfRange(t *testing.T, s *suite) {
	topic := s.topic(t, "range", 1)
	s.produce(t, topic, 0, 3)
	m := s.join(t, kafka.ConsumerConfig{
		Topics:      []string{topic},
		StartOffset: startAt(100),
	}, true)
	err := m.wait(t)
	require.ErrorIs(t, err, kafka.ErrOffsetOutOfRange)
	var where *kafka.OffsetOutOfRangeError
	require.ErrorAs(t, err, &where)
	require.Equal(t, kafka.OffsetOutOfRangeError{Topic: topic, Partition: 0, Offset: 100, Earliest: 0, Latest: 3}, *where)
	require.Empty(t, m.deliveries())
}

func checkMissingTopic(t *testing.T, s *suite) {
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{s.name + "-missing"}}, true)
	require.ErrorIs(t, m.wait(t), kafka.ErrUnknownTopic)
	got, err := s.client.DescribeTopics(s.context(t), []string{s.name + "-missing"})
	require.NoError(t, err)
	require.False(t, got[0].Exists, "looking must not create")
}

// Broken fetch connections lose and repeat nothing.
func checkBrokenFetches(t *testing.T, s *suite) {
	topic := s.topic(t, "breaks", 4)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	for round := range 5 {
		s.faults.Lose(apiFetch, 2)
		for p := range 4 {
			s.produceValues(t, topic, p, round*10, round*10+10)
		}
	}
	m.waitFor(t, 200)
	for p := range 4 {
		got := m.of(p)
		for i, d := range got {
			require.Equal(t, fmt.Sprintf("v%d", i), string(d.Value))
		}
		s.eventuallyCommitted(t, s.group(""), topic, p, 50)
	}
}

type contextKey struct{}

// The handler's context carries the values of Run's context, and ends at a stop
// with the usual error.
func checkContextValues(t *testing.T, s *suite) {
	topic := s.topic(t, "context", 1)
	s.produce(t, topic, 0, 1)
	entered := make(chan any, 1)
	left := make(chan error, 1)
	consumer, err := s.client.NewConsumer(kafka.ConsumerConfig{
		Group: s.group(""), Topics: []string{topic},
		Handler: func(ctx context.Context, _ []*kafka.Delivery) error {
			entered <- ctx.Value(contextKey{})
			<-ctx.Done()
			left <- ctx.Err()
			return ctx.Err()
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(t.Context()), contextKey{}, "value"))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	require.Equal(t, "value", <-entered)
	require.Error(t, consumer.Run(ctx), "a second Run while one is going on")
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NoError(t, <-ended)
}
