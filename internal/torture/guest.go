package torture

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
)

// guest is a service beside the workers, as far as it is broken: it has a network of its
// own, so that what is lost there is lost to nobody else.
type guest struct {
	role     string
	groups   []group
	losses   *losses
	postgres *proxy
	kafka    *proxy
}

// group is a consumer group of a guest's, and a topic that it reads, without prefix.
type group struct{ name, topic string }

func newGuest(role string, groups ...group) *guest {
	l := newLosses()
	return &guest{role: role, groups: groups, losses: l, postgres: newPostgresProxy(l), kafka: newKafkaProxy(l)}
}

// lead puts the guest's network before its database and the brokers, and returns the
// addresses that lead there.
func (g *guest) lead(ctx context.Context, dsn *url.URL, brokers []string) (string, []string, error) {
	return lead(ctx, g.postgres, dsn, g.kafka, brokers)
}

// stretch is the part of its network that a strike is meant for.
func (g *guest) stretch(s strike) *proxy {
	if s.fault == CutKafka {
		return g.kafka
	}
	return g.postgres
}

// mend makes its network whole.
func (g *guest) mend() {
	g.postgres.mend()
	g.kafka.mend()
}

// leave takes its proxies away.
func (g *guest) leave() {
	_, _ = g.postgres.close(), g.kafka.close() // the ports are free either way
}

// note is the name of what came of a fault there, which tells it from what came of it
// elsewhere.
func (g *guest) note(what string) string { return g.role + ": " + what }

// ordeal is what is done to a guest.
type ordeal struct {
	role string
	// stream is that of its random numbers: a seed breaks the same as it did before there
	// was the guest.
	stream uint64
	// faults are done each at least once, where they are wanted: its groups are set back
	// to the start, and to the middle.
	faults []Fault
	// once are not done again in a longer run, for what they ask for grows with the run.
	once []Fault
	// points are the crash points that it passes.
	points []crashpoint.Point
}

var (
	downstreamOrdeal = ordeal{
		role: demo.RoleDownstream, stream: 61,
		faults: []Fault{Kill, Crash, Freeze, Clock, CutPostgres, CutKafka, CommitLost, AmbiguousCommit, Reset, Reset},
		points: []crashpoint.Point{crashpoint.InboxMarked, crashpoint.InboxHandled, crashpoint.InboxAdvanced, crashpoint.InboxCommitted},
	}
	shopOrdeal = ordeal{
		role: demo.RoleShop, stream: 67,
		faults: []Fault{Kill, Freeze, CutPostgres, CutKafka, CommitLost, AmbiguousProduce, AmbiguousCommit, Reset, Reset},
		once:   []Fault{Reset}, // events and replies of everybody are delivered again
	}
)

// everyGuest is the mean time between two faults of a guest.
const everyGuest = 4 * time.Second

// plan is a whole schedule: what is done to workers, network, database and broker, and
// what is done to each of the guests.
func plan(seed uint64, faults []Fault, length time.Duration, guests ...ordeal) (out []strike) {
	if others := without(faults, Reset); len(others) > 0 {
		out = schedule(seed, others, length)
	}
	for i := range guests {
		out = append(out, guests[i].schedule(seed, faults, length)...)
	}
	slices.SortStableFunc(out, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return out
}

func without(faults []Fault, one Fault) []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f == one })
}

// schedule is what is done to the guest, in four fifths of the time: it must still have
// something to do then.
func (o *ordeal) schedule(seed uint64, faults []Fault, length time.Duration) (out []strike) {
	random := rand.New(rand.NewPCG(seed, o.stream))
	first := slices.DeleteFunc(slices.Clone(o.faults), func(f Fault) bool { return !slices.Contains(faults, f) })
	if len(first) == 0 {
		return nil
	}
	again := slices.DeleteFunc(slices.Clone(first), func(f Fault) bool { return slices.Contains(o.once, f) })
	if n := int(length/everyGuest) - len(first); n > 0 && len(again) > 0 {
		first = append(first, slices.Repeat(again, n/len(again)+1)[:n]...)
	}
	points := slices.Clone(o.points)
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	done := map[Fault]int{}
	for _, fault := range first {
		s := choose(random, fault, length*4/5)
		s.role, s.turn = o.role, 1+s.turn%5
		switch fault { //nolint:exhaustive // the others need no more
		case Reset: // there is more behind the group then
			s.at, s.half = length*2/5+s.at/2, done[Reset]%2 == 1
		case Crash:
			s.point = points[done[Crash]%len(points)]
		}
		done[fault]++
		out = append(out, s)
	}
	return out
}

// lossesOf is where messages of a strike are lost, and which it can lose there: the
// service downstream commits nothing by single statements.
func (t *tormentor) lossesOf(s strike) (*losses, []loss) {
	kinds := map[Fault][]loss{
		AmbiguousProduce: {produceAnswer}, AmbiguousCommit: {offsetAnswer}, CommitLost: {commitRequest, commitAnswer, statementAnswer},
	}[s.fault]
	g, ok := t.guests[s.role]
	if !ok {
		return t.losses, kinds
	}
	if s.role == demo.RoleDownstream {
		kinds = slices.DeleteFunc(kinds, func(l loss) bool { return l == statementAnswer })
	}
	return g.losses, kinds
}
