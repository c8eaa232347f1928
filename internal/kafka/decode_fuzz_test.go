package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
)

// Attributes of a version 2 batch.
const (
	transactional = 0x10
	controlBatch  = 0x20
)

// brokerLog is what a broker holds of one partition, and which of its
// transactions were aborted. Offsets that compaction removed are gaps.
type brokerLog struct {
	batches []storedBatch
	aborted []abortedSpan
	open    map[int64]int64 // first offset of a producer's open transaction
	next    int64
	visible []int64 // offsets that a committed reader must see, once decided
	waiting map[int64][]int64
}

type storedBatch struct {
	base, last int64
	raw        []byte
}

type abortedSpan struct{ producer, first, marker int64 }

func newBrokerLog() *brokerLog {
	return &brokerLog{open: map[int64]int64{}, waiting: map[int64][]int64{}}
}

// play takes one step per byte: which producer (0: without transactions), what
// it does, how many records, with which codec.
func (l *brokerLog) play(script []byte) {
	for i, op := range script {
		producer, count, codec := int64(op&3), int(op>>4&3)+1, compress.Compression(i%5)
		switch op >> 2 & 3 {
		case 2:
			l.end(producer, false)
		case 3:
			l.end(producer, true)
		default:
			l.append(producer, count, codec)
		}
		if op>>6 == 3 {
			l.next += 2
		}
	}
}

func (l *brokerLog) append(producer int64, count int, codec compress.Compression) {
	msgs := make([]*Message, count)
	for i := range msgs {
		at := l.next + int64(i)
		msgs[i] = &Message{Key: strconv.AppendInt(nil, at, 10), Value: strconv.AppendInt(nil, producer, 10)}
		l.waiting[producer] = append(l.waiting[producer], at)
	}
	attributes := byte(0)
	if producer != 0 {
		attributes = transactional
		if _, ok := l.open[producer]; !ok {
			l.open[producer] = l.next
		}
	}
	l.store(producer, attributes, msgs, codec)
	if producer == 0 {
		l.decide(0, true)
	}
}

// end writes the marker of a producer's open transaction.
func (l *brokerLog) end(producer int64, abort bool) {
	first, ok := l.open[producer]
	if !ok {
		return
	}
	delete(l.open, producer)
	kind := byte(1)
	if abort {
		kind = 0
		l.aborted = append(l.aborted, abortedSpan{producer, first, l.next})
	}
	l.store(producer, transactional|controlBatch, []*Message{{Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)}}, compress.None)
	l.decide(producer, !abort)
}

func (l *brokerLog) decide(producer int64, committed bool) {
	if committed {
		l.visible = append(l.visible, l.waiting[producer]...)
	}
	delete(l.waiting, producer)
}

func (l *brokerLog) store(producer int64, attributes byte, msgs []*Message, codec compress.Compression) {
	b := encodeBatch(stamp{producerID: producer}, time.UnixMilli(1), msgs, codec)[sizePrefix:]
	binary.BigEndian.PutUint64(b, uint64(l.next))
	b[batchContentAt+1] |= attributes
	binary.BigEndian.PutUint32(b[batchCRCAt:], crc32.Checksum(b[batchContentAt:], castagnoli))
	last := l.next + int64(len(msgs)) - 1
	l.batches = append(l.batches, storedBatch{l.next, last, b})
	l.next = last + 1
}

// stable is the last stable offset: nothing behind it is decided.
func (l *brokerLog) stable() int64 {
	lso := l.next
	for _, first := range l.open {
		lso = min(lso, first)
	}
	return lso
}

// fetch answers as a broker does: whole batches from the one that holds the
// offset on, and the aborted transactions that touch them, in no helpful order.
func (l *brokerLog) fetch(t *testing.T, from int64, limit int) *fetchapi.ResponsePartition {
	t.Helper()
	res := &fetchapi.ResponsePartition{HighWatermark: l.next, LastStableOffset: l.stable()}
	var raw []byte
	end := from
	for _, b := range l.batches {
		if b.last >= from && b.base < l.stable() && limit > 0 {
			raw, end, limit = append(raw, b.raw...), b.last, limit-1
		}
	}
	for _, a := range slices.Backward(l.aborted) {
		if a.marker >= from && a.first <= end {
			res.AbortedTransactions = append(res.AbortedTransactions, fetchapi.ResponseTransaction{ProducerID: a.producer, FirstOffset: a.first})
		}
	}
	_, err := res.RecordSet.ReadFrom(bytes.NewReader(sized(raw)))
	require.NoError(t, err)
	return res
}

