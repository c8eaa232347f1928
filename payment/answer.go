package payment

import "time"

// Class is what a channel's answer means for the payment. Every answer has
// exactly one; Classify is the table.
type Class int

// The classes of channel answers.
const (
	// ClassUnknown: sent, or may have been, without an authoritative answer. Re-query only.
	ClassUnknown Class = iota
	// ClassSucceeded: settled with equal amount, currency and provider key.
	ClassSucceeded
	// ClassDeclined: an explicit decline; concluded by the decline rule.
	ClassDeclined
	// ClassRefused: "this request cannot be accepted"; an explicit failure, concluded by the decline rule.
	ClassRefused
	// ClassNotSent: no byte reached the provider, or it proves not to have applied the request. The permit is over.
	ClassNotSent
	// ClassThrottled: refused for rate before it was applied. The permit is over; wait RetryAfter.
	ClassThrottled
	// ClassAccountRefused: our account is refused; not executed, the breaker opens.
	ClassAccountRefused
	// ClassMismatched: evidence that is not this payment: another amount or currency, merely authorised. Review, no further send.
	ClassMismatched
	// ClassNotFound: a query that found nothing. What that proves is up to the channel's capabilities.
	ClassNotFound
)

// Answer is what a channel said to one submit or query, already classified.
type Answer struct {
	Class Class
	// Reference is the provider's own id of the charge, if it gave one.
	Reference string
	// Cause is the provider's reason of a decline or refusal, or a short word on what went wrong.
	Cause string
	// Detail is for people: masked, bounded, never parsed.
	Detail string
	// RetryAfter is how long the provider asks to wait; 0 when it does not say.
	RetryAfter time.Duration
	// RequestHash identifies the exact request that was sent; empty for queries.
	RequestHash string
}
