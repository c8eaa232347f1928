package producer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

func TestNewCommandMakesAnIdentityOnce(t *testing.T) {
	t.Parallel()
	follows := uuid.New()
	metadata := map[string]string{"cart": "c-55"}
	in := intent(func(i *producer.Intent) { i.Follows, i.Metadata, i.Obligation = &follows, metadata, "part-1" })

	before := time.Now()
	cmd, err := producer.NewCommand(in)
	require.NoError(t, err)
	require.EqualValues(t, 4, cmd.IdempotencyKey.Version())
	require.Equal(t, payment.OperationCharge, cmd.Operation)
	require.WithinRange(t, cmd.IssuedAt, before.Add(-time.Microsecond), time.Now())
	require.Equal(t, time.UTC, cmd.IssuedAt.Location())

	// What comes back from the wire is the same command, to the last digit.
	var back payment.Command
	value, err := json.Marshal(&cmd)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(value, &back))
	require.Equal(t, cmd, back)

	// The command is the caller's own copy.
	metadata["cart"], follows = "another", uuid.New()
	require.Equal(t, "c-55", cmd.Metadata["cart"])
	require.Equal(t, back.Follows, cmd.Follows)

	another, err := producer.NewCommand(in)
	require.NoError(t, err)
	require.NotEqual(t, cmd.IdempotencyKey, another.IdempotencyKey)
}

func TestNewCommandValidates(t *testing.T) {
	t.Parallel()
	none := uuid.Nil
	for name, test := range map[string]struct {
		field  string
		change func(*producer.Intent)
	}{
		"no caller":           {"caller", func(i *producer.Intent) { i.Caller = "" }},
		"caller in capitals":  {"caller", func(i *producer.Intent) { i.Caller = "Shop" }},
		"no order":            {"orderId", func(i *producer.Intent) { i.OrderID = "" }},
		"long order":          {"orderId", func(i *producer.Intent) { i.OrderID = strings.Repeat("x", 129) }},
		"NUL in order":        {"orderId", func(i *producer.Intent) { i.OrderID = "a\x00b" }},
		"not UTF-8":           {"orderId", func(i *producer.Intent) { i.OrderID = "a\xff" }},
		"zero amount":         {"amount", func(i *producer.Intent) { i.Amount = 0 }},
		"negative amount":     {"amount", func(i *producer.Intent) { i.Amount = -1 }},
		"amount beyond JSON":  {"amount", func(i *producer.Intent) { i.Amount = 1 << 53 }},
		"no currency":         {"currency", func(i *producer.Intent) { i.Currency = "" }},
		"small currency":      {"currency", func(i *producer.Intent) { i.Currency = "eur" }},
		"unknown currency":    {"currency", func(i *producer.Intent) { i.Currency = "XXQ" }},
		"no customer":         {"customerId", func(i *producer.Intent) { i.CustomerID = "" }},
		"no payment method":   {"paymentMethod", func(i *producer.Intent) { i.PaymentMethod = "" }},
		"card number":         {"paymentMethod", func(i *producer.Intent) { i.PaymentMethod = "4242 4242 4242 4242" }},
		"no channel":          {"channel", func(i *producer.Intent) { i.Channel = "" }},
		"follows nothing":     {"follows", func(i *producer.Intent) { i.Follows = &none }},
		"NUL in metadata":     {"metadata", func(i *producer.Intent) { i.Metadata = map[string]string{"a": "\x00"} }},
		"big metadata":        {"metadata", func(i *producer.Intent) { i.Metadata = map[string]string{"a": strings.Repeat("x", 513)} }},
		"control in customer": {"customerId", func(i *producer.Intent) { i.CustomerID = "a\nb" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := producer.NewCommand(intent(test.change))
			var invalid *payment.CommandError
			require.ErrorAs(t, err, &invalid)
			require.Equal(t, test.field, invalid.Field)
			require.NotEmpty(t, invalid.Problem)
			require.NotContains(t, err.Error(), "4242", "an error must not repeat the value")
		})
	}
}

func TestConfigSaysWhatToChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sentence string
		change   func(*producer.Config)
	}{
		"no broker":     {"name at least one broker", func(c *producer.Config) { c.Brokers = nil }},
		"no port":       {"host:port", func(c *producer.Config) { c.Brokers = []string{"kafka"} }},
		"bad mechanism": {"use PLAIN", func(c *producer.Config) { c.SASL = producer.SASL{Mechanism: "LOGIN"} }},
		"no password":   {"needs a password", func(c *producer.Config) { c.SASL = producer.SASL{Mechanism: "PLAIN", Username: "shop"} }},
		"prefix":        {"use only letters", func(c *producer.Config) { c.Prefix = "prod/" }},
		"long prefix":   {"at most 200", func(c *producer.Config) { c.Prefix = strings.Repeat("p", 201) }},
		"attempts":      {"use 1 or more", func(c *producer.Config) { c.Attempts = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := producer.Config{Brokers: []string{"kafka:9092"}}
			test.change(&cfg)
			_, err := producer.New(cfg)
			require.ErrorContains(t, err, test.sentence)
		})
	}
}

func TestSASLNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	sasl := producer.SASL{Mechanism: producer.MechanismPlain, Username: "shop", Password: "hunter2"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, sprintf(verb, sasl), "hunter2", verb)
		require.NotContains(t, sprintf(verb, producer.Config{SASL: sasl}), "hunter2", verb)
		require.NotContains(t, sprintf(verb, &producer.Config{SASL: sasl}), "hunter2", verb)
	}
}
