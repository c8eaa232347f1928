package e2e_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

// sample is one record of the matrix and what must become of it.
type sample struct {
	name string
	// key is the record's; it is also the one that a reply or dead letter has.
	key   string
	value []byte
	// valid: a command; identified: answered "rejected"; else a dead letter.
	valid, identified bool
	reason            payment.DeadLetterReason
}

// samples are the corpus, each under a key and for an order of its own, and what
// only a record can be.
func samples() []sample {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	corpus := paymenttest.Corpus()
	list := make([]sample, 0, len(corpus)+8)
	for _, c := range corpus {
		key := uuid.NewString()
		value := bytes.ReplaceAll(c.Value, []byte(paymenttest.Key), []byte(key))
		value = bytes.ReplaceAll(value, []byte(strings.ToUpper(paymenttest.Key)), []byte(strings.ToUpper(key)))
		value = bytes.ReplaceAll(value, []byte("order-1001"), []byte("order-"+key))
		value = bytes.ReplaceAll(value, []byte("2026-11-30T10:00:00.123Z"), []byte(now))
		if value == nil {
			value = []byte{} // empty, which is not null
		}
		list = append(list, sample{c.Name, key, value, c.Valid, c.Identified, c.Reason})
	}
	body, loose := command(), command()
	strange := command(func(c *payment.Command) { c.Channel = "nowhere" })
	return append(list,
		sample{name: "null value", key: uuid.NewString(), reason: payment.DeadNullValue},
		sample{name: "key of the record differs", key: uuid.NewString(), value: body.AppendJSON(nil), reason: payment.DeadKeyMismatch},
		sample{name: "record without a key", value: loose.AppendJSON(nil), reason: payment.DeadKeyMismatch},
		sample{name: "unknown channel", key: strange.IdempotencyKey.String(), value: strange.AppendJSON(nil), identified: true},
		sample{name: "megabyte", key: uuid.NewString(), value: bytes.Repeat([]byte("x"), 1_000_000), reason: payment.DeadUnreadable},
	)
}

func codecs() []kgo.CompressionCodec {
	return []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
}

// The bad-input matrix: what can be read is answered, what cannot is a dead letter
// with its bytes unchanged; nothing is charged, and no partition stands still (B17, G5).
func TestB17_BadInput(t *testing.T) {
	t.Parallel()
	s := shared(t)
	list := samples()
	producers := make([]*kgo.Client, len(codecs()))
	for i, codec := range codecs() {
		producers[i] = s.producer(kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(1<<20))
	}
	for i, sample := range list {
		r := &kgo.Record{Topic: s.topics.Commands, Value: sample.value, Headers: []kgo.RecordHeader{{Key: "origin", Value: []byte(sample.name)}}}
		if sample.key != "" {
			r.Key = []byte(sample.key)
		}
		require.NoError(t, producers[i%len(producers)].ProduceSync(s.ctx, r).FirstErr(), sample.name)
	}
	var last []payment.Command // one more for every partition and codec
	for i := range 16 {
		c := command()
		r := s.record(c)
		r.Partition = int32(i)
		placed := s.producer(kgo.ProducerBatchCompression(codecs()[i%5]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		require.NoError(t, placed.ProduceSync(s.ctx, r).FirstErr())
		last = append(last, c)
	}
	for _, c := range last {
		s.waitReply(c.IdempotencyKey, payment.ReplyOutcome)
	}
	for _, sample := range list {
		switch {
		case sample.valid:
			s.judgedValid(sample)
		case sample.identified:
			s.judgedRejected(sample)
		default:
			s.judgedDead(sample)
		}
	}
	for _, sample := range list {
		charged := s.providerKeys("order-" + sample.key)
		require.LessOrEqual(t, charged, 1, sample.name)
		require.True(t, sample.valid || charged == 0, "%s was charged", sample.name)
	}
}

// judgedValid requires an outcome, or a rejection for the time that is the point
// of some samples.
func (s *stack) judgedValid(c sample) {
	key := uuid.MustParse(c.key)
	s.watch.until(s.t, func() bool { return len(s.replies(key)) > 0 }, "a reply to %q", c.name)
	reply := s.replies(key)[0]
	if reply.Kind == payment.ReplyRejected {
		require.Contains(s.t, []payment.Code{payment.CodeStaleCommand, payment.CodeInvalidCommand}, reply.Code, c.name)
		require.Contains(s.t, reply.Detail, "issuedAt", c.name)
		return
	}
	require.Equal(s.t, payment.ReplyOutcome, reply.Kind, "%s: %s", c.name, reply.Detail)
	require.Equal(s.t, payment.Succeeded, reply.Outcome.State, c.name)
}

func (s *stack) judgedRejected(c sample) {
	key := uuid.MustParse(c.key)
	s.watch.until(s.t, func() bool { return len(s.replies(key)) > 0 }, "a reply to %q", c.name)
	reply := s.replies(key)[0]
	require.Equal(s.t, payment.ReplyRejected, reply.Kind, c.name)
	require.Contains(s.t, []payment.Code{payment.CodeInvalidCommand, payment.CodeUnknownChannel}, reply.Code, c.name)
	require.NotEmpty(s.t, reply.Detail, c.name)
	require.Empty(s.t, s.watch.of(s.topics.DeadLetter, c.key), c.name)
}

func (s *stack) judgedDead(c sample) {
	var dead *kgo.Record
	s.watch.until(s.t, func() bool {
		for _, r := range s.watch.of(s.topics.DeadLetter, c.key) {
			if header(r, "origin") == c.name {
				dead = r
			}
		}
		return dead != nil
	}, "a dead letter of %q", c.name)
	require.Equal(s.t, string(c.reason), header(dead, "dl_reason"), c.name)
	require.True(s.t, bytes.Equal(c.value, dead.Value), "%s: bytes changed", c.name)
	require.Equal(s.t, c.value == nil, dead.Value == nil, c.name)
	require.Equal(s.t, c.key == "", dead.Key == nil, c.name)
	for _, name := range []string{"dl_error", "dl_topic", "dl_partition", "dl_offset", "dl_timestamp"} {
		require.NotEmpty(s.t, header(dead, name), "%s: %s", c.name, name)
	}
	require.False(s.t, json.Valid(dead.Value) && len(s.watch.of(s.topics.Replies, c.key)) > 0, "%s: answered as well", c.name)
}
