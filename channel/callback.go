package channel

import (
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// CallbackVerifier is what an adapter offers beside Adapter where its provider
// sends callbacks. It is safe for concurrent use.
type CallbackVerifier interface {
	// VerifyCallback checks the signature and the age of one callback and reads
	// it. The body is the one that came in, byte for byte. It returns
	// ErrNoCallbackSecret, ErrCallbackSignature, ErrCallbackAge or
	// ErrCallbackUnreadable, and never a Callback with an error: what was not
	// signed with a secret of ours says nothing (P21).
	VerifyCallback(header http.Header, body []byte, now time.Time) (Callback, error)
}

// The reasons not to believe a callback.
var (
	// ErrNoCallbackSecret: the channel has no secret, so nothing can be verified.
	ErrNoCallbackSecret = errors.New("the channel has no callback secret")
	// ErrCallbackSignature: there is no signature, or none of our secrets made it.
	ErrCallbackSignature = errors.New("the callback is not signed with a secret of the channel")
	// ErrCallbackAge: signed by us, but too long ago, or in the future.
	ErrCallbackAge = errors.New("the callback's signature is too old, or in the future")
	// ErrCallbackUnreadable: signed, but not a callback of this provider.
	ErrCallbackUnreadable = errors.New("the callback cannot be read")
)

// CallbackKind says what a callback is about, in our words.
type CallbackKind string

// The kinds of callbacks. Refunds, disputes and others are recorded and trigger
// nothing.
const (
	CallbackSucceeded CallbackKind = "succeeded"
	CallbackDeclined  CallbackKind = "declined"
	CallbackRefunded  CallbackKind = "refunded"
	CallbackDisputed  CallbackKind = "disputed"
	CallbackOther     CallbackKind = "other"
)

// Outcome reports whether the kind speaks of an outcome of a payment.
func (k CallbackKind) Outcome() bool { return k == CallbackSucceeded || k == CallbackDeclined }

// Callback is what a provider says, after its signature was verified.
type Callback struct {
	// ID is the provider's id of this notification, the same in every delivery of
	// it. Required, at most 255 bytes.
	ID string
	// PaymentID is our payment, where the provider repeats what Request carried;
	// uuid.Nil elsewhere. It finds the payment in any state.
	PaymentID uuid.UUID
	// ProviderKey is our key of the attempt, where the provider repeats it;
	// uuid.Nil elsewhere.
	ProviderKey uuid.UUID
	// Reference is the provider's id of the charge; empty where it has none. A
	// callback has a provider key, a reference, or both.
	Reference string
	Kind      CallbackKind
	// Amount is in minor units of Currency; 0 and empty where it is not said.
	Amount   int64
	Currency string
	// Cause is the provider's reason of a decline.
	Cause string
	// OccurredAt is when it happened, by the provider's clock; zero where it is
	// not said.
	OccurredAt time.Time
}

// maxCallbackText bounds the texts of a callback, as its schema does.
const maxCallbackText = 255

// maxCallbackAmount is the largest amount there is.
const maxCallbackAmount = 1<<53 - 1

// Check reports ErrCallbackUnreadable for a callback that lacks what everything
// after it needs, or that no database or reader could take.
func (c *Callback) Check() error {
	switch {
	case c.ID == "" || !plainText(c.ID) || !plainText(c.Reference) || !plainText(c.Cause):
		return ErrCallbackUnreadable
	case c.ProviderKey == uuid.Nil && c.Reference == "":
		return ErrCallbackUnreadable
	case c.Amount < 0 || c.Amount > maxCallbackAmount || (c.Amount > 0) != (c.Currency != ""):
		return ErrCallbackUnreadable
	case c.Currency != "" && !currencyCode(c.Currency):
		return ErrCallbackUnreadable
	}
	switch c.Kind {
	case CallbackSucceeded, CallbackDeclined, CallbackRefunded, CallbackDisputed, CallbackOther:
		return nil
	}
	return ErrCallbackUnreadable
}

func currencyCode(code string) bool {
	if len(code) != 3 {
		return false
	}
	for _, b := range []byte(code) {
		if b < 'A' || b > 'Z' {
			return false
		}
	}
	return true
}
