package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
)

// The service downstream has a schedule of its own, with each of its faults, and its
// group set back to the start and to the middle; what is done to the others stays as it
// is without it.
func TestPlan_LeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	usual := schedule(7, without(Faults(), Reset), time.Minute)
	var others []strike
	done, halves := map[Fault]int{}, map[bool]int{}
	for _, s := range plan(7, Faults(), time.Minute) {
		if s.role != demo.RoleDownstream {
			others = append(others, s)
			continue
		}
		require.Less(t, s.at, time.Minute*4/5+1)
		done[s.fault]++
		if s.fault == Reset {
			halves[s.half]++
			require.GreaterOrEqual(t, s.at, time.Minute*2/5)
		}
	}
	require.Equal(t, usual, others)
	for _, f := range downstreamFaults {
		require.NotZero(t, done[f], f)
	}
	require.Positive(t, halves[true])
	require.Positive(t, halves[false])
	one := downstreamSchedule(7, Faults(), time.Minute)
	require.Equal(t, one, downstreamSchedule(7, Faults(), time.Minute))
	require.NotEqual(t, one, downstreamSchedule(8, Faults(), time.Minute))
}

// Only faults that are wanted are done to it, and it passes each of its crash points in
// turn.
func TestPlan_KeepsToTheFaults(t *testing.T) {
	t.Parallel()
	require.Empty(t, downstreamSchedule(1, []Fault{Channel, Replay}, time.Minute))
	for _, s := range plan(1, []Fault{Reset}, time.Minute) {
		require.Equal(t, Reset, s.fault)
	}
	points := map[crashpoint.Point]bool{}
	for _, s := range downstreamSchedule(2, []Fault{Crash}, 20*time.Second) {
		points[s.point] = true
	}
	require.Len(t, points, len(downstreamPoints))
}

// What can be lost of a strike is what the service does.
func TestLossesOf(t *testing.T) {
	t.Parallel()
	tormentor := &tormentor{losses: newLosses(), behind: &behind{losses: newLosses()}}
	at, kinds := tormentor.lossesOf(strike{fault: CommitLost, role: demo.RoleOutbox})
	require.Same(t, tormentor.losses, at)
	require.Len(t, kinds, 3)
	at, kinds = tormentor.lossesOf(strike{fault: CommitLost, role: demo.RoleDownstream})
	require.Same(t, tormentor.behind.losses, at)
	require.Equal(t, []loss{commitRequest, commitAnswer}, kinds)
}

// What waited for its turn until long after the last payment is left out, but for the
// first of its fault: a slow machine's run has each of them too.
func TestAlone_LeavesOutWhatIsLate(t *testing.T) {
	t.Parallel()
	tormentor := &tormentor{scene: &demo.Scene{Length: time.Second}, begun: time.Now().Add(-time.Hour), struck: map[Fault]int{Kafka: 1}}
	done := 0
	do := func() error { done++; return nil }
	require.NoError(t, tormentor.alone(Backends, do))
	require.ErrorIs(t, tormentor.alone(Kafka, do), errLate)
	require.Equal(t, 1, done)
	tormentor.begun = time.Now()
	require.NoError(t, tormentor.alone(Kafka, do))
}
