package payment

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// CallbackMessage announces a provider's callback that was verified and stored.
// It only wakes the reconciler up: the truth is the row.
type CallbackMessage struct {
	Channel string `json:"channel"`
	// CallbackID is the provider's id of the notification.
	CallbackID string `json:"callbackId"`
	// ProviderKey is our key of the attempt, where the provider repeats it.
	ProviderKey *uuid.UUID `json:"providerKey,omitempty"`
	// ProviderReference is the provider's own id of the charge.
	ProviderReference string `json:"providerReference,omitempty"`
	// Kind is what it is about: succeeded, declined, refunded, disputed or other.
	Kind string `json:"kind"`
	// Amount is in minor units of Currency; 0 where the provider does not say.
	Amount     int64     `json:"amount,omitempty"`
	Currency   string    `json:"currency,omitempty"`
	Cause      string    `json:"cause,omitempty"`
	ReceivedAt time.Time `json:"receivedAt"`
}

// EventCallback is the ce_type of a CallbackMessage.
const EventCallback = "payment.callback"

// AppendJSON appends the message as JSON.
func (c *CallbackMessage) AppendJSON(dst []byte) []byte {
	dst = appendText(append(dst, `{"channel":`...), c.Channel)
	dst = appendText(append(dst, `,"callbackId":`...), c.CallbackID)
	if c.ProviderKey != nil {
		dst = appendUUID(append(dst, `,"providerKey":`...), *c.ProviderKey)
	}
	dst = appendOptional(dst, `,"providerReference":`, c.ProviderReference)
	dst = appendText(append(dst, `,"kind":`...), c.Kind)
	if c.Amount != 0 {
		dst = strconv.AppendInt(append(dst, `,"amount":`...), c.Amount, 10)
	}
	dst = appendOptional(dst, `,"currency":`, c.Currency)
	dst = appendOptional(dst, `,"cause":`, c.Cause)
	dst = appendTime(append(dst, `,"receivedAt":`...), c.ReceivedAt)
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (c *CallbackMessage) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// CallbackID derives the ce_id of a callback's message. It also stands for the
// payment in the review item of a callback that matches none.
func CallbackID(channel, callback string) uuid.UUID { return derive("callback", channel, callback) }
