package kafka

import "time"

// Header is one key and value beside a record's payload.
type Header struct {
	Key   string
	Value []byte
}

// Message is a record to publish. The partition follows from the key, see
// Partition; without a key it follows from the value, so that a repetition goes
// to the same one. A nil Value is a null record value.
type Message struct {
	Topic      string
	Key, Value []byte
	Headers    []Header
	// Time becomes the record's timestamp, where the topic keeps the producer's. All
	// messages that go out in one batch get the latest of theirs. Defaults to the time
	// of this process's clock.
	Time time.Time
}

// Record is a record that was read. Its byte slices belong to the reader: they
// stay valid, and writing to them is safe.
type Record struct {
	Topic     string
	Partition int
	Offset    int64
	// Time is the record's timestamp, in UTC: the producer's or the broker's
	// clock, as the topic is configured.
	Time       time.Time
	Key, Value []byte
	Headers    []Header
}

// size is what the record counts for in MaxInFlightBytes.
func (r *Record) size() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// Partition places a key as the Java client's default partitioner does
// (murmur2). It returns 0 for less than two partitions; a nil key is placed
// like an empty one.
func Partition(key []byte, partitions int) int {
	if partitions < 2 {
		return 0
	}
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is the 32-bit variant that org.apache.kafka.common.utils.Utils uses.
func murmur2(data []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(data)) //nolint:gosec // keys are far shorter than 4 GiB
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}
