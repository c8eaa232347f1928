package payment_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/payment/paymenttest"
)

// The bad-input matrix: a "rejected" reply where the identity can be read, a dead
// letter where not, never a crash.
func TestDecodeBadInput(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, c := range paymenttest.Corpus() {
		require.False(t, names[c.Name], "two cases are called %q", c.Name)
		names[c.Name] = true
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			d := payment.Decode(c.Value)
			require.Equal(t, c.Identified, d.Identified, "%v", d.Err)
			if c.Identified {
				require.Equal(t, uuid.MustParse(paymenttest.Key), d.Identity.Key)
				require.NotEmpty(t, d.Identity.Caller)
			} else {
				require.Zero(t, d.Identity)
			}
			if c.Valid {
				require.Nil(t, d.Err)
				require.NoError(t, d.Command.Validate(), "what is decoded can be sent again")
				return
			}
			require.NotNil(t, d.Err)
			require.Equal(t, c.Reason, d.Err.Reason, d.Err.Error())
			require.Equal(t, c.Field, d.Err.Field, d.Err.Error())
			require.NotEmpty(t, d.Err.Problem)
			require.Zero(t, d.Command, "an invalid command cannot be used by mistake")
			_, err := payment.DecodeStrict(c.Value)
			require.Error(t, err, "producers are never more lenient")
		})
	}
}

func TestDecodeNullValue(t *testing.T) {
	t.Parallel()
	d := payment.Decode(nil)
	require.False(t, d.Identified)
	require.Equal(t, payment.DeadNullValue, d.Err.Reason)
	_, err := payment.DecodeCommand(nil)
	var broken *payment.CommandError
	require.ErrorAs(t, err, &broken)
}

func TestDecodeSample(t *testing.T) {
	t.Parallel()
	c := sample()
	got, err := payment.DecodeCommand(c.AppendJSON(nil))
	require.NoError(t, err)
	require.Equal(t, c, got)

	got, err = payment.DecodeCommand([]byte(strings.Replace(string(c.AppendJSON(nil)),
		"2026-11-30T10:00:00.123Z", "2026-11-30T11:30:00.123456789+01:30", 1)))
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 11, 30, 10, 0, 0, 123456000, time.UTC), got.IssuedAt, "UTC, microseconds")
}

// An amount means the same however it is spelled, so it has one fingerprint.
func TestDecodeAmountSpellings(t *testing.T) {
	t.Parallel()
	c := sample()
	for _, spelling := range []string{"1999", "1999.0", "1.999e3", "19990e-1", "0.1999E+4", "1999" + strings.Repeat("0", 30) + "e-30"} {
		got, err := payment.DecodeCommand([]byte(strings.Replace(string(c.AppendJSON(nil)), "1999,", spelling+",", 1)))
		require.NoError(t, err, spelling)
		require.Equal(t, int64(1999), got.Amount, spelling)
	}
}

// An exponent beyond every integer type still says which way it goes.
func TestDecodeAmountSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	c, thirty := sample(), strings.Repeat("9", 30)
	for spelling, want := range map[string]string{
		"1e-" + thirty: "whole number", "0.5": "whole number", "-1.5e-3": "whole number",
		"1e" + thirty: "between 1 and", "-1e" + thirty: "between 1 and", "0e" + thirty: "between 1 and", "0e-" + thirty: "between 1 and",
	} {
		_, err := payment.DecodeCommand([]byte(strings.Replace(string(c.AppendJSON(nil)), "1999,", spelling+",", 1)))
		require.ErrorContains(t, err, want, spelling)
	}
}

// One misspelled optional field would be silently ignored by consumers.
func TestDecodeStrictRefusesUnknownFields(t *testing.T) {
	t.Parallel()
	c := sample()
	value := []byte(strings.Replace(string(c.AppendJSON(nil)), `"obligation"`, `"obligaton"`, 1))
	_, err := payment.DecodeCommand(value)
	require.NoError(t, err)
	_, err = payment.DecodeStrict(value)
	require.ErrorContains(t, err, "obligaton")
}

// A command has one reading, also for those who use encoding/json.
func TestUnmarshalJSONIsTheSameReading(t *testing.T) {
	t.Parallel()
	c := sample()
	var got payment.Command
	require.NoError(t, json.Unmarshal(c.AppendJSON(nil), &got))
	require.Equal(t, c, got)
	require.Error(t, json.Unmarshal([]byte(strings.Replace(string(c.AppendJSON(nil)), `"amount":1999`, `"amount":1999,"amount":1`, 1)), &got))
	require.Equal(t, c, got, "left alone by a failure")
}

