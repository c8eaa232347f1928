package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/fleet/fleettest"
)

// program is what the fleets of these tests run.
var program fleettest.Program

func TestMain(m *testing.M) { program.Main(m) }

// runDemo runs a demo as the command does, in a size for tests.
func runDemo(t *testing.T, cfg Config) Report {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a whole system and waits for re-queries; left out by -short")
	}
	cfg.Fleet.Binary, cfg.Fleet.Log = program.Path(t), zerolog.Nop()
	cfg.Patience = 10 * time.Minute // on a machine that does much beside it
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
	report := runDemo(t, Config{Commands: 500, Seed: 11, Kills: 8, KillSim: true, Downstream: bystander(t)})
	require.Empty(t, report.Violations)
	require.Empty(t, report.Crashed)
	require.Empty(t, report.Unsettled)
	for _, role := range append(workerRoles, RoleSim) {
		require.GreaterOrEqual(t, report.Killed[role], 2, role)
	}
	require.Zero(t, report.Counts.DoubleCharged)
	require.GreaterOrEqual(t, report.Counts.InReview, report.Counts.ReviewPlanned)
}

// bystander is a service downstream that reads nothing. It looks when all is judged: then no
// worker has a session any more, so that nothing moves.
func bystander(t *testing.T) *Downstream {
	t.Helper()
	var dsn string
	return &Downstream{
		Start: func(ctx context.Context, f *fleet.Fleet, number int, _ []string) (*fleet.Child, error) {
			dsn = f.DSN()
			return f.StartProgram(ctx, fmt.Sprintf("bystander-%d", number), "/bin/sleep", "", "3600")
		},
		Left: func(context.Context) (int64, error) { return 0, nil },
		Look: func(ctx context.Context) (*check.Downstream, error) {
			conn, err := pgx.Connect(ctx, dsn)
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close(context.WithoutCancel(ctx))) }()
			require.Eventually(t, func() bool { // a server notices a little later that a client is gone
				var others int
				return conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`).Scan(&others) == nil && others == 0
			}, time.Minute, 10*time.Millisecond, "workers are at work while they are judged")
			return &check.Downstream{}, nil
		},
	}
}

// A provider that executes a key twice, though it promised not to, and hides the
// first execution: the verdict of a real run must say so.
func TestVerdict_SeesARealDoubleCharge(t *testing.T) {
	t.Parallel()
	report := runDemo(t, Config{
		Commands: 100, Seed: 12, Kills: -1,
		Channels: []Channel{{Channel: fleet.Channel{Name: "sim", Behaviour: Behaviour(`"idempotentSubmit":false`), Promises: Promises(nil)}}},
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
		"only a table":  {Registered: true},
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
