package cluster_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

const (
	// perSecond is how many records are published per second. While commits may be lost every payment
	// costs a query, and the budget has 25 of them per second.
	perSecond = 15
	// shortest is what one round of all scenes takes on a quiet machine.
	shortest = 80 * time.Second
)

// G1, G5, G10 and the others hold, whatever happens to brokers and database servers, as long as two of
// three copies and one of two database servers are left.
func TestCluster(t *testing.T) {
	t.Parallel()
	payments, seed := wanted(t)
	begun := time.Now()
	dir, err := devstack.TempDir("settleonce-cluster-")
	require.NoError(t, err)
	pair, err := devstack.StartPair(t.Context(), devstack.PostgresConfig{DataDir: filepath.Join(dir, "postgres")})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pair.Stop(context.WithoutCancel(t.Context())))
		if t.Failed() {
			t.Log("data and logs are in", dir)
		} else {
			require.NoError(t, os.RemoveAll(dir))
		}
	})
	require.NoError(t, pair.CreateDatabase(t.Context(), database))
	separate := seed%2 == 1
	d := &director{pair: pair, separate: separate, random: rand.New(rand.NewPCG(seed, 11)), topics: payment.NewTopics(""), done: map[string]int{}}
	t.Logf("seed %d; a controller of its own: %t", seed, separate)
	report, err := demo.Run(t.Context(), demo.Config{
		Fleet: fleet.Config{
			Binary: program(t), Dir: filepath.Join(dir, "fleet"), Log: zerolog.Nop(), DSN: pair.DSN(database), Kafka: fleet.KafkaApache,
			Apache: apachekafka.Config{Brokers: 3, Controller: separate, Heap: "384m", StartTimeout: 10 * time.Minute},
		},
		Payments: payments, Length: max(shortest, time.Duration(demo.Records(payments))*time.Second/perSecond), Seed: seed, Kills: -1,
		// It counts from the start, and a scene takes a minute where ten other tests run.
		Patience: 20 * time.Minute,
		Workers: func(f *fleet.Fleet) ([]string, error) {
			d.fleet = f
			return []string{"SETTLEONCE_WATCH_FIRST=20s"}, d.whole(t.Context(), d.ours())
		},
		Disturb: d.disturb, Say: func(what string) { t.Logf("%4.0f s  %s", time.Since(begun).Seconds(), what) },
	})
	require.NoError(t, err)
	t.Logf("%.0f s, %d probes; done: %v", report.Seconds, d.probes, d.done)
	t.Logf("%+v", report.Counts)
	require.Empty(t, report.Unsettled)
	require.Empty(t, report.Violations)
	require.Empty(t, report.Crashed, "workers wait while broker or database are away, and do not end")
	for _, what := range []string{leaderKilled, twoKilled, rolled, moved, promoted} {
		require.Positive(t, d.done[what], what)
	}
}
