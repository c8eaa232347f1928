package sim

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/channel"
)

func drawContent(t *rapid.T) Content {
	text := rapid.OneOf(rapid.StringMatching(`[a-z0-9-]{0,12}`), rapid.String())
	c := Content{
		Amount:   rapid.Int64Range(0, 1<<60).Draw(t, "amount"),
		Currency: text.Draw(t, "currency"), Customer: text.Draw(t, "customer"), Method: text.Draw(t, "method"),
		Order: text.Draw(t, "order"), PaymentID: text.Draw(t, "payment"),
	}
	if rapid.Bool().Draw(t, "has metadata") {
		c.Metadata = rapid.MapOfN(text, text, 1, 4).Draw(t, "metadata")
	}
	return c
}

// TestOwnEncodersAgreeWithEncodingJSON: what we write, encoding/json reads back
// as it was.
func TestOwnEncodersAgreeWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		content := drawContent(t)
		answer := Answer{
			ID: content.Customer, Status: Status(content.Method), ProviderKey: content.Order, Amount: content.Amount,
			Currency: content.Currency, Cause: content.PaymentID, Replayed: rapid.Bool().Draw(t, "replayed"),
		}
		l := line{
			At: time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "at")).UTC(), Kind: lineExecuted,
			Key: uuid.New(), Send: rapid.IntRange(0, 9).Draw(t, "send"), Why: content.Method, Status: StatusSettled,
			Reference: content.Order, Amount: content.Amount, Currency: content.Currency,
			Forgot: answer.Replayed, Lag: content.Amount, SettleAt: content.Amount, Content: &content,
		}
		agrees(t, content, content.appendJSON(nil))
		agrees(t, answer, answer.appendJSON(nil))
		agrees(t, l, l.appendJSON(nil))
	})
}

func agrees[T any](t *rapid.T, want T, text []byte) {
	var got T
	require.NoError(t, json.Unmarshal(text, &got), string(text))
	reference, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(reference), string(mustMarshal(t, got)))
}

func mustMarshal(t *rapid.T, v any) []byte {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return text
}

// TestPlainAgreesWithEncodingJSON: whatever plain accepts, encoding/json reads
// the same way.
func TestPlainAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		content := drawContent(t)
		plainAgrees(t, content.appendJSON(nil))
	})
	for _, text := range []string{
		``, `{}`, `{`, `{"amount":1`, `{"amount":01}`, `{"amount":-1}`, `{"amount":1.0}`, `{"amount":1e3}`, `{"amount":0}`,
		`{"amount":1}x`, `{"amount":1,}`, `{"amount":1,"amount":2}`, `{"Amount":1}`, `{"other":1}`, `{"currency":"E\u0055R"}`,
		`{"currency":null}`, `{"metadata":{}}`, `{"metadata":{"a":"b","a":"c"}}`, `{"metadata":{"a":"b"},"metadata":{"c":"d"}}`,
		`{"metadata":{"a":1}}`, `{"amount":99999999999999999}`, `{"amount":99999999999999999999}`, `{"order":"ö"}`, `{ "order":"a"}`,
	} {
		plainAgrees(t, []byte(text))
	}
}

func plainAgrees(t require.TestingT, text []byte) {
	var fast, slow Content
	if fast.readPlain(text) {
		require.NoError(t, json.Unmarshal(text, &slow), string(text))
		require.Equal(t, slow, fast, string(text))
	}
	var fastAnswer, slowAnswer Answer
	if fastAnswer.readPlain(text) {
		require.NoError(t, json.Unmarshal(text, &slowAnswer), string(text))
		require.Equal(t, slowAnswer, fastAnswer, string(text))
	}
}

// TestOrdinaryTrafficIsPlain: the fast way is the one that is taken.
func TestOrdinaryTrafficIsPlain(t *testing.T) {
	t.Parallel()
	r := channel.Request{
		ProviderKey: uuid.New(), PaymentID: uuid.New(), Amount: 1999, Currency: "EUR", OrderID: "order-1001",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Metadata: map[string]string{"cart": "c-55"},
	}
	body := appendBody(nil, &r)
	require.Equal(t, body, appendBody(nil, &r), "the same bytes each time")
	var content Content
	require.True(t, content.readPlain(body))
	require.Equal(t, "order-1001", content.Order)
	answer := Answer{ID: "ch_1", Status: StatusSettled, ProviderKey: r.ProviderKey.String(), Amount: 1999, Currency: "EUR"}
	var read Answer
	require.True(t, read.readPlain(answer.appendJSON(nil)))
	require.Equal(t, answer, read)
}
