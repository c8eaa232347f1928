package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
)

// What could not be looked at is said in one sentence, with what to do.
func TestCheck_ExplainsWhatItCannotLookAt(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, explainCheck(check.ErrNotInstalled), "settleonce migrate")
	require.ErrorContains(t, explainCheck(check.ErrChannel), "channel-url")
	other := errors.New("the cable is out")
	require.ErrorIs(t, explainCheck(other), other)
}

// Violations are shown with guarantee and key, and fail the command.
func TestCheck_ShowsViolations(t *testing.T) {
	t.Parallel()
	v := check.Verdict{}
	require.NoError(t, checkError(v))
	v.Add([]check.Violation{{Guarantee: "G1", Key: "key-1", Text: "the channel took the money 2 times"}})
	require.ErrorContains(t, checkError(v), "G1 (one charge)")
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	offerOutput(cmd)
	require.NoError(t, show(cmd, v, checkTable))
	require.Contains(t, out.String(), "key-1 the channel took the money 2 times")
}

// Bad flags of the tools end with a sentence and the code of wrong usage.
func TestTorture_RefusesBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"torture", "--faults", "earthquake"},
		{"torture", "--seed", "seven"},
		{"torture", "--length", "0.1s"},
		{"check", "--grace", "0s"},
		{"check", "-o", "xml"},
	} {
		var out, err strings.Builder
		p := process{args: args, stdout: &out, stderr: &err}
		require.NotZero(t, p.run(t.Context()), args)
		require.NotEmpty(t, err.String(), args)
		require.Equal(t, 1, strings.Count(err.String(), "\n"), err.String())
	}
}
