package payment

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// EventType is the CloudEvents type of a payment event.
type EventType string

// The types of payment events, one per transition that downstream may care about.
const (
	EventAccepted         EventType = "payment.accepted"
	EventSucceeded        EventType = "payment.succeeded"
	EventDeclined         EventType = "payment.declined"
	EventRejected         EventType = "payment.rejected"
	EventUnknown          EventType = "payment.unknown"
	EventReviewRequired   EventType = "payment.review_required"
	EventEvidenceConflict EventType = "payment.evidence_conflict"
)

// ReplyKind says what a reply answers.
type ReplyKind string

// The kinds of replies.
const (
	ReplyAccepted ReplyKind = "accepted"
	ReplyOutcome  ReplyKind = "outcome"
	ReplyReplayed ReplyKind = "replayed"
	ReplyPending  ReplyKind = "pending"
	ReplyConflict ReplyKind = "conflict"
	ReplyRejected ReplyKind = "rejected"
)

// CEType is the CloudEvents type of a reply of this kind.
func (k ReplyKind) CEType() string { return "payment.reply." + string(k) }

// Code is the stable machine-readable reason of a conflict or a rejection.
type Code string

// The codes of replies. Clients may rely on them.
const (
	CodeInvalidCommand         Code = "INVALID_COMMAND"
	CodeStaleCommand           Code = "STALE_COMMAND"
	CodePriorAttemptUnresolved Code = "PRIOR_ATTEMPT_UNRESOLVED"
	CodeObligationAlreadyPaid  Code = "OBLIGATION_ALREADY_PAID"
	CodeUnknownChannel         Code = "UNKNOWN_CHANNEL"
	CodeChannelUnavailable     Code = "CHANNEL_UNAVAILABLE"
	CodeIdempotencyConflict    Code = "IDEMPOTENCY_CONFLICT"
)

// Event is a fact about a payment, published once per transition. Version rises
// by one exactly when an event is enqueued, so a gap is a loss.
type Event struct {
	PaymentID         uuid.UUID `json:"paymentId"`
	Caller            string    `json:"caller"`
	Operation         string    `json:"operation"`
	IdempotencyKey    uuid.UUID `json:"idempotencyKey"`
	OrderID           string    `json:"orderId"`
	Obligation        string    `json:"obligation"`
	Amount            int64     `json:"amount"`
	Currency          string    `json:"currency"`
	Channel           string    `json:"channel"`
	State             State     `json:"state"`
	Version           int       `json:"version"`
	Attempt           int       `json:"attempt"`
	ProviderReference string    `json:"providerReference,omitempty"`
	Cause             string    `json:"cause,omitempty"`
	OccurredAt        time.Time `json:"occurredAt"`
}

// Outcome is the terminal part of a reply: what became of the payment.
type Outcome struct {
	State             State     `json:"state"`
	ProviderReference string    `json:"providerReference,omitempty"`
	Cause             string    `json:"cause,omitempty"`
	OccurredAt        time.Time `json:"occurredAt"`
}

// Reply is the answer to one delivery of a command.
type Reply struct {
	Kind           ReplyKind  `json:"kind"`
	Code           Code       `json:"code,omitempty"`
	Detail         string     `json:"detail,omitempty"`
	BlockedBy      *uuid.UUID `json:"blockedBy,omitempty"`
	Caller         string     `json:"caller"`
	Operation      string     `json:"operation"`
	IdempotencyKey uuid.UUID  `json:"idempotencyKey"`
	PaymentID      uuid.UUID  `json:"paymentId"`
	State          State      `json:"state"`
	Version        int        `json:"version"`
	Replayed       bool       `json:"replayed"`
	Outcome        *Outcome   `json:"outcome,omitempty"`
}

// Requery is a wake-up on a delay topic. The truth is the next check in the
// database; a lost wake-up costs time, never money.
type Requery struct {
	PaymentID uuid.UUID `json:"paymentId"`
	Attempt   int       `json:"attempt"`
	// Query is the re-query this message announces: 1, 2 or 3.
	Query int       `json:"query"`
	DueAt time.Time `json:"dueAt"`
}

// DeadLetterReason says why a record could not be processed.
type DeadLetterReason string

