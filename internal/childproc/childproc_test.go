package childproc_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// shell starts a script that says "ready" into its output once its traps are set.
func shell(t *testing.T, script string) (*childproc.Process, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close()) }()
	p, err := childproc.Start(t.Context(), childproc.Config{Path: "/bin/sh", Args: []string{"-c", script}, Output: out})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	require.Eventually(t, func() bool {
		return strings.Contains(read(t, path), "ready")
	}, time.Minute, 5*time.Millisecond)
	return p, path
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

func TestStopLetsTheChildFinish(t *testing.T) {
	t.Parallel()
	p, out := shell(t, "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
	require.NoError(t, p.Err(), "it still runs")
	require.NoError(t, p.Stop(t.Context(), syscall.SIGTERM))
	require.Contains(t, read(t, out), "bye")
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)
	require.Equal(t, 3, exit.ExitCode())
	require.NoError(t, p.Stop(t.Context(), syscall.SIGTERM), "a second stop is harmless")
}

func TestStopKillsWhoDoesNotListen(t *testing.T) {
	t.Parallel()
	p, _ := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, p.Stop(ctx, syscall.SIGTERM), "was killed")
	<-p.Done()
	require.ErrorIs(t, syscall.Kill(p.Pid(), 0), syscall.ESRCH)
}

func TestChildHasAGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	p, _ := shell(t, "echo ready; exec sleep 60")
	group, err := syscall.Getpgid(p.Pid())
	require.NoError(t, err)
	require.Equal(t, p.Pid(), group, "Ctrl-C in our terminal must not reach it")
}

func TestStartRefusals(t *testing.T) {
	t.Parallel()
	_, err := childproc.Start(t.Context(), childproc.Config{})
	require.ErrorContains(t, err, "name the program")
	_, err = childproc.Start(t.Context(), childproc.Config{Path: "/nowhere/program"})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFreePortsAreDifferent(t *testing.T) {
	t.Parallel()
	ports, err := childproc.FreePorts(t.Context(), 50)
	require.NoError(t, err)
	seen := make(map[int]bool)
	for _, port := range ports {
		require.False(t, seen[port])
		seen[port] = true
	}
}
