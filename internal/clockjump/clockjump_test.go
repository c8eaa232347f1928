package clockjump_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/clockjump"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// clock says the time now and after a while, and how long that while was by the
// monotonic clock.
const clock = `package main

import (
	"fmt"
	"time"
)

func main() {
	first := time.Now()
	time.Sleep(10500 * time.Millisecond)
	second := time.Now()
	fmt.Println(second.Round(0).Sub(first.Round(0)).Milliseconds(), second.Sub(first).Milliseconds())
}
`

// The wall clock jumps while the process runs; timers and durations do not.
func TestJump(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the standard library; left out by -short")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(clock), 0o600))
	flags, err := clockjump.BuildFlags(t.Context(), dir)
	require.NoError(t, err)
	program := filepath.Join(dir, "clock")
	build := exec.CommandContext(t.Context(), "go", append(append([]string{"build", "-o", program}, flags...), filepath.Join(dir, "main.go"))...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	const after = 10 * time.Second // the program has begun by then, also on a busy machine
	for jump, want := range map[clockjump.Jump]time.Duration{
		{}: 0, {By: time.Hour, After: after}: time.Hour, {By: -20 * time.Second, After: after}: -20 * time.Second,
		{By: time.Hour, After: time.Hour}: 0, {By: time.Hour}: 0, // at once: both readings have it
	} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			wall, monotonic := runClock(t, program, jump)
			require.InDelta(t, want+monotonic, wall, float64(2*time.Second))
			require.GreaterOrEqual(t, monotonic, 10500*time.Millisecond)
			require.Less(t, monotonic, 30*time.Minute)
		})
	}
}

func runClock(t *testing.T, program string, jump clockjump.Jump) (wall, monotonic time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program)
	cmd.Env = append(os.Environ(), clockjump.Variable+"="+jump.String())
	out, err := cmd.Output()
	require.NoError(t, err)
	first, second, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	require.True(t, found, string(out))
	wall, err = time.ParseDuration(first + "ms")
	require.NoError(t, err)
	monotonic, err = time.ParseDuration(second + "ms")
	require.NoError(t, err)
	return wall, monotonic
}
