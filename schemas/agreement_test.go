package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
	"github.com/settleonce/settleonce/schemas"
)

// The hot path has a decoder of its own; the schema is the contract. Both judge
// one corpus alike.
func TestDecoderAgreesWithSchema(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for _, c := range paymenttest.Corpus() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := v.Validate(schemas.Command, c.Value)
			require.Equal(t, c.Valid, err == nil, "schema: %v", err)
			require.Equal(t, c.Valid, payment.Decode(c.Value).Err == nil, "decoder: %v", payment.Decode(c.Value).Err)
		})
	}
}

// The same over what nobody thought of: members put together from a pool of
// suspicious values, and texts with a few bytes changed.
func TestDecoderAgreesWithSchemaOnGeneratedInput(t *testing.T) {
	t.Parallel()
	v := validator(t)
	agree := func(t require.TestingT, value []byte) {
		err, broken := v.Validate(schemas.Command, value), payment.Decode(value).Err
		require.Equal(t, err == nil, broken == nil, "schema: %v\ndecoder: %v\n%q", err, broken, value)
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			agree(t, []byte(drawObject(t)))
			agree(t, drawDamaged(t))
		}
	})
}

func fields() []string {
	return []string{
		"idempotencyKey", "caller", "operation", "orderId", "obligation", "follows", "amount", "currency",
		"customerId", "paymentMethod", "channel", "issuedAt", "metadata", "unknown", `\u0061mount`,
	}
}

// good returns a valid JSON value for a field.
func good(field string) string {
	switch field {
	case "idempotencyKey", "follows":
		return `"` + paymenttest.Key + `"`
	case "operation":
		return `"charge"`
	case "amount", `\u0061mount`:
		return "1999"
	case "currency":
		return `"EUR"`
	case "issuedAt":
		return `"2026-11-30T10:00:00Z"`
	case "metadata":
		return `{"a":"b"}`
	default:
		return `"shop"`
	}
}

func drawObject(t *rapid.T) string {
	suspicious := rapid.OneOf(
		rapid.SampledFrom([]string{
			"null", "true", "0", "-0", "1", "1.0", "1.5", "1e3", "1E-3", "10e-1", "1e16", "9007199254740991", "9007199254740992", "1e309",
			`""`, `" "`, `"a"`, `"A"`, `" a"`, `"a\u00a0"`, `"\u2028"`, `"\u0000"`, `"\ud800"`, `"\ud83d\ude42"`, `"\u007f"`, `"\u009f"`, `"\u00a0"`,
			`"4111111111111111"`, `"EUR"`, `"JPY"`, `"charge"`, `{}`, `[]`, `{"a":1}`, `{"a":"b","a":"c"}`, `[{"a":1,"a":2}]`, `[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]`,
			`[[[[[[[[[[[[[[]]]]]]]]]]]]]]`,
		}),
		rapid.Map(rapid.StringMatching(`[12][0-9]{3}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,10})?(Z|z|[+-][0-2][0-9]:[0-6][0-9])`), quote),
		rapid.StringMatching(`-?[0-9]{1,3}(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`),
		rapid.Map(rapid.StringMatching(`[0-9a-fA-F]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[0-9a-fA-F][0-9a-f]{3}-[0-9a-f]{12}`), quote),
		rapid.Map(rapid.StringMatching(`[ -~]{0,5}`), func(s string) string { return quote(strings.NewReplacer(`"`, "", `\`, "").Replace(s)) }),
		rapid.Map(rapid.StringN(0, 130, -1), func(s string) string { return fmt.Sprintf("%q", s) }),
	)
	changed := rapid.SampledFrom(fields()).Draw(t, "changed")
	how := rapid.SampledFrom([]string{"replace", "replace", "replace", "drop", "repeat"}).Draw(t, "how")
	var text strings.Builder
	for _, field := range rapid.Permutation(fields()[:13]).Draw(t, "order") {
		value := good(field)
		if field == changed && how == "drop" {
			continue
		}
		if field == changed && how == "replace" {
			value = suspicious.Draw(t, "value")
		}
		text.WriteString(`,"` + field + `":` + value)
	}
	if how == "repeat" {
		text.WriteString(`,"` + changed + `":` + good(changed))
	}
	return "{" + text.String()[1:] + "}"
}

// drawDamaged changes a few bytes of a valid command.
func drawDamaged(t *rapid.T) []byte {
	c := paymenttest.Command()
	value := c.AppendJSON(nil)
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		at := rapid.IntRange(0, len(value)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			value[at] = rapid.Byte().Draw(t, "byte")
		case 1:
			value = append(value[:at], value[at+1:]...)
		default:
			extra := rapid.SampledFrom([]byte("\"\\{}[],:0123456789eE.+- \tuZ\x00\xff")).Draw(t, "extra")
			value = append(value[:at], append([]byte{extra}, value[at:]...)...)
		}
	}
	return value
}

func quote(text string) string { return `"` + text + `"` }

func FuzzDecoderAgreesWithSchema(f *testing.F) {
	for _, c := range paymenttest.Corpus() {
		if len(c.Value) < 4096 {
			f.Add(c.Value)
		}
	}
	v, err := schemas.NewValidator()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, value []byte) {
		err, broken := v.Validate(schemas.Command, value), payment.Decode(value).Err
		require.Equal(t, err == nil, broken == nil, "schema: %v\ndecoder: %v", err, broken)
	})
}
