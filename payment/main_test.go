package payment_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sampleKey = "8e03978e-40d5-43e8-bc93-6894a57f9324"

// sample returns the command of the contract.
func sample() payment.Command {
	return payment.Command{
		IdempotencyKey: uuid.MustParse(sampleKey),
		Caller:         "shop",
		Operation:      payment.OperationCharge,
		OrderID:        "order-1001",
		Obligation:     "order-1001",
		Amount:         1999,
		Currency:       "EUR",
		CustomerID:     "cust-7",
		PaymentMethod:  "tok_visa",
		Channel:        "sim",
		IssuedAt:       time.Date(2026, 11, 30, 10, 0, 0, 123000000, time.UTC),
		Metadata:       map[string]string{"cart": "c-55"},
	}
}
