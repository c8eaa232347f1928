package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/devstack"
)

// syncBuffer is written by the program and read by the test.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// running is the program in the background.
type running struct {
	stdout, stderr *syncBuffer
	signals        chan os.Signal
	code           chan int
}

func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := &running{stdout: &syncBuffer{}, stderr: &syncBuffer{}, signals: make(chan os.Signal, 2), code: make(chan int, 1)}
	p := process{path: "bin/settleonce", args: args, env: env, stdin: strings.NewReader(""), stdout: r.stdout, stderr: r.stderr, signals: r.signals}
	ctx := context.WithoutCancel(t.Context())
	go func() { r.code <- p.run(ctx) }()
	return r
}

// stop drains it and returns the exit code.
func (r *running) stop(t *testing.T) int {
	t.Helper()
	r.signals <- syscall.SIGTERM
	select {
	case code := <-r.code:
		return code
	case <-time.After(patience):
		require.FailNow(t, "it does not stop", r.stderr.String())
		return -1
	}
}

// openFolder is a folder that Postgres's own user can reach, unlike t.TempDir.
func openFolder(t *testing.T) string {
	t.Helper()
	dir, err := devstack.TempDir("settleonce-dev-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// startDev runs the development stack until it is ready, and returns the
// environment of other terminals.
func startDev(t *testing.T, dir string, inherited []string) (*running, []string) {
	t.Helper()
	r := start(t, inherited, "dev", "--data-dir", dir)
	env := inherited
	require.Eventually(t, func() bool {
		if len(r.code) > 0 || !strings.Contains(r.stdout.String(), "In another terminal") {
			return len(r.code) > 0
		}
		text, err := os.ReadFile(filepath.Join(dir, "env"))
		require.NoError(t, err)
		env = strings.Split(strings.TrimSpace(strings.ReplaceAll(string(text), "'", "")), "\n")
		return true
	}, patience, 50*time.Millisecond)
	require.Empty(t, r.code, r.stderr.String())
	require.Contains(t, r.stdout.String(), "bin/settleonce publish --order", "it is named as it was started")
	return r, env
}

func publishOne(t *testing.T, env []string, args ...string) publishedCommand {
	t.Helper()
	r := runCommand(t, env, append([]string{"publish", "-o", "json"}, args...)...)
	requireOK(t, r)
	var report published
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, 1, report.Published)
	return report.Commands[0]
}

func statusOf(t *testing.T, env []string, key string, args ...string) []map[string]any {
	t.Helper()
	r := runCommand(t, env, append([]string{"status", key, "-o", "json"}, args...)...)
	if r.code != 0 { // it is not there yet, or a busy machine did not answer in time
		return nil
	}
	var views []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &views))
	return views
}

// TestDevelopmentStack is the way of a newcomer: start, publish, look, stop, start again.
func TestDevelopmentStack(t *testing.T) {
	t.Parallel()
	dir := openFolder(t)
	r, env := startDev(t, dir, nil)
	require.Contains(t, r.stdout.String(), "FOR DEVELOPMENT ONLY")
	c := publishOne(t, env, "--order", "order-1001", "--amount", "1999")
	key := c.Key.String()
	var views []map[string]any
	succeeded := func() bool {
		views = statusOf(t, env, key, "--caller", "shop")
		return len(views) == 1 && views[0]["state"] == "succeeded"
	}
	require.Eventually(t, succeeded, patience, 100*time.Millisecond, r.stderr)
	require.Equal(t, "tok_****", views[0]["paymentMethod"])

	// The same key again is answered from the first outcome, and the answer is remembered.
	publishOne(t, env, "--order", "order-1001", "--amount", "1999", "--key", key)
	require.Eventually(t, func() bool {
		views = statusOf(t, env, key) // without the caller: found by reading the table
		if len(views) != 1 {
			return false
		}
		told, ok := views[0]["deliveries"].([]any)
		return ok && len(told) == 1
	}, patience, 100*time.Millisecond)
	table := runCommand(t, env, "status", key, "--caller", "shop")
	requireOK(t, table)
	require.Contains(t, table.stdout, "replayed")

	require.Eventually(t, func() bool { return runCommand(t, env, "health", "--ready").code == 0 }, patience, 100*time.Millisecond)
	requireOK(t, runCommand(t, env, "topics", "check", "--replication", "1"))
	requireOK(t, runCommand(t, env, "migrate", "status"))
	require.Contains(t, runCommand(t, env, "recover").stdout, "nothing is suspected")
	require.Zero(t, r.stop(t), r.stderr)

	// Started again from a terminal that took the addresses of the first run.
	r, env = startDev(t, dir, env)
	require.True(t, succeeded(), "the data survives a restart")
	require.Zero(t, r.stop(t), r.stderr)
	require.NotContains(t, r.stdout.String()+r.stderr.String(), "password")
}

// A second signal does not wait for what is under way.
func TestSecondSignalCutsShort(t *testing.T) {
	t.Parallel()
	signals := make(chan os.Signal, 2)
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	p := process{args: []string{"publish", "-"}, stdin: readFunc(func() { <-stuck }), stdout: &syncBuffer{}, stderr: &syncBuffer{}, signals: signals}
	signals <- os.Interrupt
	signals <- os.Interrupt
	require.Equal(t, 130, p.run(context.WithoutCancel(t.Context())))
}

// readFunc is a reader that does something and then ends.
type readFunc func()

func (f readFunc) Read([]byte) (int, error) {
	f()
	return 0, os.ErrClosed
}
