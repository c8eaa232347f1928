package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

func fencedChecks() []check {
	return []check{
		{"FencedOldOwner", checkFencedOldOwner},
		{"FencedRenew", checkFencedRenew},
		{"FencedShards", checkFencedShards},
		{"FencedSharedPartition", checkFencedSharedPartition},
		{"FencedTooLarge", checkFencedTooLarge},
		{"FencedManyBatches", checkFencedManyBatches},
		{"FencedBadTopics", checkFencedBadTopics},
		{"FencedNewTopic", checkFencedNewTopic},
		{"FencedRecord", checkFencedRecord},
		{"FencedIdleID", checkFencedIdleID},
		{"FencedTime", checkFencedTime},
	}
}

func (s *suite) producer(t *testing.T, suffix string) *kafka.FencedProducer {
	t.Helper()
	p, err := s.client.NewFencedProducer(s.context(t), s.name+"-outbox"+suffix)
	require.NoError(t, err)
	return p
}

// send publishes values with one producer under the empty key.
func (s *suite) send(ctx context.Context, p *kafka.FencedProducer, topic string, vs ...string) kafka.FencedResult {
	return s.present(ctx, kafka.FencedBatch{Producer: p, Messages: messages(topic, vs...)})[0]
}

// present publishes as a relay does: what is unresolved, and nothing else, is presented
// again. On a busy machine any answer may be late.
func (s *suite) present(ctx context.Context, batches ...kafka.FencedBatch) []kafka.FencedResult {
	results := s.client.PublishFenced(ctx, batches)
	for ctx.Err() == nil {
		var again []kafka.FencedBatch
		var at [][2]int
		for i, batch := range batches {
			open := kafka.FencedBatch{Producer: batch.Producer}
			for j, message := range batch.Messages {
				if errors.Is(results[i].Errors[j], kafka.ErrUnresolved) {
					open.Messages, at = append(open.Messages, message), append(at, [2]int{i, j})
				}
			}
			if len(open.Messages) > 0 {
				again = append(again, open)
			}
		}
		if len(again) == 0 {
			break
		}
		for _, r := range s.client.PublishFenced(ctx, again) {
			for _, err := range r.Errors {
				results[at[0][0]].Errors[at[0][1]], at = err, at[1:]
			}
		}
	}
	return results
}

// insist publishes until everything is there.
func (s *suite) insist(t *testing.T, p *kafka.FencedProducer, topic string, vs ...string) {
	t.Helper()
	require.NoError(t, s.send(s.context(t), p, topic, vs...).Err())
}

func messages(topic string, vs ...string) []kafka.Message {
	out := make([]kafka.Message, len(vs))
	for i, v := range vs {
		out[i] = kafka.Message{Topic: topic, Key: []byte{}, Value: []byte(v)}
	}
	return out
}

// B6, G10: a relay that was frozen and wakes up after its successor published is
// refused, in every partition where the successor wrote.
func checkFencedOldOwner(t *testing.T, s *suite) {
	topic := s.topic(t, "owner", 1)
	old := s.producer(t, "")
	require.NoError(t, s.send(s.context(t), old, topic, "1", "2").Err())
	next := s.producer(t, "")
	require.Equal(t, old.ProducerID(), next.ProducerID())
	require.Greater(t, next.Epoch(), old.Epoch())
	require.NoError(t, s.send(s.context(t), next, topic, "3").Err())
	got := s.send(s.context(t), old, topic, "1", "2")
	for _, err := range got.Errors {
		require.ErrorIs(t, err, kafka.ErrFenced)
		require.False(t, kafka.Permanent(err))
	}
	require.NoError(t, s.send(s.context(t), next, topic, "4").Err())
	require.Equal(t, []string{"1", "2", "3", "4"}, s.log(t, topic)[0])
}

