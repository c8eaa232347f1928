package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
)

// showReport prints a report as the command does.
func showReport(t *testing.T, r demo.Report) string {
	t.Helper()
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	offerOutput(cmd)
	require.NoError(t, show(cmd, r, demoTable))
	return out.String()
}

// A report without violations is a success and says so.
func TestDemo_ShowsThatEverythingHeld(t *testing.T) {
	t.Parallel()
	r := demo.Report{
		Broker: "embedded", Seed: 7, Killed: map[string]int{"outbox": 2, "consumer": 1},
		Verdict: check.Verdict{Guarantees: []check.Held{{Guarantee: "G1", Name: "one charge", Checked: 1234, Of: "provider keys"}}},
	}
	text := showReport(t, r)
	require.Contains(t, text, "✓ G1 one charge")
	require.Contains(t, text, "1234")
	require.Contains(t, text, "every guarantee held")
	require.Contains(t, text, "consumer 1, outbox 2")
	require.NotContains(t, text, "✗")
	require.NoError(t, verdictError(r))
}

// A violation is named with its guarantee, an example, and the seed to see it
// again; the command fails.
func TestDemo_NamesWhatBroke(t *testing.T) {
	t.Parallel()
	r := demo.Report{Seed: 7, Unsettled: []string{"an end of key-2"}, Verdict: check.Verdict{
		Guarantees: []check.Held{{Guarantee: "G1", Name: "one charge", Violations: 1}},
		Violations: []check.Violation{{Guarantee: "G1", Key: "key-1", Text: "the channel took the money 2 times"}},
	}}
	text := showReport(t, r)
	require.Contains(t, text, "✗ G1 one charge")
	require.Contains(t, text, "key-1 the channel took the money 2 times")
	require.Contains(t, text, "an end of key-2")
	require.Contains(t, text, "--seed 7")
	require.EqualError(t, verdictError(r), "broken: G1 (one charge)")
}

// A process that ended by itself is a fault, even where every guarantee held.
func TestDemo_CrashIsAFault(t *testing.T) {
	t.Parallel()
	r := demo.Report{Crashed: []string{"outbox-1"}, Kept: "/data"}
	require.ErrorContains(t, verdictError(r), "outbox-1")
	require.Contains(t, showReport(t, r), "ended by themselves: outbox-1")
}
