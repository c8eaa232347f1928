package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/segmentio/kafka-go/compress"
)

// Offsets in a version 2 record batch, counted from behind the four bytes of
// size that precede it in a request.
const (
	batchLengthAt   = 8
	batchMagicAt    = 16
	batchCRCAt      = 17
	batchContentAt  = 21
	batchLastAt     = 23
	batchFirstTime  = 27
	batchMaxTime    = 35
	batchProducerAt = 43
	batchEpochAt    = 51
	batchSequenceAt = 53
	batchCountAt    = 57
	batchHeaderSize = 61
	sizePrefix      = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stamp numbers a batch, so that the broker recognises its repetition.
type stamp struct {
	producerID int64
	epoch      int16
	sequence   int32
}

// codecOf returns the library's codec of a name in the configuration.
func codecOf(name string) (compress.Compression, bool) {
	codecs := map[string]compress.Compression{
		"none": compress.None, "gzip": compress.Gzip, "snappy": compress.Snappy, "lz4": compress.Lz4, "zstd": compress.Zstd,
	}
	c, ok := codecs[name]
	return c, ok
}

// encodeBatch writes one record batch, with the size prefix that a produce
// request wants. All records get the time at.
func encodeBatch(s stamp, at time.Time, msgs []*Message, codec compress.Compression) []byte {
	size := sizePrefix + batchHeaderSize
	for _, m := range msgs {
		size += recordBound(m)
	}
	out := make([]byte, sizePrefix+batchHeaderSize, size)
	for i, m := range msgs {
		out = appendRecord(out, i, m)
	}
	out, codec = compressRecords(out, codec)
	binary.BigEndian.PutUint32(out, uint32(len(out)-sizePrefix)) //nolint:gosec // bounded by maxMessageBytes and maxBatchBytes
	b := out[sizePrefix:]
	ms := uint64(at.UnixMilli())
	binary.BigEndian.PutUint32(b[batchLengthAt:], uint32(len(b)-batchLengthAt-4)) //nolint:gosec // as above
	binary.BigEndian.PutUint32(b[batchMagicAt-4:], ^uint32(0))                    // leader epoch: not known
	b[batchMagicAt] = 2
	b[batchContentAt+1] = byte(codec)                                //nolint:gosec // 0 to 4
	binary.BigEndian.PutUint32(b[batchLastAt:], uint32(len(msgs)-1)) //nolint:gosec // bounded by maxBatchRecords
	binary.BigEndian.PutUint64(b[batchFirstTime:], ms)
	binary.BigEndian.PutUint64(b[batchMaxTime:], ms)
	binary.BigEndian.PutUint64(b[batchProducerAt:], uint64(s.producerID)) //nolint:gosec // a two's complement copy
	binary.BigEndian.PutUint16(b[batchEpochAt:], uint16(s.epoch))         //nolint:gosec // as above
	binary.BigEndian.PutUint32(b[batchSequenceAt:], uint32(s.sequence))   //nolint:gosec // as above
	binary.BigEndian.PutUint32(b[batchCountAt:], uint32(len(msgs)))       //nolint:gosec // bounded by maxBatchRecords
	binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchContentAt:], castagnoli))
	return out
}

// compressRecords compresses what lies behind the header. Should that fail, which
// writing to memory does not, the records stay as they are.
func compressRecords(plain []byte, codec compress.Compression) ([]byte, compress.Compression) {
	c := codec.Codec()
	if c == nil {
		return plain, compress.None
	}
	const header = sizePrefix + batchHeaderSize
	out := bytes.NewBuffer(make([]byte, header, header+len(plain)/2))
	w := c.NewWriter(out)
	_, err := w.Write(plain[header:])
	if closed := w.Close(); err != nil || closed != nil {
		return plain, compress.None
	}
	return out.Bytes(), codec
}

// recordBound is at least the encoded size of the message.
func recordBound(m *Message) int {
	const lengths = 5 + 1 + 1 + 5 + 5 + 5 + 5 // record, attributes, time, offset, key, value, headers
	n := lengths + len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += 10 + len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

func appendRecord(out []byte, offset int, m *Message) []byte {
	out = binary.AppendVarint(out, int64(recordSize(offset, m)))
	out = append(out, 0, 0) // attributes, time after the batch's
	out = binary.AppendVarint(out, int64(offset))
	out = appendNullable(out, m.Key)
	out = appendNullable(out, m.Value)
	out = binary.AppendVarint(out, int64(len(m.Headers)))
	for i := range m.Headers {
		h := &m.Headers[i]
		out = binary.AppendVarint(out, int64(len(h.Key)))
		out = append(out, h.Key...)
		out = appendNullable(out, h.Value)
	}
	return out
}

func recordSize(offset int, m *Message) int {
	n := 2 + varintSize(offset) + nullableSize(m.Key) + nullableSize(m.Value) + varintSize(len(m.Headers))
	for i := range m.Headers {
		h := &m.Headers[i]
		n += varintSize(len(h.Key)) + len(h.Key) + nullableSize(h.Value)
	}
	return n
}

func appendNullable(out, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(out, -1)
	}
	out = binary.AppendVarint(out, int64(len(b)))
	return append(out, b...)
}

func nullableSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(len(b)) + len(b)
}

// varintSize is the zigzag-encoded size of a non-negative number.
func varintSize(n int) int {
	size := 1
	for n >>= 6; n > 0; n >>= 7 {
		size++
	}
	return size
}
