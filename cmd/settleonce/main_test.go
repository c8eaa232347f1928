package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// result is what one run of the program left behind.
type result struct {
	code           int
	stdout, stderr string
}

// runCommand runs the real program in this process.
func runCommand(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runInput(t, env, "", args...)
}

// runInput runs it with a text on its standard input.
func runInput(t *testing.T, env []string, input string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	p := process{
		args: args, env: env, stdin: strings.NewReader(input), stdout: &stdout, stderr: &stderr,
		signals: make(chan os.Signal),
	}
	code := p.run(context.WithoutCancel(t.Context()))
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

func requireOK(t *testing.T, r result) {
	t.Helper()
	require.Zero(t, r.code, r.stderr)
}
