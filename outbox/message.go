package outbox

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Shards is into how many shards the outbox is divided. It is fixed when the
// database is installed: an outbox with another number would let two relays
// publish one key.
const Shards = 16

// Shard is the shard of a Kafka key: its partition in a topic with the default
// number of partitions, so that a shard's messages mostly share a partition.
func Shard(key []byte) int16 {
	return int16(kafka.Partition(key, Shards)) //nolint:gosec // below Shards
}

// Message is one message on its way to Kafka, in CloudEvents' words.
type Message struct {
	// ID becomes ce_id, and stays the same however often the message is
	// published. Required.
	ID uuid.UUID
	// Topic to publish to. Required.
	Topic string
	// Key decides the partition and the order: messages of one topic and key
	// are published in the order in which they were enqueued. Nil means a
	// record without a key, which has no order.
	Key []byte
	// Type becomes ce_type. Required.
	Type string
	// Subject becomes ce_subject; empty means none.
	Subject string
	// Payload is the record's value, unchanged; nil means a null value.
	Payload []byte
	// Headers are further record headers; values may hold any bytes. The names
	// of the derived headers (ce_id, ce_source, ce_type, ce_time,
	// ce_specversion, and ce_subject where Subject is set) are ignored.
	// "content-type" defaults to application/json, or to
	// application/octet-stream where there is a "dl_reason".
	Headers map[string]string
	// Trace becomes traceparent, in place of one in Headers; empty means none.
	Trace string
}

// Validate reports the first field that cannot be stored, and what to change.
func (m *Message) Validate() error {
	switch {
	case m.ID == uuid.Nil:
		return errors.New("outbox message has no id: give it one that every repetition shares")
	case m.Topic == "":
		return fmt.Errorf("outbox message %s has no topic: name the one to publish to", m.ID)
	case m.Type == "":
		return fmt.Errorf("outbox message %s has no type: name what it says, as in payment.succeeded", m.ID)
	case !storable(m.Topic) || !storable(m.Type):
		return fmt.Errorf("outbox message %s: topic %q and type %q must be UTF-8 without zero bytes", m.ID, m.Topic, m.Type)
	}
	return nil
}

// storable reports whether Postgres takes s as text.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
