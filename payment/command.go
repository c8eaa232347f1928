package payment

import (
	"time"

	"github.com/google/uuid"
)

// Command is one intent to charge, published by an upstream service and keyed
// by its IdempotencyKey.
type Command struct {
	// IdempotencyKey is a UUID v4, made by the client once per intent, before
	// the first send.
	IdempotencyKey uuid.UUID `json:"idempotencyKey"`
	// Caller is the upstream service.
	Caller string `json:"caller"`
	// Operation is OperationCharge.
	Operation string `json:"operation"`
	// OrderID is the order that is paid for.
	OrderID string `json:"orderId"`
	// Obligation is what is being paid; empty means OrderID.
	Obligation string `json:"obligation,omitempty"`
	// Follows is the id of the payment this one knowingly comes after, if any (G15).
	Follows *uuid.UUID `json:"follows,omitempty"`
	// Amount is in minor units of Currency, 1 to MaxAmount.
	Amount int64 `json:"amount"`
	// Currency is an ISO 4217 code.
	Currency string `json:"currency"`
	// CustomerID is the payer as the caller knows them.
	CustomerID string `json:"customerId"`
	// PaymentMethod is a token, never card data.
	PaymentMethod string `json:"paymentMethod"`
	// Channel is the payment provider to use.
	Channel string `json:"channel"`
	// IssuedAt is the time of the intent, the same in every retry (G14).
	IssuedAt time.Time `json:"issuedAt"`
	// Metadata is handed to the channel and has no part in the fingerprint.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Identity returns what makes this command the same payment as another one.
func (c *Command) Identity() Identity {
	return Identity{Caller: c.Caller, Operation: c.Operation, Key: c.IdempotencyKey}
}

// ObligationOrDefault returns the obligation, which is the order unless named.
func (c *Command) ObligationOrDefault() string {
	if c.Obligation != "" {
		return c.Obligation
	}
	return c.OrderID
}