// The reasons of dead letters.
const (
	DeadUnreadable    DeadLetterReason = "unreadable"     // not JSON, not UTF-8, not one object
	DeadNoKey         DeadLetterReason = "no_key"         // no usable idempotencyKey or caller
	DeadKeyMismatch   DeadLetterReason = "key_mismatch"   // the record's key is not the body's
	DeadStale         DeadLetterReason = "stale"          // older than the window (G14)
	DeadUnstorable    DeadLetterReason = "unstorable"     // the database refuses its content
	DeadForeignCaller DeadLetterReason = "foreign_caller" // the topic is not this caller's (G12)
	DeadBadSignature  DeadLetterReason = "bad_signature"  // not proven to be this caller's (G12)
	DeadNullValue     DeadLetterReason = "null_value"     // a record without a value
	DeadNoID          DeadLetterReason = "no_id"          // an inbox's message without a usable ce_id
	DeadHandlerFailed DeadLetterReason = "handler_failed" // an inbox's handler went on failing
)

// The headers that a dead letter has beside the record's own.
const (
	DeadHeaderPrefix    = "dl_"          // of all of them
	DeadHeaderReason    = "dl_reason"    // a DeadLetterReason
	DeadHeaderError     = "dl_error"     // one sentence for people
	DeadHeaderTopic     = "dl_topic"     // where the record was
	DeadHeaderPartition = "dl_partition" // decimal
	DeadHeaderOffset    = "dl_offset"    // decimal
	DeadHeaderTimestamp = "dl_timestamp" // the record's, RFC 3339 in UTC
	DeadHeaderConsumer  = "dl_consumer"  // the inbox that gave it up; missing where settleonce itself did
)

// Topics are the topic names, each with the configured prefix.
type Topics struct {
	Commands, Replies, Events, DeadLetter, Callbacks string
	// Requery holds the delay topics in the order of their tiers: 1 s, 4 s, 16 s.
	Requery [3]string

	own map[string]outputs // callers with topics of their own
}

// outputs are where a caller's messages go.
type outputs struct{ replies, events string }

// WithOwn returns a copy in which some callers have topics of their own for
// replies and events (G12): endings maps such a caller to what ends their names,
// like "partner" for payment.replies.partner.
func (t Topics) WithOwn(endings map[string]string) Topics {
	t.own = make(map[string]outputs, len(endings))
	for caller, ending := range endings {
		t.own[caller] = outputs{replies: t.Replies + "." + ending, events: t.Events + "." + ending}
	}
	return t
}

// RepliesOf returns the topic of a caller's replies.
func (t *Topics) RepliesOf(caller string) string {
	if own, ok := t.own[caller]; ok {
		return own.replies
	}
	return t.Replies
}

// EventsOf returns the topic of the events of a caller's payments.
func (t *Topics) EventsOf(caller string) string {
	if own, ok := t.own[caller]; ok {
		return own.events
	}
	return t.Events
}

// AllReplies returns every topic that carries replies, the common one first.
func (t *Topics) AllReplies() []string {
	return t.all(t.Replies, func(o outputs) string { return o.replies })
}

// AllEvents returns every topic that carries events, the common one first.
func (t *Topics) AllEvents() []string {
	return t.all(t.Events, func(o outputs) string { return o.events })
}

func (t *Topics) all(common string, pick func(outputs) string) []string {
	own := make([]string, 0, len(t.own))
	for _, o := range t.own {
		own = append(own, pick(o))
	}
	slices.Sort(own)
	return append([]string{common}, slices.Compact(own)...)
}

// NewTopics returns the topic names under a prefix (default empty).
func NewTopics(prefix string) Topics {
	return Topics{
		Commands:   prefix + "payment.commands",
		Replies:    prefix + "payment.replies",
		Events:     prefix + "payment.events",
		DeadLetter: prefix + "payment.deadletter",
		Callbacks:  prefix + "payment.callbacks",
		Requery:    [3]string{prefix + "payment.requery.1s", prefix + "payment.requery.4s", prefix + "payment.requery.16s"},
	}
}

// Tiers are the delays of the three re-queries, in order (G3: after the third
// a person is asked, never a guess made).
var Tiers = [3]time.Duration{time.Second, 4 * time.Second, 16 * time.Second}
