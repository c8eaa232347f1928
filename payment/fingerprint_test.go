package payment_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

// canonical is the independent way: encoding/json, then RFC 8785 by another library.
func canonical(t require.TestingT, c *payment.Command) []byte {
	obligation := c.Obligation
	if obligation == "" {
		obligation = c.OrderID
	}
	plain, err := json.Marshal(map[string]string{
		"orderId": c.OrderID, "obligation": obligation, "amount": strconv.FormatInt(c.Amount, 10),
		"currency": c.Currency, "customerId": c.CustomerID, "paymentMethod": c.PaymentMethod, "channel": c.Channel,
	})
	require.NoError(t, err)
	text, err := jcs.Transform(plain)
	require.NoError(t, err)
	return text
}

func drawCommand(t *rapid.T) payment.Command {
	text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("\u0000\u0001\b\t\n\f\r\u001f\"\\/<>&\u007f\u0080\u2028\u2029é🙂a"))))
	c := payment.Command{
		IdempotencyKey: uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key")),
		Caller:         text.Draw(t, "caller"),
		Operation:      text.Draw(t, "operation"),
		OrderID:        text.Draw(t, "orderId"),
		Obligation:     text.Draw(t, "obligation"),
		Amount:         rapid.Int64().Draw(t, "amount"),
		Currency:       text.Draw(t, "currency"),
		CustomerID:     text.Draw(t, "customerId"),
		PaymentMethod:  text.Draw(t, "paymentMethod"),
		Channel:        text.Draw(t, "channel"),
		IssuedAt:       time.UnixMicro(rapid.Int64Range(0, 32503679999_000000).Draw(t, "issuedAt")).UTC(),
		Metadata:       rapid.MapOfN(text, text, 0, 5).Draw(t, "metadata"),
	}
	if rapid.Bool().Draw(t, "follows?") {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "follows"))
		c.Follows = &id
	}
	return c
}

func TestFingerprintIsOverCanonicalJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		fingerprint, err := c.Fingerprint()
		require.NoError(t, err)
		require.Equal(t, payment.FingerprintVersion, fingerprint.Version)
		text := canonical(t, &c)
		require.Equal(t, sha256.Sum256(text), fingerprint.Sum, "canonical text %s", text)
	})
}

// The vector is fixed for ever: stored fingerprints are compared with new ones.
func TestFingerprintVector(t *testing.T) {
	t.Parallel()
	c := sample()
	require.JSONEq(t, `{"amount":"1999","channel":"sim","currency":"EUR","customerId":"cust-7",`+
		`"obligation":"order-1001","orderId":"order-1001","paymentMethod":"tok_visa"}`, string(canonical(t, &c)))
	fingerprint, err := c.Fingerprint()
	require.NoError(t, err)
	require.Equal(t, int16(1), fingerprint.Version)
	require.Equal(t, "7f158ae98bbd8a8cf9bf0f1a6fcdda6a0be0678694ca1cc30b43dcf19622e2ce", hex.EncodeToString(fingerprint.Sum[:]))
}

func TestFingerprintCoversTheContentAndNothingElse(t *testing.T) {
	t.Parallel()
	base := sample()
	want, err := base.Fingerprint()
	require.NoError(t, err)
	other := uuid.MustParse("0b9c8a17-3a43-4a66-8d0a-6b7c1f7f2f31")

	for name, change := range map[string]func(*payment.Command){
		"obligation defaulted": func(c *payment.Command) { c.Obligation = "" },
		"issuedAt":             func(c *payment.Command) { c.IssuedAt = c.IssuedAt.Add(time.Hour) },
		"metadata":             func(c *payment.Command) { c.Metadata = nil },
		"follows":              func(c *payment.Command) { c.Follows = &other },
		"key":                  func(c *payment.Command) { c.IdempotencyKey = other },
	} {
		c := sample()
		change(&c)
		got, err := c.Fingerprint()
		require.NoError(t, err)
		require.Equal(t, want, got, "%s is no part of the fingerprint", name)
	}
	for name, change := range map[string]func(*payment.Command){
		"orderId":       func(c *payment.Command) { c.OrderID += "x" },
		"obligation":    func(c *payment.Command) { c.Obligation += "x" },
		"amount":        func(c *payment.Command) { c.Amount++ },
		"currency":      func(c *payment.Command) { c.Currency = "USD" },
		"customerId":    func(c *payment.Command) { c.CustomerID += "x" },
		"paymentMethod": func(c *payment.Command) { c.PaymentMethod += "x" },
		"channel":       func(c *payment.Command) { c.Channel += "x" },
	} {
		c := sample()
		change(&c)
		got, err := c.Fingerprint()
		require.NoError(t, err)
		require.NotEqual(t, want, got, "%s is part of the fingerprint", name)
	}
}

// 2^53 and 2^53+1 are one number to a canonical JSON of numbers.
func TestFingerprintTellsBigAmountsApart(t *testing.T) {
	t.Parallel()
	a, b := sample(), sample()
	a.Amount, b.Amount = 1<<53, 1<<53+1
	first, err := a.Fingerprint()
	require.NoError(t, err)
	second, err := b.Fingerprint()
	require.NoError(t, err)
	require.NotEqual(t, first, second)
}

func TestFingerprintRefusesWhatIsNotText(t *testing.T) {
	t.Parallel()
	for i := range 6 {
		c := sample()
		text := []*string{&c.OrderID, &c.Obligation, &c.Currency, &c.CustomerID, &c.PaymentMethod, &c.Channel}[i]
		*text += "\xff"
		_, err := c.Fingerprint()
		require.ErrorIs(t, err, payment.ErrNotText)
	}
}

func TestRawFingerprintIsNeverThatOfAValidCommand(t *testing.T) {
	t.Parallel()
	c := sample()
	valid, err := c.Fingerprint()
	require.NoError(t, err)
	raw := payment.RawFingerprint(canonical(t, &c))
	require.Equal(t, valid.Sum, raw.Sum)
	require.NotEqual(t, valid, raw, "the version keeps them apart")
	require.Equal(t, raw, payment.RawFingerprint(canonical(t, &c)))
	require.Equal(t, "0:"+hex.EncodeToString(raw.Sum[:]), raw.String())
}
