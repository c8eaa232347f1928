package payment_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const sampleKey = paymenttest.Key

// sample returns the command of the contract.
func sample() payment.Command { return paymenttest.Command() }
