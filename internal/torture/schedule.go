package torture

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
)

// Fault names a way to break things.
type Fault string

// The faults.
const (
	Kill         Fault = "kill"          // SIGKILL of a worker
	Crash        Fault = "crash"         // SIGKILL of a worker exactly between two steps
	Freeze       Fault = "freeze"        // SIGSTOP of a worker past its lease, then SIGCONT
	Kafka        Fault = "kafka"         // the broker is away; Apache Kafka by SIGKILL
	Postgres     Fault = "postgres"      // the database breaks off and recovers
	Backends     Fault = "backends"      // sessions of the database are terminated
	CutPostgres  Fault = "cut-postgres"  // no network between workers and database
	SlowPostgres Fault = "slow-postgres" // a slow network between workers and database
	CutChannel   Fault = "cut-channel"   // no network between workers and channel
	SlowChannel  Fault = "slow-channel"  // a slow network between workers and channel
	Channel      Fault = "channel"       // the channel misbehaves in one of its ways
	Replay       Fault = "replay"        // a slice of the commands is published again
)

// Faults lists all of them.
func Faults() []Fault {
	return []Fault{
		Kill, Crash, Freeze, Kafka, Postgres, Backends, CutPostgres, SlowPostgres, CutChannel, SlowChannel, Channel, Replay,
	}
}

// ParseFaults reads a list of names, separated by commas; an empty one means all.
func ParseFaults(text string) ([]Fault, error) {
	if text == "" {
		return Faults(), nil
	}
	var out []Fault
	for name := range strings.SplitSeq(text, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults(), f) {
			return nil, fmt.Errorf("there is no fault %q: use some of %v", name, Faults())
		}
		out = append(out, f)
	}
	return out, nil
}

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
	},
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
const every = 900 * time.Millisecond

// schedule is what is broken when: each of the faults at least once, and more as
// time allows. The same seed gives the same one.
func schedule(seed uint64, faults []Fault, length time.Duration) []strike {
	random := rand.New(rand.NewPCG(seed, 7))
	n := max(len(faults), int(length/every))
	crashes := allPoints()
	random.Shuffle(len(crashes), func(i, j int) { crashes[i], crashes[j] = crashes[j], crashes[i] })
	crashed := 0
	var out []strike
	for i := range n {
		fault := faults[i%len(faults)]
		if i >= len(faults) {
			fault = faults[random.IntN(len(faults))]
		}
		s := choose(random, fault, length)
		if fault == Crash { // each point once, before any of them again
			s.role, s.point = crashes[crashed%len(crashes)].role, crashes[crashed%len(crashes)].point
			crashed++
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return out
}

func choose(random *rand.Rand, fault Fault, length time.Duration) strike {
	roles := []string{demo.RoleConsumer, demo.RoleOutbox, demo.RoleReconciler}
	s := strike{
		at: time.Duration(random.Int64N(int64(length))), fault: fault, role: roles[random.IntN(len(roles))],
		kind: kinds[random.IntN(len(kinds))], turn: 1 + random.IntN(20), channel: random.IntN(1 << 16),
		lasts: 300*time.Millisecond + time.Duration(random.Int64N(int64(1500*time.Millisecond))),
	}
	if fault == Freeze {
		s.lasts += lease // past it, whichever it is
	}
	return s
}