// Renewing takes the next epoch of the same producer id and numbers from the
// start.
func checkFencedRenew(t *testing.T, s *suite) {
	topic := s.topic(t, "renew", 1)
	p := s.producer(t, "")
	id, epoch, asked := p.ProducerID(), p.Epoch(), s.faults.Count(apiInitProducer)
	require.NoError(t, s.send(s.context(t), p, topic, "1", "2").Err())
	require.NoError(t, p.Renew(s.context(t)))
	require.Equal(t, id, p.ProducerID())
	require.Greater(t, p.Epoch(), epoch)
	require.LessOrEqual(t, int64(p.Epoch()-epoch), s.faults.Count(apiInitProducer)-asked, "one for each time it is asked for")
	require.NoError(t, s.send(s.context(t), p, topic, "3").Err())
	require.NoError(t, s.send(s.context(t), p, topic, "4", "5").Err())
	require.Equal(t, []string{"1", "2", "3", "4", "5"}, s.log(t, topic)[0])
}

// Sixteen shards with messages of two topics go out in one request.
func checkFencedShards(t *testing.T, s *suite) {
	const shards = 16
	a, b := s.topic(t, "replies", shards), s.topic(t, "events", shards)
	var batches []kafka.FencedBatch
	byPartition := make(map[int][]byte)
	for i := 0; len(byPartition) < shards; i++ {
		key := fmt.Appendf(nil, "key-%d", i)
		byPartition[kafka.Partition(key, shards)] = key
	}
	for i := range shards {
		p := s.producer(t, fmt.Sprintf("-%d", i))
		key := byPartition[i]
		batches = append(batches, kafka.FencedBatch{Producer: p, Messages: []kafka.Message{
			{Topic: a, Key: key, Value: []byte("1")}, {Topic: b, Key: key, Value: []byte("1")}, {Topic: a, Key: key, Value: []byte("2")},
		}})
	}
	require.NoError(t, s.send(s.context(t), batches[0].Producer, a).Err(), "nothing to do")
	leaders, rounds, sent := int64(s.leaders(t, a, b)), 0, int64(0)
	for begun := time.Now(); sent != leaders && time.Since(begun) < patience; rounds++ { // what is answered late is sent again
		before := s.faults.Count(apiProduce)
		for _, r := range s.present(s.context(t), batches...) {
			require.NoError(t, r.Err())
		}
		sent = s.faults.Count(apiProduce) - before
	}
	require.Equal(t, leaders, sent, "one request per leader")
	inA, inB := s.log(t, a), s.log(t, b)
	for p := range shards {
		require.Equal(t, slices.Repeat([]string{"1", "2"}, rounds), inA[p])
		require.Equal(t, slices.Repeat([]string{"1"}, rounds), inB[p])
	}
}

// Producers that share a partition take turns; each keeps its own order.
func checkFencedSharedPartition(t *testing.T, s *suite) {
	topic := s.topic(t, "shared", 1)
	a, b := s.producer(t, "-a"), s.producer(t, "-b")
	batches := []kafka.FencedBatch{
		{Producer: a, Messages: messages(topic, "a1", "a2")},
		{Producer: b, Messages: messages(topic, "b1")},
		{Producer: a, Messages: messages(topic, "a3")},
	}
	for range 2 {
		for _, r := range s.present(s.context(t), batches...) {
			require.NoError(t, r.Err())
		}
	}
	require.Equal(t, []string{"a1", "a2", "a3", "b1", "a1", "a2", "a3", "b1"}, s.log(t, topic)[0])
}

// A message that the topic does not take fails alone, the rest of its batch is
// stored, and later messages of its key are held back.
func checkFencedTooLarge(t *testing.T, s *suite) {
	topic := s.name + "-small"
	_, err := s.client.EnsureTopics(s.context(t), []kafka.TopicSpec{
		{Name: topic, Partitions: 1, Replication: 1, Config: map[string]string{"max.message.bytes": "2000"}},
	})
	require.NoError(t, err)
	p := s.producer(t, "")
	var in []kafka.Message
	for i := range 20 {
		in = append(in, kafka.Message{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
	}
	in[7].Value = make([]byte, 4000)
	in[13].Value = make([]byte, 40<<20)
	in[17].Key = in[7].Key
	got := s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: in})[0]
	var want []string
	for i, err := range got.Errors {
		switch i {
		case 7, 13:
			require.ErrorIs(t, err, kafka.ErrMessageTooLarge)
			require.True(t, kafka.Permanent(err))
		case 17:
			require.ErrorIs(t, err, kafka.ErrEarlierRefused)
		default:
			require.NoError(t, err)
			want = append(want, string(in[i].Value))
		}
	}
	require.Equal(t, want, s.log(t, topic)[0])
	require.NoError(t, s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: in[:3]})[0].Err())
}

