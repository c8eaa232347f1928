package payment

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// namespace is the root of every name-based UUID this system derives. Changing
// it would give every known payment another identity.
var namespace = uuid.MustParse("6d0a3c1e-5a0b-5c0e-9b6f-6f6d8f0d5e11")

// OperationCharge is the one operation of this version: take the money once.
const OperationCharge = "charge"

// Identity names one intent to pay: two commands with equal identities are the
// same payment, whatever else they say (G1, G8). Another caller with the same
// key is another payment (G12).
type Identity struct {
	// Caller is the authenticated upstream service.
	Caller string
	// Operation is what is asked for; OperationCharge.
	Operation string
	// Key is the client-made idempotencyKey, a UUID v4.
	Key uuid.UUID
}

// PaymentID derives the payment's id: UUID v5 of the identity. It is the primary
// key of the payment, so the identity is unique without a second index.
func (i Identity) PaymentID() uuid.UUID { return derive("payment", i.fields()...) }

// ProviderKey derives the identity our side gives the provider for one attempt
// (1, 2, 3 …). It is derived and persisted, so that even a lost commit cannot
// mint another one (G1).
func (i Identity) ProviderKey(attempt int) uuid.UUID {
	return derive("provider", append(i.fields(), strconv.Itoa(attempt))...)
}

func (i Identity) fields() []string { return []string{i.Caller, i.Operation, i.Key.String()} }

// EventID derives the ce_id of an event. The same transition published again
// carries the same id, so downstream inboxes drop it.
func EventID(payment uuid.UUID, version int, eventType EventType) uuid.UUID {
	return derive("event", payment.String(), strconv.Itoa(version), string(eventType))
}

// ReplyID derives the ce_id of the reply to one delivery. The record time takes
// part because offsets start again when a topic is created anew.
func ReplyID(topic string, partition int, offset int64, recorded time.Time, kind ReplyKind) uuid.UUID {
	return derive("reply", topic, strconv.Itoa(partition), strconv.FormatInt(offset, 10),
		strconv.FormatInt(recorded.UnixMilli(), 10), string(kind))
}

// derive hashes length-prefixed fields, so that no two lists of fields can give
// the same name by moving a character from one field to the next.
func derive(kind string, fields ...string) uuid.UUID {
	name := make([]byte, 0, 128)
	name = appendField(name, kind)
	for _, field := range fields {
		name = appendField(name, field)
	}
	return uuid.NewSHA1(namespace, name)
}

func appendField(name []byte, field string) []byte {
	name = binary.AppendUvarint(name, uint64(len(field)))
	return append(name, field...)
}

// DeadLetterID derives the ce_id of the dead letter of one delivery.
func DeadLetterID(topic string, partition int, offset int64, recorded time.Time) uuid.UUID {
	return derive("deadletter", topic, strconv.Itoa(partition), strconv.FormatInt(offset, 10),
		strconv.FormatInt(recorded.UnixMilli(), 10))
}

// RequeryID derives the ce_id of the wake-up for one re-query of one attempt.
func RequeryID(payment uuid.UUID, attempt, query int) uuid.UUID {
	return derive("requery", payment.String(), strconv.Itoa(attempt), strconv.Itoa(query))
}
