package crashpoint_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/leaktest"
)

// The test binary runs itself as the process that is to die.
func TestMain(m *testing.M) {
	if os.Getenv("CRASHPOINT_CHILD") != "" {
		child()
		return
	}
	leaktest.Main(m)
}

func child() {
	if err := crashpoint.Arm(os.Getenv(crashpoint.Variable)); err != nil {
		os.Exit(3)
	}
	crashpoint.Here(crashpoint.ClaimStart)
	crashpoint.Here(crashpoint.SendDone)
	os.Stdout.WriteString("1")
	crashpoint.Here(crashpoint.SendDone)
	os.Stdout.WriteString("2")
}

func runChild(t *testing.T, value string) (string, *os.ProcessState) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{"CRASHPOINT_CHILD=1", crashpoint.Variable + "=" + value}
	out, err := cmd.Output()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return string(out), cmd.ProcessState
}

func TestDiesAtItsTurn(t *testing.T) {
	t.Parallel()
	out, state := runChild(t, "send.done:2")
	require.Equal(t, "1", out)
	status, ok := state.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, status.Signal())
}

func TestOffCostsNothing(t *testing.T) {
	t.Parallel()
	out, state := runChild(t, "")
	require.Equal(t, "12", out)
	require.True(t, state.Success())
}

func TestUnknownPointIsRefused(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"nowhere", "send.done:0", "send.done:x"} {
		_, state := runChild(t, value)
		require.Equal(t, 3, state.ExitCode(), value)
	}
}
