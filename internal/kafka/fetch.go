package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// newFetchRequest asks outside of any fetch session, and for nothing that is not
// decided yet (isolation level 1).
func newFetchRequest(wait time.Duration, maxBytes int) *fetchapi.Request {
	return &fetchapi.Request{
		ReplicaID:      -1,
		MaxWaitTime:    int32(wait / time.Millisecond), //nolint:gosec // bounded by validation
		MinBytes:       1,
		MaxBytes:       int32(maxBytes), //nolint:gosec // bounded by validation
		IsolationLevel: 1,
		SessionEpoch:   -1,
	}
}

func addFetch(req *fetchapi.Request, tp topicPartition, offset int64, maxBytes int) {
	part := fetchapi.RequestPartition{
		Partition:          int32(tp.partition), //nolint:gosec // a partition number of the broker's
		CurrentLeaderEpoch: -1,
		FetchOffset:        offset,
		LogStartOffset:     -1,
		PartitionMaxBytes:  int32(maxBytes), //nolint:gosec // bounded by validation
	}
	for i := range req.Topics {
		if req.Topics[i].Topic == tp.topic {
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
			return
		}
	}
	req.Topics = append(req.Topics, fetchapi.RequestTopic{Topic: tp.topic, Partitions: []fetchapi.RequestPartition{part}})
}

// fetched is what one answer says about one partition.
type fetched struct {
	records []Record
	bytes   int
	next    int64 // offset to fetch next
	high    int64
	stable  int64
}

// decode keeps the records from offset from on that a committed reader may see:
// not those of aborted transactions, and no control records (G16). The offset
// moves past what it drops.
func decode(tp topicPartition, res *fetchapi.ResponsePartition, from int64) (fetched, error) {
	d := decoder{out: fetched{next: from, high: res.HighWatermark, stable: res.LastStableOffset}, tp: tp, from: from}
	if d.out.stable < 0 {
		d.out.stable = d.out.high
	}
	d.pending = slices.Clone(res.AbortedTransactions)
	slices.SortFunc(d.pending, func(a, b fetchapi.ResponseTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	stream, ok := res.RecordSet.Records.(*protocol.RecordStream)
	if !ok {
		return d.out, nil
	}
	for _, batch := range stream.Records {
		if err := d.batch(batch); err != nil {
			return d.out, fmt.Errorf("decode records of topic %s partition %d: %w", tp.topic, tp.partition, err)
		}
	}
	return d.out, nil
}

// decoder walks the batches of one answer in offset order.
type decoder struct {
	tp      topicPartition
	from    int64
	out     fetched
	passed  int64                          // every offset below has been walked over
	pending []fetchapi.ResponseTransaction // aborted, their first offset lies ahead
	aborted map[int64]bool                 // producers inside an aborted transaction at this point
	arena   []byte
}

func (d *decoder) batch(batch protocol.RecordReader) error {
	switch b := batch.(type) {
	case *protocol.ControlBatch:
		return d.control(b)
	case *protocol.RecordBatch:
		d.enter(b.BaseOffset)
		return d.records(b, b.Attributes.Transactional() && d.aborted[b.ProducerID])
	default: // a message set of a log that predates transactions
		return d.records(b, false)
	}
}

// enter begins the aborted transactions whose first batch has been reached.
func (d *decoder) enter(offset int64) {
	for len(d.pending) > 0 && d.pending[0].FirstOffset <= offset {
		if d.aborted == nil {
			d.aborted = make(map[int64]bool)
		}
		d.aborted[d.pending[0].ProducerID] = true
		d.pending = d.pending[1:]
	}
}

// control ends the producer's transaction: an abort marker is the last thing of
// the transaction that it aborts.
func (d *decoder) control(b *protocol.ControlBatch) error {
	const abortMarker = 0
	d.enter(b.BaseOffset)
	for {
		c, err := b.ReadControlRecord()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if c.Type == abortMarker {
			delete(d.aborted, b.ProducerID)
		}
		if err := d.pass(c.Offset); err != nil {
			return err
		}
	}
	d.out.next = max(d.out.next, b.BaseOffset+1)
	return nil
}

var errDisorder = errors.New("offsets do not rise, the answer was damaged on its way")

// pass moves on behind an offset. A batch's checksum does not cover its first
// offset: an answer in which offsets do not rise is asked for again, since what it
// skips would be lost and what it repeats be read twice.
func (d *decoder) pass(offset int64) error {
	if offset < d.passed || offset == math.MaxInt64 {
		return errDisorder
	}
	d.passed = offset + 1
	d.out.next = max(d.out.next, d.passed)
	return nil
}

func (d *decoder) records(batch protocol.RecordReader, aborted bool) error {
	for {
		r, err := batch.ReadRecord()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := d.record(r, aborted); err != nil {
			return err
		}
	}
}

func (d *decoder) record(r *protocol.Record, aborted bool) error {
	defer closeBytes(r.Key)
	defer closeBytes(r.Value)
	if err := d.pass(r.Offset); err != nil {
		return err
	}
	if aborted || r.Offset < d.from {
		return nil
	}
	key, err := d.bytes(r.Key)
	if err != nil {
		return err
	}
	value, err := d.bytes(r.Value)
	if err != nil {
		return err
	}
	rec := Record{
		Topic: d.tp.topic, Partition: d.tp.partition, Offset: r.Offset, Time: r.Time.UTC(),
		Key: key, Value: value, Headers: fromHeaders(r.Headers),
	}
	d.out.records = append(d.out.records, rec)
	d.out.bytes += rec.size()
	return nil
}

// arenaSize is how much of an answer one allocation holds: few allocations, and
// one record in flight keeps no more than that alive.
const arenaSize = 16 << 10

// bytes copies out of the library's pages, which it reuses; nil stays nil.
func (d *decoder) bytes(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	n := b.Len()
	if n == 0 {
		return []byte{}, nil
	}
	if n > cap(d.arena)-len(d.arena) {
		d.arena = make([]byte, 0, max(n, arenaSize))
	}
	start := len(d.arena)
	d.arena = d.arena[:start+n]
	out := d.arena[start : start+n : start+n]
	_, err := io.ReadFull(b, out)
	return out, err
}

func closeBytes(b protocol.Bytes) {
	if b != nil {
		_ = b.Close()
	}
}

func fromHeaders(in []protocol.Header) []Header {
	if len(in) == 0 {
		return nil
	}
	out := make([]Header, len(in))
	for i, h := range in {
		out[i] = Header{Key: h.Key, Value: h.Value}
	}
	return out
}
