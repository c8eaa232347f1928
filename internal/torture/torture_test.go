package torture

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
)

// seedEnv gives the short run another seed.
const seedEnv = "SETTLEONCE_TEST_TORTURE_SEED"

// patience is how long a run may take to settle, on a machine that does much beside it.
const patience = 10 * time.Minute

// A short run of everything: every fault, several channels. `make torture` runs
// longer ones.
func TestTorture_ShortRun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a whole system; left out by -short")
	}
	seed := uint64(7)
	if text, wanted := os.LookupEnv(seedEnv); wanted {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedEnv+" is no number")
	}
	report, err := Run(t.Context(), Config{
		Fleet: fleet.Config{Binary: program.Path(t), Log: zerolog.Nop()}, Payments: 500, Seed: seed, Say: func(what string) { t.Log(what) },
		Patience: patience,
	})
	require.NoError(t, err)
	requirePassed(t, report.Report)
	require.GreaterOrEqual(t, len(report.Channels), fewestChannels)
	require.Len(t, report.Counts.Channels, len(report.Channels))
	for _, c := range report.Counts.Channels {
		require.NotZero(t, c.Charges, c.Channel)
	}
	for _, fault := range Faults() {
		require.NotZero(t, report.Struck[fault], fault)
	}
	require.Zero(t, report.Requests["500"])
	require.Greater(t, report.Counts.Told, 50)
	require.NotZero(t, report.Counts.Callbacks)
	require.NotNil(t, report.Counts.Downstream)
	require.Greater(t, report.Counts.Downstream.Applied, 500)
	require.NotZero(t, report.Effects[demo.RoleDownstream+": "+eventsAgain])
	require.NotZero(t, report.Counts.CallbacksRefused)
	require.NotZero(t, report.Counts.Forged)
	require.NotZero(t, report.Counts.Posed)
	require.Equal(t, registered(seed), report.Counts.ShutOut > 0)
	require.Equal(t, 1, report.Effects[rolesRefused])
	require.GreaterOrEqual(t, report.Payments, 500)
	require.Greater(t, report.Counts.Keys, report.Payments)
	require.Greater(t, report.Counts.Records, demo.Records(report.Payments)*9/10)
	for _, u := range report.Unchecked {
		require.NotEqual(t, "G13", u.Guarantee, u.What+": "+u.Why)
	}
}

// The seed decides the channels: at least three, no two of a kind, and each kind
// in some seed of eight.
func TestMixes_FollowFromTheSeed(t *testing.T) {
	t.Parallel()
	first := map[string]bool{}
	for seed := range uint64(8) {
		of := mixesOf(seed)
		require.Equal(t, aboutMixes(of), aboutMixes(mixesOf(seed)))
		require.GreaterOrEqual(t, len(of), fewestChannels)
		first[of[0].name] = true
		names := map[string]bool{}
		for _, c := range channelsOf(of) {
			names[c.Name] = true
		}
		require.Len(t, names, len(of))
	}
	require.Len(t, first, len(mixes))
}

// The seed decides the schedule, which has every fault in it and lies inside the
// time.
func TestSchedule_FollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	usual := without(Faults(), Reset) // which is for the service downstream
	one := schedule(1, usual, time.Minute)
	require.Equal(t, one, schedule(1, usual, time.Minute))
	require.NotEqual(t, one, schedule(2, usual, time.Minute))
	require.True(t, slices.IsSortedFunc(one, func(a, b strike) int { return int(a.at - b.at) }))
	for _, f := range usual {
		require.True(t, slices.ContainsFunc(one, func(s strike) bool { return s.fault == f }), f)
	}
	for _, s := range one {
		require.Less(t, s.at, time.Minute)
		if s.fault == Crash {
			require.Contains(t, pointsOf[s.role], s.point)
		}
	}
	crashes := map[crash]bool{}
	for _, s := range schedule(4, []Fault{Crash}, time.Minute) {
		crashes[crash{s.role, s.point}] = true
	}
	require.Len(t, crashes, len(allPoints()))
	only := schedule(3, []Fault{Replay}, time.Minute)
	require.False(t, slices.ContainsFunc(only, func(s strike) bool { return s.fault != Replay }))
}

func TestParseFaults(t *testing.T) {
	t.Parallel()
	all, err := ParseFaults("")
	require.NoError(t, err)
	require.Equal(t, Faults(), all)
	some, err := ParseFaults("kill, postgres")
	require.NoError(t, err)
	require.Equal(t, []Fault{Kill, Postgres}, some)
	_, err = ParseFaults("kill,earthquake")
	require.ErrorContains(t, err, "earthquake")
}

// Some channels of each run call back and some do not; only one that can be asked
// contradicts itself under its right signature.
func TestCallingBack_FollowsFromTheSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		silent := 0
		for _, c := range callingBack(seed, channelsOf(mixesOf(seed))) {
			if !c.CallsBack {
				silent++
				continue
			}
			behaviour := sim.DefaultBehaviour()
			require.NoError(t, json.Unmarshal([]byte(c.Behaviour), &behaviour))
			require.NoError(t, behaviour.Validate())
			require.NotZero(t, behaviour.Rates[sim.CallbackForged])
			require.Equal(t, behaviour.Query, behaviour.Rates[sim.CallbackOpposite] > 0, c.Name)
			require.Equal(t, behaviour.Query, behaviour.Rates[sim.CallbackWrongAmount] > 0, c.Name)
		}
		require.Positive(t, silent)
	}
}
