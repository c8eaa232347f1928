package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func publishChecks() []check {
	return []check{
		{"PublishRoundTrip", checkPublishRoundTrip},
		{"PublishPlaced", checkPublishPlaced},
		{"Placement", checkPlacement},
		{"PublishTooLarge", checkPublishTooLarge},
		{"PublishUnknownTopic", checkPublishUnknownTopic},
		{"PublishEnded", checkPublishEnded},
	}
}

func checkPublishRoundTrip(t *testing.T, s *suite) {
	topic := s.topic(t, "publish", 4)
	p, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	in := []kafka.Message{
		{Topic: topic, Key: []byte("a"), Value: []byte("1"), Headers: []kafka.Header{{Key: "h", Value: []byte("x")}}},
		{Topic: topic, Value: []byte("2")},
		{Topic: topic, Key: []byte("a")},
	}
	require.NoError(t, p.Publish(s.context(t), in...))
	require.NoError(t, p.Publish(s.context(t)))
	require.NoError(t, p.Close(s.context(t)))
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	got := m.waitFor(t, 3)
	for _, d := range got {
		require.False(t, d.Time.IsZero())
		if string(d.Value) == "1" {
			require.Equal(t, in[0].Headers, d.Headers)
			require.Equal(t, kafka.Partition([]byte("a"), 4), d.Partition)
		}
	}
}

// A publisher tells where each message is, over several batches of a partition.
func checkPublishPlaced(t *testing.T, s *suite) {
	topic := s.topic(t, "placed", 3)
	p, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	said := make(map[kafka.Place]string)
	for batch := range 3 {
		in := make([]kafka.Message, 20)
		for i := range in {
			in[i] = kafka.Message{Topic: topic, Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, "%d-%d", batch, i)}
		}
		places, err := p.PublishPlaced(s.context(t), in...)
		require.NoError(t, err)
		for i, place := range places {
			said[place] = string(in[i].Value)
		}
	}
	require.NoError(t, p.Close(s.context(t)))
	got := make(map[kafka.Place]string)
	for _, d := range s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true).waitFor(t, 60) {
		got[kafka.Place{Partition: d.Partition, Offset: d.Offset}] = string(d.Value)
	}
	require.Equal(t, got, said)
}

// All three publishers put a key where the Java client's default does, which is
// also what the other library does.
func checkPlacement(t *testing.T, s *suite) {
	const partitions, keys = 7, 200
	theirs, ours, fenced := s.topic(t, "theirs", partitions), s.topic(t, "ours", partitions), s.topic(t, "fenced", partitions)
	cl := s.kgo(t, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	pub, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, pub.Close(s.context(t))) }()
	var rs []*kgo.Record
	var a, b []kafka.Message
	for i := range keys {
		key := fmt.Appendf(nil, "%0*d", 1+i%9, i)
		rs = append(rs, &kgo.Record{Topic: theirs, Key: key, Value: key})
		a = append(a, kafka.Message{Topic: ours, Key: key, Value: key})
		b = append(b, kafka.Message{Topic: fenced, Key: key, Value: key})
	}
	require.NoError(t, cl.ProduceSync(s.context(t), rs...).FirstErr())
	require.NoError(t, pub.Publish(s.context(t), a...))
	f := s.producer(t, "")
	require.NoError(t, s.present(s.context(t), kafka.FencedBatch{Producer: f, Messages: b})[0].Err())
	want := s.log(t, theirs)
	require.Equal(t, want, s.log(t, ours))
	require.Equal(t, want, s.log(t, fenced))
	for p, vs := range want {
		for _, v := range vs {
			require.Equal(t, p, kafka.Partition([]byte(v), partitions))
		}
	}
}

// One message that is too large fails alone.
func checkPublishTooLarge(t *testing.T, s *suite) {
	topic := s.topic(t, "large", 1)
	p, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(s.context(t))) }()
	err = p.Publish(s.context(t), kafka.Message{Topic: topic, Key: []byte("a"), Value: []byte("1")},
		kafka.Message{Topic: topic, Key: []byte("b"), Value: make([]byte, 2<<20)}, kafka.Message{Topic: topic, Key: []byte("c"), Value: []byte("3")})
	var many kafka.PublishErrors
	require.ErrorAs(t, err, &many)
	require.Len(t, many, 3)
	require.NoError(t, many[0])
	require.ErrorIs(t, many[1], kafka.ErrMessageTooLarge)
	require.True(t, kafka.Permanent(many[1]))
	require.NoError(t, many[2])
	require.Equal(t, []string{"1", "3"}, s.log(t, topic)[0])
}

func checkPublishUnknownTopic(t *testing.T, s *suite) {
	err := s.publish(t, s.name+"-none", []byte("1"))
	require.ErrorIs(t, err, kafka.ErrUnknownTopic)
}

// A call whose context has ended reports every message as unconfirmed.
func checkPublishEnded(t *testing.T, s *suite) {
	topic := s.topic(t, "ended", 1)
	p, err := s.client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(s.context(t))) }()
	ctx, cancel := context.WithCancel(s.context(t))
	cancel()
	var many kafka.PublishErrors
	require.ErrorAs(t, p.Publish(ctx, kafka.Message{Topic: topic, Value: []byte("1")}), &many)
	require.ErrorIs(t, many[0], context.Canceled)
	require.False(t, kafka.Permanent(many[0]))
}
