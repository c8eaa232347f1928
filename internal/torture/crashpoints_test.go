package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
)

// TestCrashPoints kills a worker of each role at each of its crash points, one
// after the other, while payments flow; then everything is drained and checked.
// A worker that died is started again before the next point.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a whole system; left out by -short")
	}
	begun := time.Now()
	reached := map[string]bool{}
	var mu sync.Mutex
	report, err := demo.Run(t.Context(), demo.Config{
		Fleet: fleet.Config{Binary: program(t), Log: zerolog.Nop()}, Commands: 4000, Length: 50 * time.Second, Seed: 21, Kills: -1,
		Say: func(what string) { t.Logf("%4.1f s %s", time.Since(begun).Seconds(), what) },
		Disturb: func(ctx context.Context, s *demo.Scene) ([]check.Violation, error) {
			var roles sync.WaitGroup
			for role, points := range pointsOf {
				roles.Go(func() {
					for _, point := range points {
						ok := false
						for try := 0; try < 3 && !ok && ctx.Err() == nil; try++ {
							ok, _ = s.CrashAt(ctx, role, point, "", 12*time.Second) // what was not reached fails below
						}
						mu.Lock()
						reached[fmt.Sprintf("%s at %s", role, point)] = ok
						mu.Unlock()
					}
				})
			}
			roles.Wait()
			return nil, ctx.Err()
		},
	})
	require.NoError(t, err)
	requirePassed(t, report)
	for name, ok := range reached {
		require.True(t, ok, name)
	}
	require.Len(t, reached, len(pointsOf[demo.RoleConsumer])+len(pointsOf[demo.RoleOutbox])+len(pointsOf[demo.RoleReconciler]))
}

// requirePassed shows a report that did not.
func requirePassed(t *testing.T, report demo.Report) {
	t.Helper()
	if !report.Passed() {
		text, err := json.MarshalIndent(report, "", " ")
		require.NoError(t, err)
		t.Log(string(text))
	}
	require.Empty(t, report.Violations)
	require.Empty(t, report.Unsettled)
	if report.Kept != "" {
		require.NoError(t, os.RemoveAll(report.Kept))
	}
}
