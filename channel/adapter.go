package channel

import (
	"context"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Request is one submit: the content of an attempt, the same in every send of it.
type Request struct {
	// ProviderKey is the identity the provider knows this attempt by.
	ProviderKey uuid.UUID
	// PaymentID is the payment, for the provider's own records.
	PaymentID uuid.UUID
	// Amount is in minor units of Currency.
	Amount int64
	// Currency is an ISO 4217 code.
	Currency string
	// OrderID, CustomerID and PaymentMethod are the command's.
	OrderID, CustomerID, PaymentMethod string
	// Metadata is the command's, handed through.
	Metadata map[string]string
	// Traceparent is the context of this very send (W3C Trace Context), empty for
	// none. It is no content: repetitions differ in it.
	Traceparent string
}

// Lookup is one query: what is asked for, and what the answer must echo to be
// evidence for this payment.
type Lookup struct {
	// ProviderKey is the attempt's identity at the provider.
	ProviderKey uuid.UUID
	// Amount is in minor units of Currency; the provider's echo is compared with it.
	Amount int64
	// Currency is an ISO 4217 code; the provider's echo is compared with it.
	Currency string
	// Traceparent is the context of this query, empty for none.
	Traceparent string
}

// Adapter speaks to one payment provider. It is safe for concurrent use, has no
// retry of its own, and never returns an error: whatever happens is an answer
// with a class, and whatever cannot be told is payment.ClassUnknown.
type Adapter interface {
	// Submit puts at most one request on the wire per call (G1). The context
	// carries the send's deadline: past it nothing more is written, the
	// connection is reset, and the answer is ClassUnknown unless no byte left.
	// A context without a deadline is refused with ClassNotSent.
	Submit(ctx context.Context, r Request) payment.Answer
	// Query asks for the fate of an attempt and changes nothing at the provider.
	// "Not found" is ClassNotFound; Capabilities.NotFound says what it proves.
	Query(ctx context.Context, l Lookup) payment.Answer
}
