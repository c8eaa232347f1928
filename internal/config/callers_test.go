package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers/signing"
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

// With the table of callers, the settings still say which topic is whose.
func TestCallersInTheDatabase(t *testing.T) {
	t.Parallel()
	c := config.Callers{From: config.CallersFromDatabase, Topics: map[string]string{"partner": "partner"}}
	require.True(t, c.InDatabase())
	require.False(t, c.Anyone(), "nobody who is not in the table")
	require.True(t, c.Carries("x.", "x.partner", "partner"))
	require.False(t, c.Carries("x.", "x.partner", "shop"))
	require.True(t, (&config.Callers{}).Anyone())
	own := config.Callers{OwnTopics: map[string]string{"b": "two", "a": "one", "c": "two"}}
	require.Equal(t, []string{"one", "two"}, own.Endings())
}

func TestCallerSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for want, flags := range map[string]map[string]string{
		"callers-from is not known: use settings or database":              {"callers-from": "table"},
		"callers is set but callers-from is database: remove callers":      {"callers-from": "database", "callers": "shop=shop"},
		"require-signature needs signing-keys-file":                        {"require-signature": "shop"},
		"signing-key needs signing-keys-file":                              {"signing-key": "edge-1"},
		`caller-topics: "a b" cannot end the name of a topic`:              {"caller-topics": "shop=a b"},
		`caller-topics names caller "kiosk", which callers does not list`:  {"callers": "shop=shop", "caller-topics": "kiosk=k"},
		`require-signature names caller "kiosk", which callers does not`:   {"callers": "shop=shop", "require-signature": "kiosk", "signing-keys-file": "x"},
		`command-topics: t carries caller "kiosk", which callers does not`: {"callers": "shop=shop", "command-topics": "t=kiosk"},
		`repay-named: no caller has namespace "family": use one of shop`:   {"callers": "shop=shop", "repay-named": "family"},
	} {
		_, err := config.Load(config.Input{Flags: flags})
		require.ErrorContains(t, err, want)
	}
	for _, flags := range []map[string]string{
		{"callers": "shop=shop", "require-signature": "*", "signing-keys-file": "x"},
		{"callers-from": "database", "command-topics": "t=kiosk", "caller-topics": "kiosk=k", "repay-named": "family"},
	} {
		_, err := config.Load(config.Input{Flags: flags})
		require.NoError(t, err)
	}
}

func TestSigner(t *testing.T) {
	t.Parallel()
	key, err := signing.NewKey("edge-1", signing.Everyone)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(key.Line()), 0o600))
	none := config.Callers{SigningKeysFile: path}
	_, signs, err := none.Signer()
	require.NoError(t, err)
	require.False(t, signs)
	good := config.Callers{SigningKeysFile: path, SigningKey: "edge-1"}
	found, signs, err := good.Signer()
	require.NoError(t, err)
	require.True(t, signs)
	require.Equal(t, key, found)
	for want, c := range map[string]config.Callers{
		`holds no key "edge-2"`:   {SigningKeysFile: path, SigningKey: "edge-2"},
		"the file cannot be read": {SigningKeysFile: path + "x", SigningKey: "edge-1"},
	} {
		_, _, err := c.Signer()
		require.ErrorContains(t, err, want)
	}
}
