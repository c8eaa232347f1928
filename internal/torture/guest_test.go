package torture

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
)

// Each guest has a schedule of its own, with each of its faults, and its groups set back
// to the start and to the middle; what is done to the others stays as it is without it.
func TestPlan_LeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	for _, o := range []ordeal{downstreamOrdeal, shopOrdeal} {
		other := downstreamOrdeal
		if o.role == other.role {
			other = shopOrdeal
		}
		var others []strike
		done, halves := map[Fault]int{}, map[bool]int{}
		for _, s := range plan(7, Faults(), time.Minute, o, other) {
			if s.role != o.role {
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
		require.Equal(t, plan(7, Faults(), time.Minute, other), others)
		for _, f := range o.faults {
			require.NotZero(t, done[f], f)
		}
		require.Positive(t, halves[true])
		require.Positive(t, halves[false])
		one := o.schedule(7, Faults(), time.Minute)
		require.Equal(t, one, o.schedule(7, Faults(), time.Minute))
		require.NotEqual(t, one, o.schedule(8, Faults(), time.Minute))
	}
	require.Equal(t, schedule(7, without(Faults(), Reset), time.Minute), plan(7, Faults(), time.Minute))
}

// What grows with the run is done to the shop as often in a long run as in a short one.
func TestOrdeal_ResetsTheShopTwice(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{20 * time.Second, 10 * time.Minute} {
		resets := 0
		all := shopOrdeal.schedule(7, Faults(), length)
		for _, s := range all {
			if s.fault == Reset {
				resets++
			}
		}
		require.Equal(t, 2, resets)
		require.Len(t, all, max(len(shopOrdeal.faults), int(length/everyGuest)))
	}
	require.Len(t, shopOrdeal.schedule(7, []Fault{Reset}, time.Minute), 2)
}

// Only faults that are wanted are done to a guest, and it passes each of its crash points
// in turn.
func TestPlan_KeepsToTheFaults(t *testing.T) {
	t.Parallel()
	require.Empty(t, downstreamOrdeal.schedule(1, []Fault{Channel, Replay}, time.Minute))
	for _, s := range plan(1, []Fault{Reset}, time.Minute, downstreamOrdeal, shopOrdeal) {
		require.Equal(t, Reset, s.fault)
	}
	points := map[crashpoint.Point]bool{}
	for _, s := range downstreamOrdeal.schedule(2, []Fault{Crash}, 20*time.Second) {
		points[s.point] = true
	}
	require.Len(t, points, len(downstreamOrdeal.points))
}

// What can be lost of a strike is what the one it is meant for does.
func TestLossesOf(t *testing.T) {
	t.Parallel()
	tormentor := newTormentor(Config{Shop: "shop"}, mixesOf(1))
	at, kinds := tormentor.lossesOf(strike{fault: CommitLost, role: demo.RoleOutbox})
	require.Same(t, tormentor.losses, at)
	require.Len(t, kinds, 3)
	at, kinds = tormentor.lossesOf(strike{fault: CommitLost, role: demo.RoleDownstream})
	require.Same(t, tormentor.guests[demo.RoleDownstream].losses, at)
	require.Equal(t, []loss{commitRequest, commitAnswer}, kinds)
	at, kinds = tormentor.lossesOf(strike{fault: CommitLost, role: demo.RoleShop})
	require.Same(t, tormentor.guests[demo.RoleShop].losses, at)
	require.Len(t, kinds, 3)
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
