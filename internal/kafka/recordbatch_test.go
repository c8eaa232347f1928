package kafka

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawMessage(t *rapid.T) *Message {
	nullable := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	m := &Message{Key: nullable.Draw(t, "key"), Value: nullable.Draw(t, "value")}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		m.Headers = append(m.Headers, Header{Key: rapid.StringN(0, 80, 200).Draw(t, "name"), Value: nullable.Draw(t, "content")})
	}
	return m
}

// What the encoder writes, the library's decoder (which checks the CRC) reads.
func TestEncodeBatch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var msgs []*Message
		bound := batchHeaderSize
		for range rapid.IntRange(1, 80).Draw(t, "messages") {
			m := drawMessage(t)
			msgs = append(msgs, m)
			bound += recordBound(m)
		}
		s := stamp{producerID: rapid.Int64().Draw(t, "id"), epoch: rapid.Int16().Draw(t, "epoch"), sequence: rapid.Int32().Draw(t, "sequence")}
		at := time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time")).UTC()
		codec := compress.Compression(rapid.IntRange(0, 4).Draw(t, "codec"))
		raw := encodeBatch(s, at, msgs, codec)
		if codec == compress.None {
			require.LessOrEqual(t, len(raw)-sizePrefix, bound)
		}

		var rs protocol.RecordSet
		_, err := rs.ReadFrom(bytes.NewReader(raw))
		require.NoError(t, err)
		batch, ok := rs.Records.(*protocol.RecordStream).Records[0].(*protocol.RecordBatch)
		require.True(t, ok)
		decoded := stamp{batch.ProducerID, batch.ProducerEpoch, batch.BaseSequence}
		require.Equal(t, s, decoded)
		require.Equal(t, codec, batch.Attributes.Compression())
		got, err := decode(topicPartition{"t", 1}, &fetchapi.ResponsePartition{RecordSet: rs, HighWatermark: 9, LastStableOffset: -1}, 0)
		require.NoError(t, err)
		require.Equal(t, int64(len(msgs)), got.next)
		require.Equal(t, int64(9), got.stable)
		size := 0
		for i, m := range msgs {
			require.Equal(t, Record{
				Topic: "t", Partition: 1, Offset: int64(i), Time: at, Key: m.Key, Value: m.Value, Headers: emptyOf(m.Headers),
			}, withEmptyHeaders(got.records[i]))
			size += got.records[i].size()
		}
		require.Equal(t, size, got.bytes)
	})
}

// The library reads a null header value as an empty one.
func emptyOf(in []Header) []Header {
	out := []Header(nil)
	for _, h := range in {
		out = append(out, Header{Key: h.Key, Value: append([]byte{}, h.Value...)})
	}
	return out
}

func withEmptyHeaders(r Record) Record {
	r.Headers = emptyOf(r.Headers)
	return r
}

// Records share allocations, but none can write into its neighbour.
func TestDecodedRecordsAreApart(t *testing.T) {
	t.Parallel()
	var msgs []*Message
	for i := range 5000 {
		msgs = append(msgs, &Message{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)})
	}
	var rs protocol.RecordSet
	_, err := rs.ReadFrom(bytes.NewReader(encodeBatch(stamp{}, time.Now(), msgs, compress.None)))
	require.NoError(t, err)
	got, err := decode(topicPartition{"t", 0}, &fetchapi.ResponsePartition{RecordSet: rs}, 4000)
	require.NoError(t, err)
	require.Len(t, got.records, 1000, "those below the asked offset are dropped")
	for i := range got.records {
		_ = append(got.records[i].Key, "overwrite"...)
	}
	for i, r := range got.records {
		require.Equal(t, strconv.Itoa(4000+i), string(r.Value))
	}
}

func TestSequenceWraps(t *testing.T) {
	t.Parallel()
	require.Equal(t, int32(5), after(2, 3))
	require.Equal(t, int32(math.MaxInt32), after(math.MaxInt32-1, 1))
	require.Equal(t, int32(0), after(math.MaxInt32, 1))
	require.Equal(t, int32(2), after(math.MaxInt32, 3))
}

// Vectors of org.apache.kafka.common.utils.UtilsTest.
func TestPartitionIsJavas(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		require.Equal(t, want, int32(murmur2([]byte(key))))
		require.Equal(t, int(uint32(want)&math.MaxInt32)%16, Partition([]byte(key), 16))
	}
	require.Equal(t, 0, Partition([]byte("x"), 1))
	require.Equal(t, 0, Partition([]byte("x"), 0))
}