// sized is a record set as it stands in an answer, behind its size.
func sized(batches []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(batches))), batches...)
}

// FuzzFetchTransactions: whatever producers do and however the answers are cut,
// a reader gets every committed record once and in order, and nothing of an
// aborted transaction (G16).
func FuzzFetchTransactions(f *testing.F) {
	f.Add([]byte{0x01, 0x09, 0x01, 0x0d, 0x01, 0x09}, byte(1))                  // B18: commit, abort, commit
	f.Add([]byte{0x31, 0x32, 0x0d, 0x30, 0x21, 0x0a, 0x09}, byte(2))            // two producers, interleaved
	f.Add([]byte{0x11, 0x0d, 0x11, 0x09, 0xc0, 0x11, 0xcd, 0x10, 0x3}, byte(1)) // gaps, one left open
	f.Fuzz(func(t *testing.T, script []byte, step byte) {
		l := newBrokerLog()
		l.play(script[:min(len(script), 200)])
		var got []int64
		next := int64(0)
		for next < l.stable() {
			out, err := decode(topicPartition{"t", 0}, l.fetch(t, next, int(step%7)+1), next)
			require.NoError(t, err)
			for _, r := range out.records {
				require.Equal(t, strconv.FormatInt(r.Offset, 10), string(r.Key))
				got = append(got, r.Offset)
			}
			if out.next == next { // only a gap is left
				require.Empty(t, out.records)
				break
			}
			require.Greater(t, out.next, next, "the offset went back")
			next = out.next
		}
		require.Equal(t, l.decided(), got)
	})
}

// decided are the visible offsets before the last stable one, in order.
func (l *brokerLog) decided() []int64 {
	seen := map[int64]bool{}
	for _, at := range l.visible {
		seen[at] = true
	}
	var out []int64
	for at := range l.stable() {
		if seen[at] {
			out = append(out, at)
		}
	}
	return out
}

// FuzzDecodeRecordSet: bytes that were damaged on the way end in an error or in
// records whose offsets rise from the one that was asked for.
func FuzzDecodeRecordSet(f *testing.F) {
	l := newBrokerLog()
	l.play([]byte{0x31, 0x10, 0x0d, 0x20, 0x09, 0x12, 0x0a})
	for from := range int64(4) {
		raw := make([]byte, 0, 512)
		for _, b := range l.batches[from:] {
			raw = append(raw, b.raw...)
		}
		f.Add(raw, from, int64(1), int64(0))
	}
	f.Add([]byte{}, int64(0), int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, raw []byte, from, producer, first int64) {
		res := &fetchapi.ResponsePartition{AbortedTransactions: []fetchapi.ResponseTransaction{
			{ProducerID: producer, FirstOffset: first}, {ProducerID: 2, FirstOffset: math.MinInt64},
		}}
		if !readSet(&res.RecordSet, sized(raw)) {
			return
		}
		from = max(from, 0)
		out, err := decode(topicPartition{"t", 0}, res, from)
		require.GreaterOrEqual(t, out.next, from)
		if err != nil {
			return // nothing of the answer is used
		}
		at := from
		for _, r := range out.records {
			require.GreaterOrEqual(t, r.Offset, at)
			at = r.Offset + 1
		}
		require.GreaterOrEqual(t, out.next, at)
	})
}

// readSet reports whether the library could read the bytes. It panics over some
// that no broker lets in (a message set of negative length, a batch with a huge
// header count): the process ends then, with nothing finished that was not, and
// the records are delivered again. That is not ours to repair here.
func readSet(set *protocol.RecordSet, raw []byte) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	_, err := set.ReadFrom(bufio.NewReader(bytes.NewReader(raw)))
	return err == nil
}
