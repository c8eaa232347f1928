package channel_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/payment"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, full().Validate())
	require.NoError(t, channel.Capabilities{Identity: "acme"}.WithDefaults().Validate(), "promising nothing is sound")
	tests := map[string]func(c *channel.Capabilities){
		"Identity is empty":                         func(c *channel.Capabilities) { c.Identity = "" },
		"EquivalentIdentities holds an empty":       func(c *channel.Capabilities) { c.EquivalentIdentities = []string{""} },
		"is negative":                               func(c *channel.Capabilities) { c.RateLimit = -1 },
		"use WithDefaults":                          func(c *channel.Capabilities) { c.MaxInFlight = 0 },
		"IdempotentSubmit without KeyMemory":        func(c *channel.Capabilities) { c.KeyMemory = 0 },
		"IdempotentSubmit without LongestExecution": func(c *channel.Capabilities) { c.LongestExecution, c.NotFoundIsProof = 0, false },
		"KeyMemory without IdempotentSubmit":        func(c *channel.Capabilities) { c.IdempotentSubmit, c.PinsFailures = false, false },
		"PinsFailures needs IdempotentSubmit":       func(c *channel.Capabilities) { c.IdempotentSubmit, c.KeyMemory = false, 0 },
		"Query without QueryReach":                  func(c *channel.Capabilities) { c.QueryReach = 0 },
		"or QueryReach without Query":               func(c *channel.Capabilities) { c.Query, c.NotFoundIsProof = false, false },
		"NotFoundIsProof needs Query":               func(c *channel.Capabilities) { c.Query, c.VisibilityLag, c.QueryReach = false, 0, 0 },
		"NotFoundIsProof needs VisibilityLag":       func(c *channel.Capabilities) { c.VisibilityLag = 0 },
	}
	for sentence, change := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, with(change).Validate(), sentence)
		})
	}
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	c := channel.Capabilities{Identity: "acme", QueryTimeout: time.Second}.WithDefaults()
	require.Equal(t, channel.Capabilities{
		Identity: "acme", MaxInFlight: 256, SubmitTimeout: 10 * time.Second, QueryTimeout: time.Second,
	}, c, "no promise is ever defaulted")
}

// TestSameIdentity is P31: another account is not queried for our payment.
func TestSameIdentity(t *testing.T) {
	t.Parallel()
	c := channel.Capabilities{Identity: "acme/live", EquivalentIdentities: []string{"acme/old"}}
	require.True(t, c.SameIdentity("acme/live"))
	require.True(t, c.SameIdentity("acme/old"))
	require.False(t, c.SameIdentity("acme/test"))
	require.False(t, c.SameIdentity(""))
	require.False(t, channel.Capabilities{}.SameIdentity(""))
}

// silent is an adapter that never hears anything.
type silent struct{}

func (silent) Submit(context.Context, channel.Request) payment.Answer { return payment.Answer{} }
func (silent) Query(context.Context, channel.Lookup) payment.Answer   { return payment.Answer{} }

func TestRegistry(t *testing.T) {
	t.Parallel()
	r, err := channel.NewRegistry(map[string]channel.Entry{
		"sim":  {Adapter: silent{}, Capabilities: channel.Capabilities{Identity: "a"}},
		"acme": {Adapter: silent{}, Capabilities: full()},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"acme", "sim"}, r.Names())
	entry, ok := r.Get("sim")
	require.True(t, ok)
	require.Equal(t, channel.DefaultMaxInFlight, entry.Capabilities.MaxInFlight)
	_, ok = r.Get("nobody")
	require.False(t, ok)

	_, err = channel.NewRegistry(map[string]channel.Entry{
		"":     {Adapter: silent{}, Capabilities: full()},
		"none": {Capabilities: full()},
		"bad":  {Adapter: silent{}},
	})
	require.ErrorContains(t, err, `channel "": the name is empty`)
	require.ErrorContains(t, err, `channel "none": there is no adapter`)
	require.ErrorContains(t, err, `channel "bad": Identity is empty`)
}
