package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/config"
)

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func TestEveryHelpBeginsWithExamples(t *testing.T) {
	t.Parallel()
	walk(newRoot(process{}), func(cmd *cobra.Command) {
		words := strings.Fields(cmd.CommandPath())[1:]
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			t.Parallel()
			r := runCommand(t, nil, append(words, "--help")...)
			requireOK(t, r)
			if cmd.Name() == "help" { // the library's own
				require.NotContains(t, r.stdout, "Examples:")
				return
			}
			require.True(t, strings.HasPrefix(r.stdout, "Examples:\n  settleonce"), r.stdout)
			require.NotEmpty(t, cmd.Short)
			require.Empty(t, r.stderr)
		})
	})
}

// Whoever copies a line of an example or of a page gets no "flag is not known".
func TestLinesToCopyAreUnderstood(t *testing.T) {
	t.Parallel()
	examples := map[string]string{}
	walk(newRoot(process{}), func(cmd *cobra.Command) { examples[cmd.CommandPath()] = cmd.Example })
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		examples[page] = string(text)
	}
	understood := 0
	for where, text := range examples {
		for _, match := range lineToCopy.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", ""), -1) {
			cmd, rest, err := newRoot(process{}).Find(words(match[1]))
			require.NoError(t, err, "%s: %s", where, match[0])
			if err := cmd.ParseFlags(rest); !errors.Is(err, pflag.ErrHelp) {
				require.NoError(t, err, "%s: %s", where, match[0])
			}
			understood++
		}
	}
	require.Greater(t, understood, 100)
}

// A line is a command up to where it is piped, redirected or explained.
var lineToCopy = regexp.MustCompile(`(?m)^ *settleonce ((?:'[^']*'|"[^"]*"|[^'"\n|><;#])+?)(?: {3,}.*)?(?:$|[|><;#])`)

// words splits a line as a shell does, as far as our lines need it.
func words(line string) []string {
	var out []string
	for _, match := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		out = append(out, strings.NewReplacer("'", "", `"`, "").Replace(match))
	}
	return out
}

func TestFaultsOfUsage(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, want string
		args, env  []string
	}{
		{name: "command", args: []string{"migrat"}, want: `command "migrat" is not known, did you mean "migrate"`},
		{name: "flag", args: []string{"health", "--reddy"}, want: "flag --reddy is not known, did you mean --ready: see `settleonce health --help`"},
		{name: "flag of another command", args: []string{"health", "--lease", "3s"}, want: "flag --lease is a setting that \"health\" does not use"},
		{name: "argument", args: []string{"version", "now"}, want: "see `settleonce version --help`"},
		{name: "batch", args: []string{"publish", "--order", "o", "--amount", "1", "--batch", "0"}, want: "--batch is 0: send at least 1 command at once"},
		{name: "output", args: []string{"version", "-o", "xml"}, want: "-o xml is not known: use table or json"},
		{name: "variable", args: []string{"config"}, env: []string{"SETTLEONCE_LEESE=3s"}, want: "did you mean SETTLEONCE_LEASE"},
		{name: "two faults", args: []string{"config", "--lease", "x", "--skew", "y"}, want: "2 faults:\n  "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := runCommand(t, c.env, c.args...)
			require.Equal(t, exitUsage, r.code)
			require.Contains(t, r.stderr, c.want)
			require.Empty(t, r.stdout)
		})
	}
}

func TestConfigShowsValuesAndSources(t *testing.T) {
	t.Parallel()
	env := []string{"SETTLEONCE_POSTGRES_DSN=postgres://app:s3cr3t@db/settleonce"}
	r := runCommand(t, env, "config", "--lease", "40s", "-o", "json")
	requireOK(t, r)
	var values []config.Value
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &values))
	require.Contains(t, values, config.Value{Name: "lease", Value: "40s", Source: "flag"})
	require.Contains(t, values, config.Value{
		Name: "postgres-dsn", Value: "postgres://app:xxxxx@db/settleonce", Source: "SETTLEONCE_POSTGRES_DSN",
	})
	r = runCommand(t, env, "config")
	requireOK(t, r)
	require.NotContains(t, r.stdout, "s3cr3t")
	require.Contains(t, r.stdout, "SETTING")
	r = runCommand(t, nil, "config", "--markdown")
	requireOK(t, r)
	require.Equal(t, config.Markdown(), r.stdout)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	r := runCommand(t, nil, "version", "-o", "json")
	requireOK(t, r)
	var b build
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &b))
	require.NotEmpty(t, b.Version)
	require.True(t, strings.HasPrefix(b.Go, "go1."))
}

func TestSimulatorRefusesNonsense(t *testing.T) {
	t.Parallel()
	for behaviour, want := range map[string]string{
		"fast": "is not the JSON it takes", `{"rates":{"lost_answer":2}}`: "is not between 0 and 1", `{"latency":"soon"}`: "duration",
	} {
		r := runCommand(t, nil, "sim", "--sim-listen", "127.0.0.1:0", "--sim-behaviour", behaviour)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, want)
	}
}

func TestProbeAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		":9464": "http://127.0.0.1:9464/readyz", "0.0.0.0:1": "http://127.0.0.1:1/readyz", "[::]:1": "http://127.0.0.1:1/readyz",
		"10.0.0.1:2": "http://10.0.0.1:2/readyz", "[::1]:3": "http://[::1]:3/readyz",
	} {
		got, err := healthURL(address, true)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := healthURL("9464", false)
	require.ErrorIs(t, err, errUsage)
}

func TestHealthOfNobody(t *testing.T) {
	t.Parallel()
	r := runCommand(t, nil, "health", "--admin-address", "127.0.0.1:1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "nothing answers at http://127.0.0.1:1/healthz, check that the process runs")
}

// A supervisor asks a process of its own: a fault in another's settings is no
// reason to take it for dead.
func TestHealthNeedsNoOtherSettings(t *testing.T) {
	t.Parallel()
	r := runCommand(t, []string{"SETTLEONCE_KAFKA_TLS_CERT=/x", "SETTLEONCE_LEASE=soon"}, "health", "--admin-address", "127.0.0.1:1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "nothing answers at http://127.0.0.1:1/healthz")
}
