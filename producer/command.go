package producer

import (
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Intent is what a caller wants to be paid, before it has an identity. All
// fields up to Channel are required.
type Intent struct {
	// Caller is the name of the upstream service, as its topic or credential allows.
	Caller string
	// OrderID is the order that is paid for.
	OrderID string
	// Amount is in minor units of Currency: 1999 is 19.99 EUR, and 1999 JPY.
	Amount int64
	// Currency is an ISO 4217 code in capitals.
	Currency string
	// CustomerID is the payer as the caller knows them.
	CustomerID string
	// PaymentMethod is a token of the provider, never card data.
	PaymentMethod string
	// Channel is the payment provider to use.
	Channel string
	// Obligation is what is being paid, where that is not the whole order: a part
	// of a split tender, a period of a subscription. Defaults to OrderID.
	Obligation string
	// Follows is the id of the payment this one knowingly comes after (G15): name
	// it to be paid again for an obligation that was paid before. Defaults to none.
	Follows *uuid.UUID
	// Metadata is handed to the channel. Defaults to none.
	Metadata map[string]string
}

// NewCommand gives an intent its identity: a fresh idempotencyKey and the time of
// the intent. Call it once per intent and keep what it returns, since every retry
// must send the same command; calling it again makes another payment.
//
// The error is a *payment.CommandError that names the field and says what to
// change, or that of the system's random source.
func NewCommand(intent Intent) (payment.Command, error) {
	key, err := uuid.NewRandom()
	if err != nil {
		return payment.Command{}, fmt.Errorf("make idempotency key: %w", err)
	}
	cmd := payment.Command{
		IdempotencyKey: key,
		Caller:         intent.Caller,
		Operation:      payment.OperationCharge,
		OrderID:        intent.OrderID,
		Obligation:     intent.Obligation,
		Amount:         intent.Amount,
		Currency:       intent.Currency,
		CustomerID:     intent.CustomerID,
		PaymentMethod:  intent.PaymentMethod,
		Channel:        intent.Channel,
		// What the wire keeps, so that the command reads the same when it comes back.
		IssuedAt: time.Now().UTC().Truncate(time.Microsecond),
		Metadata: maps.Clone(intent.Metadata),
	}
	if intent.Follows != nil {
		follows := *intent.Follows
		cmd.Follows = &follows
	}
	if err := cmd.Validate(); err != nil {
		return payment.Command{}, err
	}
	return cmd, nil
}
