package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Message is one message for the handler.
type Message struct {
	// ID is ce_id: the same in every repetition of the message.
	ID uuid.UUID
	// Type is ce_type, such as "payment.succeeded" or "payment.reply.outcome".
	Type string
	// Time is ce_time: when the message was made. It is the same in every
	// repetition.
	Time time.Time
	// Topic, Partition and Offset are where this delivery came from.
	Topic     string
	Partition int
	Offset    int64
	// Key and Value are the record's.
	Key, Value []byte
	// Headers are the record's, the last of each name.
	Headers map[string]string
	// Missing is how many events of this payment, between the last one that was
	// applied and this one, were never seen: 0 unless something was lost, put
	// into the dead letters, or not in the topic any more when the inbox first
	// ran. Messages that are not events have none.
	Missing int

	// event is what was read of an event's body; nil for other messages, and for
	// an event that is none.
	event *payment.Event
}

// Event returns the body of a message of payment.events. The error, which a
// handler can return as it is, makes the message a dead letter.
func (m *Message) Event() (*payment.Event, error) {
	if m.event != nil {
		return m.event, nil
	}
	event, err := readEvent(m.Value)
	if err != nil {
		return nil, Poison(fmt.Errorf("read the event: %w", err))
	}
	return event, nil
}

// Reply returns the body of a message of payment.replies. The error, which a
// handler can return as it is, makes the message a dead letter.
func (m *Message) Reply() (*payment.Reply, error) {
	var reply payment.Reply
	if err := json.Unmarshal(m.Value, &reply); err != nil {
		return nil, Poison(fmt.Errorf("read the reply: %w", err))
	}
	if reply.Kind == "" || reply.IdempotencyKey == uuid.Nil {
		return nil, Poison(errors.New("read the reply: it has no kind or no idempotencyKey"))
	}
	return &reply, nil
}

func readEvent(value []byte) (*payment.Event, error) {
	var event payment.Event
	if err := json.Unmarshal(value, &event); err != nil {
		return nil, err
	}
	if event.PaymentID == uuid.Nil || event.Version < 1 || event.Version > math.MaxInt32 {
		return nil, errors.New("it has no paymentId, or no version that a payment can have")
	}
	return &event, nil
}

// lastYear is the last one that a ce_time can name.
const lastYear = 9999

// replyPrefix starts the types of replies; the other "payment." types are events.
const replyPrefix = "payment.reply."

// read turns a record into a message. The error says why it cannot be one: a
// message without an identity cannot be told from its repetition.
func read(r *kafka.Record) (*Message, error) {
	m := &Message{
		Time: r.Time, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value,
		Headers: make(map[string]string, len(r.Headers)),
	}
	for _, h := range r.Headers {
		m.Headers[h.Key] = string(h.Value)
	}
	id, err := uuid.Parse(m.Headers["ce_id"])
	if err != nil || id == uuid.Nil {
		return m, &poison{reason: payment.DeadNoID, err: errors.New("the header ce_id is missing or no UUID; publish the message with one")}
	}
	m.ID, m.Type = id, m.Headers["ce_type"]
	if at, err := time.Parse(time.RFC3339Nano, m.Headers["ce_time"]); err == nil {
		m.Time = at
	}
	if year := m.Time.UTC().Year(); year < 0 || year > lastYear {
		// A record's time is whatever its producer says, and no marker could have this one.
		return m, &poison{reason: payment.DeadUnreadable, err: errors.New("the record's time lies in no year that there is; publish the message with a ce_time")}
	}
	if strings.HasPrefix(m.Type, "payment.") && !strings.HasPrefix(m.Type, replyPrefix) {
		m.event, _ = readEvent(m.Value) // what cannot be read is the handler's to refuse
	}
	return m, nil
}
