package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/config"
)

// Secrets of callbacks come from a setting or a file, several at once while one
// is rotated, and are never shown.
func TestCallbackSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secrets")
	require.NoError(t, os.WriteFile(file, []byte("s3cr3t-of-today-77\n\ns3cr3t-of-before-7\n"), 0o600))
	l, err := config.Load(config.Input{Env: []string{"SETTLEONCE_CHANNEL_CALLBACK_SECRET=s3cr3t-of-today-77,s3cr3t-of-before-7"}})
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(l.Values()), "s3cr3t")
	byFile, err := config.Load(config.Input{Env: []string{"SETTLEONCE_CHANNEL_CALLBACK_SECRET_FILE=" + file, "SETTLEONCE_CHANNEL_CALLBACK_MAX_AGE=1m"}})
	require.NoError(t, err)
	section, err := config.Load(config.Input{File: writeFile(t, "channels:\n  sim:\n    type: sim\n    url: http://a\n    callback-secret: [s3cr3t-of-today-77, s3cr3t-of-before-7]\n")})
	require.NoError(t, err)
	for _, loaded := range []*config.Loaded{l, byFile, section} {
		c := loaded.Config.Channels["sim"]
		signing, err := c.CallbackSigning()
		require.NoError(t, err)
		require.Equal(t, []string{"s3cr3t-of-today-77", "s3cr3t-of-before-7"}, signing.Secrets)
	}
	require.Equal(t, time.Minute, byFile.Config.Channels["sim"].CallbackMaxAge)

	for want, c := range map[string]config.Channel{
		"keep one":         {Name: "sim", CallbackSecrets: []string{"s3cr3t-of-today-77"}, CallbackSecretFile: file},
		"fewer than 16":    {Name: "sim", CallbackSecrets: []string{"s3cr3t"}},
		"cannot be read":   {Name: "sim", CallbackSecretFile: file + "-not-there"},
		"holds no secret":  {Name: "sim", CallbackSecretFile: writeFile(t, " \n \n")},
		"write the secret": {Name: "sim", CallbackSecretFile: writeFile(t, "\n")},
	} {
		_, err := c.CallbackSigning()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cr3t-of")
	}
	none := config.Channel{Name: "sim"}
	signing, err := none.CallbackSigning()
	require.NoError(t, err)
	require.Empty(t, signing.Secrets)
}

func TestSimCallbackKey(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "s3cr3t-of-today-77\n")
	for want, sim := range map[string]config.Sim{
		"s3cr3t-of-today-77": {CallbackURL: "http://a", CallbackSecretFile: file}, "inline": {CallbackURL: "http://a", CallbackSecret: "inline"},
		"": {CallbackSecretFile: file + "-not-there"},
	} {
		key, err := sim.CallbackKey()
		require.NoError(t, err)
		require.Equal(t, want, key)
	}
	for want, sim := range map[string]config.Sim{
		"keep one":       {CallbackURL: "http://a", CallbackSecret: "x", CallbackSecretFile: file},
		"cannot be read": {CallbackURL: "http://a", CallbackSecretFile: file + "-not-there"},
	} {
		_, err := sim.CallbackKey()
		require.ErrorContains(t, err, want)
	}
}
