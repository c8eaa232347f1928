package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Message is a fact of the upstream service's own, for its own readers: an order
// was accepted, a refund is wanted. It goes the way of commands, through the same
// outbox. A reader that remembers ID (an inbox does) applies it once.
type Message struct {
	// ID becomes ce_id, the same however often the message is published. Required.
	ID uuid.UUID
	// Topic to publish to, without the producer's prefix. Names that begin with
	// "payment." are settleonce's and refused. Required.
	Topic string
	// Key decides the partition; messages of one key are meant for one reader.
	// Order between messages is best effort. Required.
	Key string
	// Type becomes ce_type, such as "order.accepted". Required.
	Type string
	// Payload is the value, as JSON, of at most 1,000,000 bytes with the other fields:
	// brokers take no message above 1 MiB by default. Required.
	Payload []byte
}

// maxMessage bounds a message. What no broker takes would be tried for ever, and keep
// back what its service enqueues later.
const maxMessage = 1_000_000

// ourTopics are the names that belong to settleonce.
const ourTopics = "payment."

// Validate reports the first field that cannot be published, and what to change.
func (m *Message) Validate() error {
	switch {
	case m.ID == uuid.Nil:
		return errors.New("the message has no id: derive one from what it tells, so that a repetition has the same")
	case m.Topic == "" || len(m.Topic) > maxTopic-maxPrefix || strings.ContainsFunc(m.Topic, func(r rune) bool { return !topicRune(r) }):
		return fmt.Errorf("topic %+q is no name of a topic: use at most %d letters, digits, '.', '_' and '-'", m.Topic, maxTopic-maxPrefix)
	case strings.HasPrefix(m.Topic, ourTopics):
		return fmt.Errorf("topic %s is settleonce's own: name one of yours", m.Topic)
	case m.Key == "" || m.Type == "":
		return errors.New("the message has no key or no type: set both")
	case !json.Valid(m.Payload):
		return errors.New("the message's payload is no JSON: say what happened, as JSON")
	case len(m.Key)+len(m.Type)+len(m.Payload) > maxMessage:
		return fmt.Errorf("the message has %d bytes, use at most %d: publish where the content is instead", len(m.Key)+len(m.Type)+len(m.Payload), maxMessage)
	}
	return nil
}

// EnqueueMessageTx writes the message into the outbox table as part of tx, the
// caller's own transaction: it is published, at least once, if and only if tx
// commits. A message that Validate refuses leaves tx usable; after any other
// error tx must be rolled back.
func EnqueueMessageTx(ctx context.Context, tx pgx.Tx, m Message) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("enqueue message: %w", err)
	}
	if _, err := tx.Exec(ctx, enqueueSQL, m.ID.String(), m.Topic, m.Key, m.Type, m.Payload); err != nil {
		return fmt.Errorf("enqueue message %s: %w", m.ID, err)
	}
	return nil
}

// wrap makes a message a CloudEvent, the same in every repetition.
func (p *Producer) wrap(m *Message, at time.Time) kafka.Message {
	return kafka.Message{
		Topic: p.prefix + m.Topic, Key: []byte(m.Key), Value: m.Payload,
		Headers: cloudEvent(m.ID.String(), "/settleonce/producer", m.Type, m.Key, at),
	}
}

// cloudEvent are the headers of a CloudEvent in Kafka's binary mode.
func cloudEvent(id, source, kind, subject string, at time.Time) []kafka.Header {
	return []kafka.Header{
		{Key: "ce_specversion", Value: []byte("1.0")},
		{Key: "ce_id", Value: []byte(id)},
		{Key: "ce_source", Value: []byte(source)},
		{Key: "ce_type", Value: []byte(kind)},
		{Key: "ce_subject", Value: []byte(subject)},
		{Key: "ce_time", Value: []byte(at.UTC().Format(time.RFC3339Nano))},
		{Key: "content-type", Value: []byte("application/json")},
	}
}
