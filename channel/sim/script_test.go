package sim_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

func TestParseFaults(t *testing.T) {
	t.Parallel()
	faults, err := sim.ParseFaults("lost_answer, slow@2:3s,declined@*", 1)
	require.NoError(t, err)
	require.Equal(t, []sim.Fault{
		{Kind: sim.LostAnswer, Send: 1, For: time.Second},
		{Kind: sim.Slow, Send: 2, For: 3 * time.Second},
		{Kind: sim.Declined, Send: 0, For: time.Second},
	}, faults)
	for _, bad := range []string{"", "nonsense", "slow:", "slow:x", "slow:-1s", "slow@0", "slow@x", "slow@", "slow,,slow"} {
		_, err := sim.ParseFaults(bad, 1)
		require.Error(t, err, bad)
	}
}

func TestFaultsByAmount(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.AmountFaults = true
	b := setup(t, behaviour)
	want := map[int64]payment.Class{
		1900: payment.ClassSucceeded, 1902: payment.ClassDeclined, 1903: payment.ClassRefused,
		1904: payment.ClassMismatched, 1911: payment.ClassAccountRefused, 1931: payment.ClassUnknown,
	}
	for amount, class := range want {
		r := request("")
		r.Amount = amount
		require.Equal(t, class.String(), b.submit(r, timeout).Class.String(), amount)
	}
	require.NoError(t, b.server.SetBehaviour(sim.DefaultBehaviour()))
	r := request("")
	r.Amount = 1902
	require.Equal(t, payment.ClassSucceeded, b.submit(r, timeout).Class, "only where it is switched on")
	for amount := range int64(100) {
		kind := sim.AmountFault(amount)
		require.True(t, kind == "" || slices.Contains(sim.Kinds(), kind))
	}
}

// TestFaultsByRate: about the share that was asked for, and the same ones again
// for the same seed.
func TestFaultsByRate(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.Rates, behaviour.Seed = map[sim.Kind]float64{sim.Declined: 0.3}, 7
	requests := make([]channel.Request, 300)
	for i := range requests {
		requests[i] = request("")
	}
	run := func(behaviour sim.Behaviour) (classes []payment.Class, declined int) {
		b := setup(t, behaviour)
		for _, r := range requests {
			class := b.submit(r, timeout).Class
			classes = append(classes, class)
			if class == payment.ClassDeclined {
				declined++
			}
		}
		return classes, declined
	}
	first, declined := run(behaviour)
	again, _ := run(behaviour)
	require.Equal(t, first, again)
	require.InDelta(t, 0.3*float64(len(requests)), float64(declined), 50)
	behaviour.Seed = 8
	other, _ := run(behaviour)
	require.NotEqual(t, first, other)
}

func TestBehaviourValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, sim.DefaultBehaviour().Validate())
	for _, change := range []func(b *sim.Behaviour){
		func(b *sim.Behaviour) { b.Latency = -1 },
		func(b *sim.Behaviour) { b.Latency, b.LongestExecution = time.Hour, time.Minute },
		func(b *sim.Behaviour) { b.Rates = map[sim.Kind]float64{"nonsense": 0} },
		func(b *sim.Behaviour) { b.Rates = map[sim.Kind]float64{sim.Slow: math.NaN()} },
	} {
		behaviour := sim.DefaultBehaviour()
		change(&behaviour)
		require.Error(t, behaviour.Validate())
		_, err := sim.NewServer("", behaviour)
		require.Error(t, err)
	}
}

// TestEveryBehaviourHasASoundRecord over all switches.
func TestEveryBehaviourHasASoundRecord(t *testing.T) {
	t.Parallel()
	for bits := range 32 {
		b := sim.Behaviour{
			IdempotentSubmit: bits&1 != 0, PinsFailures: bits&2 != 0, Query: bits&4 != 0,
			NotFoundIsProof: bits&8 != 0, ThrottleNotApplied: bits&16 != 0,
			KeyMemory: time.Hour, VisibilityLag: time.Second, QueryReach: time.Hour,
		}
		require.NoError(t, b.Capabilities("sim").Validate())
	}
	c := sim.DefaultBehaviour().Capabilities("sim")
	require.Equal(t, channel.Immediate, c.VisibilityLag)
	require.Equal(t, channel.Forever, c.QueryReach)
	require.Equal(t, 24*time.Hour, c.KeyMemory)
}

func TestBehaviourJSON(t *testing.T) {
	t.Parallel()
	b := sim.DefaultBehaviour()
	b.Latency, b.Rates = 50*time.Millisecond, map[sim.Kind]float64{sim.Slow: 0.5}
	text, err := json.Marshal(b)
	require.NoError(t, err)
	require.Contains(t, string(text), `"latency":"50ms"`)
	var again sim.Behaviour
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, b, again)
}
