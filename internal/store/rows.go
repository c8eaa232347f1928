package store

import (
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/payment"
)

// Origin is where a delivery came from: a record of a topic.
type Origin struct {
	Topic     string
	Partition int
	Offset    int64
	// Time is the record's own time; it tells two topics of the same name apart.
	Time time.Time
}

// same reports whether both are the same record.
func (o Origin) same(other Origin) bool {
	return o.Topic == other.Topic && o.Partition == other.Partition && o.Offset == other.Offset
}

// Payment is what is stored of a payment.
type Payment struct {
	ID                uuid.UUID
	Identity          payment.Identity
	Fingerprint       payment.Fingerprint
	Namespace         string
	Obligation        string
	OrderID           string
	Follows           *uuid.UUID
	Amount            int64
	Currency          string
	CustomerID        string
	PaymentMethod     string
	Channel           string
	ChannelIdentity   string
	Metadata          map[string]string
	ProviderKey       uuid.UUID
	State             payment.State
	Version           int
	Attempt           int
	Sends             int
	ProviderReference string
	Cause             string
	Detail            string
	BlockedBy         *uuid.UUID
	Origin            Origin
	IssuedAt          time.Time
	LatestIssuedAt    time.Time
	CreatedAt         time.Time
	UpdatedAt         time.Time
	// EndedAt is zero while the payment is unresolved.
	EndedAt time.Time
}

// Open is what is stored of an unresolved payment beside it.
type Open struct {
	// Lease is the fencing token of the worker that may act (G11).
	Lease       int64
	LeaseUntil  time.Time
	NextCheckAt time.Time
	// Queries counts the re-queries of the burst that were made.
	Queries int
	// Watches counts rounds of the slow watch, or of waiting while parked.
	Watches int
	// Sends are the permits of the current attempt that may have been sent.
	Sends channel.Sends
	// NoMoreSends forbids every further permit of this attempt.
	NoMoreSends bool
	// QueryFirst asks the provider before the first send: commits may be lost.
	QueryFirst bool
	// DeclineCause and DeclineReference are a decline that was heard and could
	// not be concluded yet (decline rule).
	DeclineCause     string
	DeclineReference string
	// PaidAttempt is an earlier attempt of which success was heard while this one may
	// have been sent, PaidReference the provider's; 0 for none. The payment can only
	// end succeeded then (G11).
	PaidAttempt   int
	PaidReference string
	OpenedAt      time.Time
}

// Locked is a payment under its row lock, as the deciding function sees it.
type Locked struct {
	Payment Payment
	// Open is nil for a payment in a terminal state.
	Open *Open
	// Ground is set where the step asked for it.
	Ground payment.Ground
	// Conflicted says that the payment has an open conflict item. Settled are the
	// provider's references of successes whose items a person settled.
	Conflicted bool
	Settled    []string
	// Suspect says that commits may be lost, and with them sends.
	Suspect bool
	// Now is the database's clock at the time of the lock.
	Now time.Time
	// Trace is for whoever picked the payment: the traceparent of what announced it.
	// The store leaves it empty.
	Trace string
}

// ReviewKind says why a person is asked.
type ReviewKind string

// The kinds of review items.
const (
	ReviewUnresolved ReviewKind = "unresolved"
	ReviewConflict   ReviewKind = "conflict"
	ReviewImported   ReviewKind = "imported"
)

// Review opens a review item.
type Review struct {
	Kind ReviewKind
	// Blocks makes it stand in the way of claims and permits of its obligation.
	Blocks bool
	Reason string
	// Evidence is what the provider said, for people.
	Evidence string
	// Success is the provider's reference of the success that contradicts: once a person
	// has settled the item, it is no news. Empty where it is about something else.
	Success string
}

// Audit is what an operator ordered: who is the change's actor.
type Audit struct {
	// Action is one word, as "attempt" or "resolve".
	Action string
	Reason string
	// Evidence is what it rests on, for people.
	Evidence string
	// Second is the other person, where two are asked for.
	Second string
	// Statement is the provider's, in writing, where there is one.
	Statement string
}

// Change is what becomes of a payment. The zero value changes nothing but is
// still written as a touch of the open row when Open is set.
type Change struct {
	// To is the next state; 0 keeps the current one.
	To payment.State
	// Reference, Cause and Detail replace the stored ones unless empty.
	Reference, Cause, Detail string
	BlockedBy                *uuid.UUID
	// Attempt is the attempt the payment goes on with, or ended by, under its provider
	// key; 0 keeps it. A later one closes the current: see Audit for why.
	Attempt int
	// Audit leaves a row of what an operator ordered; nil leaves none.
	Audit *Audit
	// Open replaces the open row. It is ignored when the payment ends.
	Open *Open
	// Event is published, and raises the version; "" publishes none.
	Event payment.EventType
	// Reply answers the first delivery; "" answers nothing.
	Reply payment.ReplyKind
	// Code is the reply's code, for rejections.
	Code payment.Code
	// Requery announces this re-query (1, 2, 3) on its delay topic; 0 none.
	Requery int
	Review  *Review
	// CloseReviews closes the payment's open "unresolved" items with this word.
	CloseReviews string
	// RequestHash and Actor go into the history row. A change writes one when
	// its state, sends or cause change.
	RequestHash, Actor string
	// Quiet suppresses the history row: nothing happened that is worth one.
	Quiet bool
}