func TestKeyMatches(t *testing.T) {
	t.Parallel()
	c := sample()
	d := payment.Decode(c.AppendJSON(nil))
	require.True(t, d.KeyMatches([]byte(sampleKey)))
	require.True(t, d.KeyMatches([]byte(strings.ToUpper(sampleKey))))
	for _, key := range []string{"", "order-1001", "0b9c8a17-3a43-4a66-8d0a-6b7c1f7f2f31", sampleKey + "\n"} {
		require.False(t, d.KeyMatches([]byte(key)), key)
	}
	nameless := payment.Decode([]byte("{}"))
	require.False(t, nameless.KeyMatches([]byte(uuid.Nil.String())))
}

// No error repeats what was in a command: it may be card data.
func TestErrorsNeverRepeatTheValue(t *testing.T) {
	t.Parallel()
	c := sample()
	for _, secret := range []string{"4111111111111111", "secret\n" + strings.Repeat("x", 200)} {
		c.PaymentMethod = secret
		require.Error(t, c.Validate())
		require.NotContains(t, c.Validate().Error(), secret)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	c := sample()
	require.NoError(t, c.Validate())
	for field, change := range map[string]func(*payment.Command){
		"idempotencyKey": func(c *payment.Command) { c.IdempotencyKey = uuid.Nil },
		"caller":         func(c *payment.Command) { c.Caller = "" },
		"operation":      func(c *payment.Command) { c.Operation = "refund" },
		"orderId":        func(c *payment.Command) { c.OrderID = "a\xff" },
		"obligation":     func(c *payment.Command) { c.Obligation = "\x00" },
		"follows":        func(c *payment.Command) { c.Follows = new(uuid.UUID) },
		"amount":         func(c *payment.Command) { c.Amount = payment.MaxAmount + 1 },
		"currency":       func(c *payment.Command) { c.Currency = "XAU" },
		"customerId":     func(c *payment.Command) { c.CustomerID = "" },
		"paymentMethod":  func(c *payment.Command) { c.PaymentMethod = "4242 4242 4242 4242" },
		"channel":        func(c *payment.Command) { c.Channel = "Sim" },
		"issuedAt":       func(c *payment.Command) { c.IssuedAt = time.Time{} },
		"metadata":       func(c *payment.Command) { c.Metadata = map[string]string{"a": "\xff"} },
	} {
		c := sample()
		change(&c)
		var broken *payment.CommandError
		require.ErrorAs(t, c.Validate(), &broken, field)
		require.Equal(t, field, broken.Field)
	}
	for _, at := range []time.Time{time.Unix(-1, 0), time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		c := sample()
		c.IssuedAt = at
		require.Error(t, c.Validate())
	}
}

// What a producer finds valid, the consumer reads back unchanged, in the same
// fingerprint; what it finds invalid, the consumer refuses too.
func TestValidateAgreesWithDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		if rapid.Bool().Draw(t, "mostly valid") {
			valid := sample()
			valid.OrderID, valid.Obligation, valid.Metadata = c.OrderID, c.Obligation, c.Metadata
			valid.IssuedAt, valid.Follows, valid.CustomerID = c.IssuedAt, c.Follows, c.CustomerID
			c = valid
		}
		got, err := payment.DecodeCommand(c.AppendJSON(nil))
		if invalid := c.Validate(); invalid != nil {
			require.Error(t, err, "%v", invalid)
			return
		}
		require.NoError(t, err)
		if len(c.Metadata) == 0 {
			c.Metadata = nil
		}
		require.Equal(t, c, got)
	})
}

func FuzzDecode(f *testing.F) {
	for _, c := range paymenttest.Corpus() {
		if len(c.Value) < 4096 {
			f.Add(c.Value)
		}
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		d := payment.Decode(value)
		if d.Err != nil {
			require.Zero(t, d.Command)
			return
		}
		require.True(t, d.Identified)
		require.NoError(t, d.Command.Validate())
		again, err := payment.DecodeStrict(d.Command.AppendJSON(nil))
		require.NoError(t, err)
		require.Equal(t, d.Command, again)
		require.True(t, json.Valid(value))
	})
}

func BenchmarkDecode(b *testing.B) {
	c := sample()
	value := c.AppendJSON(nil)
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		d := payment.Decode(value)
		if d.Err != nil {
			b.Fatal(d.Err)
		}
	}
}

func BenchmarkFingerprint(b *testing.B) {
	c := sample()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Fingerprint(); err != nil {
			b.Fatal(err)
		}
	}
}
