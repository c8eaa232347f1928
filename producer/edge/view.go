package edge

import (
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Payment is what a caller is shown of its own payment.
type Payment struct {
	PaymentID      uuid.UUID `json:"paymentId"`
	IdempotencyKey uuid.UUID `json:"idempotencyKey"`
	// State is a payment.State, or "accepted": in Kafka, not judged yet.
	State             string     `json:"state"`
	OrderID           string     `json:"orderId"`
	Obligation        string     `json:"obligation"`
	Follows           *uuid.UUID `json:"follows,omitempty"`
	Amount            int64      `json:"amount"`
	Currency          string     `json:"currency"`
	CustomerID        string     `json:"customerId"`
	Channel           string     `json:"channel"`
	Version           int        `json:"version"`
	Attempt           int        `json:"attempt,omitempty"`
	ProviderReference string     `json:"providerReference,omitempty"`
	Cause             string     `json:"cause,omitempty"`
	Detail            string     `json:"detail,omitempty"`
	BlockedBy         *uuid.UUID `json:"blockedBy,omitempty"`
	IssuedAt          time.Time  `json:"issuedAt"`
	CreatedAt         *time.Time `json:"createdAt,omitempty"`
	EndedAt           *time.Time `json:"endedAt,omitempty"`
}

// stateAccepted is a payment that is in Kafka and not judged yet.
const stateAccepted = "accepted"

func viewOf(p *store.Payment) *Payment {
	v := &Payment{
		PaymentID: p.ID, IdempotencyKey: p.Identity.Key, State: p.State.String(), OrderID: p.OrderID, Obligation: p.Obligation,
		Follows: p.Follows, Amount: p.Amount, Currency: p.Currency, CustomerID: p.CustomerID, Channel: p.Channel,
		Version: p.Version, Attempt: p.Attempt, ProviderReference: p.ProviderReference, Cause: p.Cause, Detail: p.Detail,
		BlockedBy: p.BlockedBy, IssuedAt: p.IssuedAt.UTC(),
	}
	created := p.CreatedAt.UTC()
	v.CreatedAt = &created
	if !p.EndedAt.IsZero() {
		ended := p.EndedAt.UTC()
		v.EndedAt = &ended
	}
	return v
}

// acceptedView shows a command that nobody has judged yet.
func acceptedView(c *payment.Command) *Payment {
	return &Payment{
		PaymentID: c.Identity().PaymentID(), IdempotencyKey: c.IdempotencyKey, State: stateAccepted, OrderID: c.OrderID,
		Obligation: c.ObligationOrDefault(), Follows: c.Follows, Amount: c.Amount, Currency: c.Currency,
		CustomerID: c.CustomerID, Channel: c.Channel, IssuedAt: c.IssuedAt.UTC(),
	}
}
