package torture

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/clockjump"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
)

// strike is one fault of the schedule.
type strike struct {
	at    time.Duration
	fault Fault
	role  string
	point crashpoint.Point
	turn  int // of the point
	kind  sim.Kind
	// channel chooses one of the run's channels, whatever their number.
	channel int
	lasts   time.Duration
	// silent cuts a network by letting nothing through, not by resets.
	silent bool
	// jump is that of a clock.
	jump clockjump.Jump
	// half sets groups back to the middle of the time so far, not to the start.
	half bool
}

// pointsOf are the crash points that a role passes.
var pointsOf = map[string][]crashpoint.Point{
	demo.RoleConsumer: {
		crashpoint.ClaimStart, crashpoint.ClaimCommitted, crashpoint.ClaimFinished, crashpoint.SendStart, crashpoint.SendDone,
		crashpoint.SettleStart, crashpoint.SettleDone,
	},
	demo.RoleOutbox: {crashpoint.RelayRead, crashpoint.RelayPublished, crashpoint.RelayMarked},
	demo.RoleReconciler: {
		crashpoint.WakeTaken, crashpoint.CheckPicked, crashpoint.QueryDone, crashpoint.ResumeStored, crashpoint.SettleStart, crashpoint.SettleDone,
		crashpoint.CallbackPicked, crashpoint.CallbackMarked,
	},
	demo.RoleGateway: {crashpoint.EdgeStart, crashpoint.EdgePublished, crashpoint.EdgeJudged, crashpoint.CallbackStored},
}

type crash struct {
	role  string
	point crashpoint.Point
}

func allPoints() (out []crash) {
	for _, role := range slices.Sorted(maps.Keys(pointsOf)) {
		for _, point := range pointsOf[role] {
			out = append(out, crash{role, point})
		}
	}
	return out
}

// kinds are the channel's ways that break no promise of its capabilities, and
// change no outcome.
var kinds = []sim.Kind{
	sim.LostAnswer, sim.Hangup, sim.ErrorAfter, sim.Slow, sim.Garbage, sim.Truncated, sim.WrongKey, sim.NoEcho, sim.AccountRefused,
	sim.Throttled, sim.ErrorBefore, sim.ResetBefore, sim.InProgress, sim.Redirect, sim.Blackhole, sim.Late, sim.LateSettlement,
	sim.QueryError, sim.QueryLost, sim.QuerySlow, sim.QueryGarbage, sim.QueryThrottled, sim.QueryAccountRefused,
}

// every is the mean time between two faults.
const every = 2 * time.Second

// schedule is what is broken when: each of the faults at least once, and more as
// time allows. The same seed gives the same one.
func schedule(seed uint64, faults []Fault, length time.Duration) []strike {
	random := rand.New(rand.NewPCG(seed, 7))
	first := atLeast(faults)
	n := max(len(first), int(length/every))
	crashes := allPoints()
	random.Shuffle(len(crashes), func(i, j int) { crashes[i], crashes[j] = crashes[j], crashes[i] })
	var out []strike
	done := map[Fault]int{}
	for i := range n {
		fault := first[i%len(first)]
		if i >= len(first) {
			fault = faults[random.IntN(len(faults))]
		}
		s := choose(random, fault, length)
		switch turn := done[fault]; fault { //nolint:exhaustive // the others may be at any role
		case Crash: // each point once, before any of them again
			c := crashes[turn%len(crashes)]
			s.role, s.point = c.role, c.point
		case Freeze, Clock: // each role in turn
			s.role = rolesOf(fault)[turn%len(rolesOf(fault))]
		}
		done[fault]++
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return out
}

// atLeast are the faults that every schedule has: those that are another thing for
// each role have a turn for each.
func atLeast(faults []Fault) []Fault {
	out := slices.Clone(faults)
	for _, f := range faults {
		if f == Freeze || f == Clock {
			out = append(out, slices.Repeat([]Fault{f}, len(rolesOf(f))-1)...)
		}
	}
	return out
}

// rolesOf are those that a fault may strike. The clock of a gateway is its host's: it
// stamps its records like any producer, which nobody of ours can mend.
func rolesOf(fault Fault) []string {
	roles := []string{demo.RoleOutbox, demo.RoleConsumer, demo.RoleReconciler}
	if fault == Clock {
		return roles
	}
	return append(roles, demo.RoleGateway)
}

func choose(random *rand.Rand, fault Fault, length time.Duration) strike {
	roles := rolesOf(fault)
	s := strike{
		at: time.Duration(random.Int64N(int64(length))), fault: fault, role: roles[random.IntN(len(roles))],
		kind: kinds[random.IntN(len(kinds))], turn: 1 + random.IntN(20), channel: random.IntN(1 << 16),
		lasts:  300*time.Millisecond + time.Duration(random.Int64N(int64(1500*time.Millisecond))),
		silent: random.IntN(2) == 0, jump: clockjump.Jump{By: jumps[random.IntN(len(jumps))], After: clockAfter},
	}
	if fault == Freeze {
		s.lasts += lease // past it, whichever it is
	}
	return s
}

// jumps are those of a badly kept clock: past a lease, past an hour, which is how
// far ahead Apache Kafka lets a record be, and past everything.
var jumps = []time.Duration{
	20 * time.Second, -20 * time.Second, 5 * time.Minute, -5 * time.Minute, 3 * time.Hour, -3 * time.Hour, 400 * 24 * time.Hour, -400 * 24 * time.Hour,
}

// clockAfter is how long a process has run when its clock jumps: then it is at work.
const clockAfter = 2 * time.Second
