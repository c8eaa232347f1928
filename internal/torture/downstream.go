package torture

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/downstream"
	"github.com/settleonce/settleonce/internal/fleet"
)

// behind is the service behind the events: two processes with a database and a role of
// their own, and a network of their own, so that what is lost there is lost to nobody
// else.
type behind struct {
	fleet    *fleet.Fleet
	dsn      string // the direct way
	group    string
	topic    string
	env      []string
	losses   *losses
	postgres *proxy
	kafka    *proxy
}

// service is what the run knows of it.
func (t *tormentor) service() *demo.Downstream {
	return &demo.Downstream{
		Start: func(ctx context.Context, f *fleet.Fleet, number int, env []string) (*fleet.Child, error) {
			if t.behind == nil {
				var err error
				if t.behind, err = openBehind(ctx, f, t.cfg.Fleet.Prefix); err != nil {
					return nil, err
				}
			}
			return f.StartWorker(ctx, downstream.Name, number, slices.Concat(env, t.behind.env)...)
		},
		Left: func(ctx context.Context) (int64, error) { return t.behind.lag(ctx) },
		Look: func(ctx context.Context) (*check.Downstream, error) { return t.behind.look(ctx) },
	}
}

// openBehind makes the database, and the stretches of network.
func openBehind(ctx context.Context, f *fleet.Fleet, prefix string) (*behind, error) {
	b := &behind{fleet: f, group: prefix + downstream.Name, topic: prefix + downstream.Topic, losses: newLosses()}
	address, err := createDatabase(ctx, f.DSN())
	if err != nil {
		return nil, fmt.Errorf("make the database of the service downstream: %w", err)
	}
	b.dsn = address.String()
	if err := downstream.Migrate(ctx, b.dsn); err != nil {
		return nil, err
	}
	b.postgres, b.kafka = newPostgresProxy(b.losses), newKafkaProxy(b.losses)
	if b.env, err = lead(ctx, b.postgres, address, b.kafka, f.Brokers()); err != nil {
		return nil, err
	}
	return b, nil
}

// createDatabase makes a database and a role that owns it, on the server of dsn.
func createDatabase(ctx context.Context, dsn string) (*url.URL, error) {
	address, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	password := uuid.NewString()
	for _, sql := range []string{
		"CREATE ROLE " + downstream.Name + " LOGIN PASSWORD '" + password + "'", "CREATE DATABASE " + downstream.Name + " OWNER " + downstream.Name,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	address.User, address.Path = url.UserPassword(downstream.Name, password), "/"+downstream.Name
	return address, nil
}

// lag is how many records the group has not read, as its committed offsets tell.
func (b *behind) lag(ctx context.Context) (lag int64, err error) {
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ends, err := b.fleet.Client().EndOffsets(ctx, b.topic)
	if err != nil {
		return 0, err
	}
	committed, err := b.fleet.Client().CommittedOffsets(ctx, b.group, b.topic)
	if err != nil {
		return 0, err
	}
	for partition, end := range ends {
		lag += end - max(committed[partition], 0)
	}
	return lag, nil
}

// look reads what the service did.
func (b *behind) look(ctx context.Context) (*check.Downstream, error) {
	conn, err := pgx.Connect(ctx, b.dsn)
	if err != nil {
		return nil, fmt.Errorf("connect to the downstream database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	did, err := check.ReadDownstream(ctx, conn, downstream.Name)
	if err != nil {
		return nil, err
	}
	did.Topic = b.topic
	return did, nil
}

// stretch is the part of its network that a strike is meant for.
func (b *behind) stretch(s strike) *proxy {
	if s.fault == CutKafka {
		return b.kafka
	}
	return b.postgres
}

// mend makes its network whole. Nil is a service that is not there, as below.
func (b *behind) mend() {
	if b != nil {
		b.postgres.mend()
		b.kafka.mend()
	}
}

// leave takes its proxies away.
func (b *behind) leave() {
	if b != nil {
		_, _ = b.postgres.close(), b.kafka.close() // the ports are free either way
	}
}

// effects is what was lost there.
func (b *behind) effects() map[string]int {
	out := map[string]int{}
	if b != nil {
		for kind, n := range b.losses.counts() {
			out[downstreamPrefix+string(kind)] = n
		}
	}
	return out
}

// downstreamPrefix tells what was done to the service from what was done to workers.
const downstreamPrefix = "downstream: "

// downstreamFaults are what is done to the service, each at least once where it is
// wanted: its group is set back to the start, and to the middle.
var downstreamFaults = []Fault{Kill, Crash, Freeze, Clock, CutPostgres, CutKafka, CommitLost, AmbiguousCommit, Reset, Reset}

// downstreamPoints are the crash points that it passes.
var downstreamPoints = []crashpoint.Point{
	crashpoint.InboxMarked, crashpoint.InboxHandled, crashpoint.InboxAdvanced, crashpoint.InboxCommitted,
}

// everyDownstream is the mean time between two faults of the service.
const everyDownstream = 4 * time.Second

// plan is a whole schedule: what is done to workers, network, database and broker,
// and what is done to the service. The two are drawn apart, so that a seed breaks the
// same as it did before there was a service.
func plan(seed uint64, faults []Fault, length time.Duration) []strike {
	out := downstreamSchedule(seed, faults, length)
	if others := without(faults, Reset); len(others) > 0 {
		out = append(schedule(seed, others, length), out...)
	}
	slices.SortStableFunc(out, func(a, b strike) int { return cmp.Compare(a.at, b.at) })
	return out
}

func without(faults []Fault, one Fault) []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f == one })
}

// downstreamSchedule is what is done to the service, in four fifths of the time: it
// must still have something to do then.
func downstreamSchedule(seed uint64, faults []Fault, length time.Duration) (out []strike) {
	random := rand.New(rand.NewPCG(seed, 61))
	first := slices.DeleteFunc(slices.Clone(downstreamFaults), func(f Fault) bool { return !slices.Contains(faults, f) })
	if len(first) == 0 {
		return nil
	}
	points := slices.Clone(downstreamPoints)
	random.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	done := map[Fault]int{}
	for i := range max(len(first), int(length/everyDownstream)) {
		fault := first[i%len(first)]
		s := choose(random, fault, length*4/5)
		s.role, s.turn = demo.RoleDownstream, 1+s.turn%5
		if fault == Reset { // there is more behind the group then
			s.at = length*2/5 + s.at/2
		}
		s.point, s.half = points[done[Crash]%len(points)], done[Reset]%2 == 1
		done[fault]++
		out = append(out, s)
	}
	return out
}

// lossesOf is where messages of a strike are lost, and which it can lose there: the
// service commits nothing by single statements.
func (t *tormentor) lossesOf(s strike) (*losses, []loss) {
	if s.role != demo.RoleDownstream {
		return t.losses, map[Fault][]loss{
			AmbiguousProduce: {produceAnswer}, AmbiguousCommit: {offsetAnswer}, CommitLost: {commitRequest, commitAnswer, statementAnswer},
		}[s.fault]
	}
	return t.behind.losses, map[Fault][]loss{AmbiguousCommit: {offsetAnswer}, CommitLost: {commitRequest, commitAnswer}}[s.fault]
}
