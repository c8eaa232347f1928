package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/config"
)

// requireSound: what was loaded is valid and can be shown; what was not has a
// sentence for it.
func requireSound(t *testing.T, l *config.Loaded, err error) {
	t.Helper()
	if err != nil {
		require.NotEmpty(t, err.Error())
		return
	}
	require.NoError(t, l.Config.Validate())
	require.NotEmpty(t, l.Config.Channels)
	for _, v := range l.Values() {
		require.NotEmpty(t, v.Source, v.Name)
	}
}

func FuzzFile(f *testing.F) {
	for _, seed := range []string{
		"", "# nothing\n", "lease: 40s\n", "lease: [40s]\n", "lease: 40s\nlease: 50s\n", "leas: 40s\n", "- a\n", "lease: *x\n", "a: &x [*x]\n",
		"lease: ~\n", "lease: !!binary aGk=\n", "kafka-brokers: [a:1, b:2]\n", "kafka-brokers: {a: 1}\n", "? [a]\n: b\n", "--- 1\n--- 2\n", "\x00", "\xff\xfe",
		"channels:\n  sim:\n    type: sim\n    url: http://localhost:1\n", "channels: {}\n", "channels: [sim]\n", "channels:\n  sim: 1\n",
		"channels:\n  sim:\n    type: sim\n    url: http://h\n    memory: 24h\n    memory: 1h\n", "<<: {lease: 1s}\n", "lease: 99999999999999999999s\n",
		"channels:\n  ? {}\n  : {type: sim}\n", "base: &b {type: sim}\nchannels:\n  sim: *b\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "-file") {
			return // would read whatever path comes up
		}
		path := filepath.Join(t.TempDir(), "settleonce.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		l, err := config.Load(config.Input{File: path})
		requireSound(t, l, err)
	})
}

// FuzzEnvironment: every variable of every setting with any text.
func FuzzEnvironment(f *testing.F) {
	settings := config.Settings()
	for i, s := range settings {
		f.Add(i, s.Default)
	}
	for _, text := range []string{"", " ", "-1", "1e9", "0x10", "NaN", "\x00", "a=b,c", ",", "=", "a=b,a=c", "http://[::1", "9223372036854775807", "-1s", "2562047h48m"} {
		f.Add(len(text), text)
		f.Add(3*len(text)+20, text)
	}
	f.Fuzz(func(t *testing.T, which int, text string) {
		s := settings[uint(which)%uint(len(settings))]
		if strings.HasSuffix(s.Name, "-file") {
			return
		}
		l, err := config.Load(config.Input{Env: []string{s.Env() + "=" + text, "SETTLEONCE_PORT=tcp://10.0.0.1:80"}})
		requireSound(t, l, err)
		if err != nil {
			return
		}
		require.Equal(t, s.Env(), l.Source(s.Name))
		shown := l.Values()[slices.IndexFunc(settings, func(other config.Setting) bool { return other.Name == s.Name })].Value
		again, err := config.Load(config.Input{Flags: map[string]string{s.Name: shown}})
		if !s.Secret() { // what is shown can be written again
			require.NoError(t, err)
			require.Equal(t, l.Config, again.Config)
		}
	})
}