// More than fits one batch goes out in several, in order.
func checkFencedManyBatches(t *testing.T, s *suite) {
	topic := s.topic(t, "many", 1)
	p := s.producer(t, "")
	var in []kafka.Message
	for i := range 300 {
		in = append(in, kafka.Message{Topic: topic, Key: []byte("k"), Value: append(make([]byte, 20_000), strconv.Itoa(i)...)})
	}
	require.NoError(t, s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: in})[0].Err())
	got := s.log(t, topic)[0]
	require.Len(t, got, len(in))
	for i := range in {
		require.Equal(t, string(in[i].Value), got[i])
	}
}

// Topics that cannot take messages fail theirs only.
func checkFencedBadTopics(t *testing.T, s *suite) {
	topic := s.topic(t, "good", 1)
	p := s.producer(t, "")
	in := messages(topic, "1", "2", "3")
	in[0].Topic = s.name + "-missing"
	in[2].Topic = ""
	got := s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: in})[0]
	require.ErrorIs(t, got.Errors[0], kafka.ErrUnknownTopic)
	require.True(t, kafka.Permanent(got.Errors[0]))
	require.NoError(t, got.Errors[1])
	require.ErrorIs(t, got.Errors[2], kafka.ErrInvalidTopic)
}

// A topic that was just created by somebody else is found.
func checkFencedNewTopic(t *testing.T, s *suite) {
	p := s.producer(t, "")
	require.NoError(t, s.send(s.context(t), p, s.topic(t, "one", 1), "1").Err())
	other := s.newClient(t, &Faults{})
	topic := s.name + "-two"
	_, err := other.EnsureTopics(s.context(t), []kafka.TopicSpec{{Name: topic, Partitions: 1, Replication: 1}})
	require.NoError(t, err)
	require.NoError(t, s.send(s.context(t), p, topic, "1").Err())
}

// What our encoder writes, others read: headers, nil and empty.
func checkFencedRecord(t *testing.T, s *suite) {
	topic := s.topic(t, "record", 1)
	p := s.producer(t, "")
	in := []kafka.Message{
		{Topic: topic, Key: []byte("k"), Value: make([]byte, 70_000), Headers: []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "", Value: nil}}},
		{Topic: topic},
		{Topic: topic, Key: []byte{}, Value: []byte{}, Headers: []kafka.Header{{Key: "b", Value: []byte{}}}},
	}
	require.NoError(t, s.present(s.context(t), kafka.FencedBatch{Producer: p, Messages: in})[0].Err())
	rs := s.fetchOther(t, topic, 3)
	for i, m := range in {
		require.Equal(t, m.Key, rs[i].Key)
		require.Equal(t, m.Value, rs[i].Value)
		require.Len(t, rs[i].Headers, len(m.Headers))
		for j, h := range m.Headers {
			require.Equal(t, h.Key, rs[i].Headers[j].Key)
			require.Equal(t, h.Value, rs[i].Headers[j].Value)
		}
		require.Equal(t, p.ProducerID(), rs[i].ProducerID)
	}
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	for i, d := range m.waitFor(t, 3) {
		require.Equal(t, in[i].Key, d.Key)
		require.Equal(t, in[i].Value, d.Value)
	}
}

func checkFencedIdleID(t *testing.T, s *suite) {
	_, err := s.client.NewFencedProducer(s.context(t), "")
	require.Error(t, err)
	ctx, cancel := context.WithCancel(s.context(t))
	cancel()
	_, err = s.client.NewFencedProducer(ctx, s.name)
	require.ErrorIs(t, err, context.Canceled)
}
