package payment_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

func TestImportedKeyIsFoundAgain(t *testing.T) {
	t.Parallel()
	key := payment.ImportedKey("shop", "charge", "17")
	require.Equal(t, key, payment.ImportedKey("shop", "charge", "17"))
	require.EqualValues(t, 5, key.Version())
	require.NotEqual(t, key, payment.ImportedKey("shop", "charge", "18"))
	require.NotEqual(t, key, payment.ImportedKey("pos", "charge", "17"))
	require.NotEqual(t, payment.ImportedKey("a", "b", "cd"), payment.ImportedKey("a", "bc", "d"))
}

// G8: a retry is compared by what is known of the imported payment, and by nothing else.
func TestG8_ImportedFingerprintCoversWhatIsKnown(t *testing.T) {
	t.Parallel()
	for gaps := range 4 {
		imported := paymenttest.Command()
		if gaps&1 != 0 {
			imported.CustomerID = ""
		}
		if gaps&2 != 0 {
			imported.PaymentMethod = ""
		}
		stored, err := imported.ImportedFingerprint()
		require.NoError(t, err)
		matches := func(change func(*payment.Command)) bool {
			c := paymenttest.Command()
			change(&c)
			own, err := c.Fingerprint()
			require.NoError(t, err)
			return stored.Matches(&c, own)
		}
		require.True(t, matches(func(*payment.Command) {}), gaps)
		require.Equal(t, gaps&1 != 0, matches(func(c *payment.Command) { c.CustomerID += "x" }), gaps)
		require.Equal(t, gaps&2 != 0, matches(func(c *payment.Command) { c.PaymentMethod += "x" }), gaps)
		require.False(t, matches(func(c *payment.Command) { c.Amount++ }), gaps)
		require.False(t, matches(func(c *payment.Command) { c.OrderID += "x"; c.Obligation = "" }), gaps)
		require.False(t, matches(func(c *payment.Command) { c.Channel += "x" }), gaps)
		c := paymenttest.Command()
		require.False(t, stored.Matches(&c, payment.RawFingerprint([]byte("{"))), "what cannot be read is no repeat")
	}
}

func TestValidateImported(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*payment.Command){
		"":               func(c *payment.Command) { c.CustomerID, c.PaymentMethod = "", "" },
		"idempotencyKey": func(c *payment.Command) { c.IdempotencyKey = uuid.Nil },
		"caller":         func(c *payment.Command) { c.Caller = "A shop" },
		"operation":      func(c *payment.Command) { c.Operation = "refund" },
		"orderId":        func(c *payment.Command) { c.OrderID = "" },
		"amount":         func(c *payment.Command) { c.Amount = 0 },
		"currency":       func(c *payment.Command) { c.Currency = "eur" },
		"channel":        func(c *payment.Command) { c.Channel = "" },
		"paymentMethod":  func(c *payment.Command) { c.PaymentMethod = "4111111111111111" },
		"issuedAt":       func(c *payment.Command) { c.IssuedAt = c.IssuedAt.AddDate(1000, 0, 0) },
	} {
		c := paymenttest.Command()
		change(&c)
		err := c.ValidateImported()
		if field == "" {
			require.NoError(t, err)
			continue
		}
		var broken *payment.CommandError
		require.ErrorAs(t, err, &broken, field)
		require.Equal(t, field, broken.Field)
	}
	c := paymenttest.Command()
	c.IdempotencyKey = payment.ImportedKey("shop", "charge", "17")
	require.NoError(t, c.ValidateImported())
}
