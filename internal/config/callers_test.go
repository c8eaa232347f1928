package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/config"
)

// G12: nobody pays in another caller's name.
func TestCallers(t *testing.T) {
	t.Parallel()
	var anybody config.Callers
	require.Equal(t, []string{"x.payment.commands"}, anybody.CommandTopics("x."))
	require.True(t, anybody.May("x.", "x.payment.commands", "shop"))
	name, named := anybody.Namespace("shop")
	require.Equal(t, "shop", name)
	require.False(t, named)

	c := config.Callers{
		Namespaces: map[string]string{"shop": "shop", "shop-cron": "shop", "partner": "partner"},
		Topics:     map[string]string{"payment.commands": "shop+shop-cron", "partner": "partner"},
		RepayNamed: []string{"shop"},
	}
	require.Equal(t, []string{"x.partner", "x.payment.commands"}, c.CommandTopics("x."))
	require.True(t, c.May("x.", "x.payment.commands", "shop-cron"))
	require.True(t, c.May("x.", "x.partner", "partner"))
	require.False(t, c.May("x.", "x.partner", "shop"), "another caller's topic")
	require.False(t, c.May("x.", "x.payment.commands", "partner"), "another caller's topic")
	require.False(t, c.May("x.", "x.payment.commands", "stranger"), "not listed")
	require.False(t, c.May("x.", "x.payment.commands", ""), "nobody")
	name, named = c.Namespace("shop-cron")
	require.Equal(t, "shop", name)
	require.True(t, named)
}
