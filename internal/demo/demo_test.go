package demo

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/settleonce/settleonce/internal/fleet"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built.dir)
		os.Exit(code)
	}))
}

// built is the program that the fleets of these tests run.
var built struct {
	once sync.Once
	dir  string
	err  error
}

func program(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it outlives the test that builds it
		if built.dir, built.err = os.MkdirTemp("", "settleonce-demo-*"); built.err != nil {
			return
		}
		var out []byte
		cmd := exec.CommandContext(context.Background(), "go", "build", "-o", built.dir, "../../cmd/settleonce")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, built.err = cmd.CombinedOutput(); built.err != nil {
			built.err = &exec.Error{Name: string(out), Err: built.err}
		}
	})
	require.NoError(t, built.err)
	return filepath.Join(built.dir, "settleonce")
}

// runDemo runs a demo as the command does, in a size for tests.
func runDemo(t *testing.T, cfg Config) Report {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole system and waits for re-queries; left out by -short")
	}
	cfg.Fleet.Binary, cfg.Fleet.Log = program(t), zerolog.Nop()
	cfg.Say = func(what string) { t.Log(what) }
	report, err := Run(context.Background(), cfg)
	require.NoError(t, err)
	if !report.Passed() {
		text, err := json.MarshalIndent(report, "", " ")
		require.NoError(t, err)
		t.Log(string(text))
	}
	return report
}

// Whatever is killed, and whenever, the verdict is the same.
func TestKills_EndInTheSameVerdict(t *testing.T) {
	t.Parallel()
	report := runDemo(t, Config{Commands: 500, Seed: 11, Kills: 8, KillSim: true})
	require.Empty(t, report.Violations)
	require.Empty(t, report.Crashed)
	require.Empty(t, report.Unsettled)
	for _, role := range append(workerRoles, RoleSim) {
		require.GreaterOrEqual(t, report.Killed[role], 2, role)
	}
	require.Zero(t, report.Counts.DoubleCharged)
	require.GreaterOrEqual(t, report.Counts.InReview, report.Counts.ReviewPlanned)
}

// A provider that executes a key twice, though it promised not to, and hides the
// first execution: the verdict of a real run must say so.
func TestVerdict_SeesARealDoubleCharge(t *testing.T) {
	t.Parallel()
	report := runDemo(t, Config{
		Commands: 100, Seed: 12, Kills: -1,
		Behaviour: `{"latency":"15ms","longestExecution":"5s","idempotentSubmit":false}`,
		extra: []story{{"forgotten and hidden", 0, func(w *writer) {
			w.first(w.payment(endsCharged, "lost_answer,query_hidden@*"))
		}}},
	})
	require.False(t, report.Passed())
	require.Equal(t, 1, report.Counts.DoubleCharged)
	require.NotEmpty(t, report.Violations)
	require.Equal(t, "G1", report.Violations[0].Guarantee)
	require.NotEmpty(t, report.Violations[0].Key)
	require.DirExists(t, report.Kept)
	require.NoError(t, os.RemoveAll(report.Kept))
}

// A demo that cannot start says so, and leaves nothing running.
func TestRun_RefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"few commands":  {Commands: 5},
		"many commands": {Commands: 1_000_000},
		"no processes":  {Each: -1},
		"many kills":    {Kills: 1000},
		"no patience":   {Patience: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Run(context.Background(), cfg)
			require.ErrorContains(t, err, "set the ")
		})
	}
	_, err := Run(context.Background(), Config{Fleet: fleet.Config{Kafka: "carrier pigeon"}})
	require.ErrorContains(t, err, "carrier pigeon")
}
