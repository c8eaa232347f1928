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
	"github.com/settleonce/settleonce/internal/crashpoint"
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
		Fleet: fleet.Config{Binary: program.Path(t), Log: zerolog.Nop()}, Commands: 5000, Length: 70 * time.Second, Seed: 21, Kills: -1, EdgeShare: 40,
		Patience: patience,
		Say:      func(what string) { t.Logf("%4.1f s %s", time.Since(begun).Seconds(), what) },
		Disturb: func(ctx context.Context, s *demo.Scene) ([]check.Violation, error) {
			var all sync.WaitGroup
			for _, row := range rows() {
				all.Go(func() {
					for _, point := range row.points {
						ok := false
						for try := 0; try < 3 && !ok && ctx.Err() == nil; try++ {
							ok, _ = s.CrashAt(ctx, row.role, point, "", 45*time.Second) // what was not reached fails below
						}
						mu.Lock()
						reached[fmt.Sprintf("%s at %s", row.role, point)] = ok
						mu.Unlock()
					}
				})
			}
			all.Wait()
			return nil, ctx.Err()
		},
	})
	require.NoError(t, err)
	requirePassed(t, report)
	for name, ok := range reached {
		require.True(t, ok, name)
	}
	require.Len(t, reached, len(allPoints()))
}

// row are points of one role, one after the other.
type row struct {
	role   string
	points []crashpoint.Point
}

// rows are gone through side by side. A consumer that died joins its group again
// before the next point, which takes seconds, so its points are two rows.
func rows() []row {
	var out []row
	for role, points := range pointsOf {
		if role == demo.RoleConsumer {
			out = append(out, row{role, points[:3]})
			points = points[3:]
		}
		out = append(out, row{role, points})
	}
	return out
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
