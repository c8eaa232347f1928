// Package demo shows the main job and proves it: it runs the whole system as
// processes of their own, publishes thousands of payment commands with
// everything that goes wrong among them, kills workers in the middle, waits until
// all is settled, and then has it checked, from the topics, the tables and the
// channel's own ledger, whether every guarantee held.
//
// stories say what happens to payments; a script is made of them. The player
// publishes it, the crew is killed, the tail reads along. The judge knows the
// script's expectations and the evidence, and asks no worker. Callers that must be
// kept apart come beside the stories: apart.go plans what they do and what forgers
// and impostors try, drill.go does to them what an operator would.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Config is one demo.
type Config struct {
	Fleet fleet.Config
	// Commands is about how many records are published. Defaults to 4000, or to none
	// where Payments is set.
	Commands int
	// Payments is how many payments there are at least that come by themselves and ought
	// to be claimed; repeats, second keys, conflicts and nonsense come on top. Defaults
	// to what Commands comes to.
	Payments int
	// Seed makes keys, faults and kills; 0 takes a random one.
	Seed uint64
	// Each is the processes per role. Defaults to 2.
	Each int
	// Kill are kills at given moments; Kills are so many more at seeded moments.
	// Without either, one worker of each role is killed in the middle; a negative
	// Kills kills none.
	Kill  []Kill
	Kills int
	// KillSim kills the channel simulator too; its ledger survives.
	KillSim bool
	// Patience is how long, after the script's length, everything may take to settle, counted from when nothing
	// is broken any more, which may last as long itself. Defaults to 2 minutes, and 5 s for each of Kills.
	Patience time.Duration
	// Keep keeps data and logs. They are kept in any case when a guarantee broke.
	Keep bool
	// Progress is told what is going on, several times a second; nil for nobody.
	Progress func(Progress)
	// Say is told what is being done, in a few words; nil for nobody.
	Say func(what string)

	// Length is how long publishing takes. Defaults to a time that follows from
	// Commands.
	Length time.Duration
	// Channels are what payments are spread over. Defaults to one at its best.
	Channels []Channel
	// Workers gives every worker further settings, as "NAME=value"; nil gives none.
	Workers func(f *fleet.Fleet) ([]string, error)
	// EdgeShare is how many of a hundred payments come over HTTP instead of Kafka, to
	// Each gateways. Defaults to none; then no gateway is started.
	EdgeShare int
	// Gateways puts something before the gateways, and returns the addresses that lead
	// there; nil puts nothing.
	Gateways func(ctx context.Context, urls []string) ([]string, error)
	// Disturb breaks things while the script is played, and returns what it found
	// once everything is whole again. With it, processes may end by themselves, and
	// broker and database may be away for a while. Nil disturbs nothing.
	Disturb func(ctx context.Context, s *Scene) ([]check.Violation, error)

	// Apart adds callers that must be kept apart (G12): one that signs and one with topics
	// of its own, forgers, and impostors at the edge.
	Apart bool
	// Registered keeps the callers in the table, where one is shut out, one is moved and
	// one is added in the middle. It needs Apart.
	Registered bool

	// Downstream is a service behind the events. Defaults to none.
	Downstream *Downstream
	// Shop is a service before the commands and behind the events. Defaults to none.
	Shop *Shop

	// extra are told beside the stories: together with a channel's behaviour, tests
	// lie with them, to see the verdict fail on a real run.
	extra []story
}

// Progress is where a demo stands, as far as the topics tell.
type Progress struct {
	Phase   string
	Elapsed time.Duration
	// Published are records that Kafka has acknowledged, of so many.
	Published, Of int
	// Ended are payments with an end (or in review), of so many.
	Ended, Payments                                  int
	Succeeded, Declined, Rejected, InReview, Unknown int
	Replies, DeadLetters                             int
	Killed                                           int
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if c.Commands == 0 && c.Payments == 0 {
		c.Commands = 4000
	}
	c.Each = cmp.Or(c.Each, 2)
	c.Patience = cmp.Or(c.Patience, 2*time.Minute+time.Duration(max(0, c.Kills))*5*time.Second)
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1e6) + 1
	}
	if len(c.Channels) == 0 {
		c.Channels = []Channel{{Channel: fleet.Channel{Name: "sim", Behaviour: Behaviour(""), Promises: Promises(nil)}, CallsBack: c.EdgeShare > 0}}
	}
	if c.Progress == nil {
		c.Progress = func(Progress) {}
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c Config) Validate() error {
	switch {
	case (c.Payments == 0 && c.Commands < 100) || c.Commands > 500_000:
		return errors.New("set the number of commands between 100 and 500000")
	case c.Payments != 0 && (c.Payments < 100 || c.Payments > 300_000):
		return errors.New("set the number of payments between 100 and 300000")
	case c.Each < 1 || c.Each > 8:
		return errors.New("set the number of processes per role between 1 and 8")
	case c.Kills > 200:
		return errors.New("set the number of kills to at most 200")
	case c.EdgeShare < 0 || c.EdgeShare > 100:
		return errors.New("set the share of payments over HTTP between 0 and 100")
	case c.Registered && !c.Apart:
		return errors.New("set the callers apart to keep them in the table")
	case c.Patience < time.Second:
		return errors.New("set the patience to at least 1s")
	}
	return nil
}

const (
	// queryShare and queryFloor are the retry budget in the demo.
	queryShare = 0.2
	queryFloor = 25.0
	// latency of the channel.
	latency = 15 * time.Millisecond
)

// workerEnv are the settings of the workers: those of production, with leases and
// timeouts that fit into two minutes.
func workerEnv() []string {
	return []string{
		"SETTLEONCE_LEASE=6s", "SETTLEONCE_SESSION_TIMEOUT=6s", "SETTLEONCE_RELAY_LEASE=3s",
		"SETTLEONCE_DRAIN_TIMEOUT=4s", "SETTLEONCE_POSTGRES_POOL_SIZE=14", "SETTLEONCE_QUERY_FLOOR=" + strconv.Itoa(int(queryFloor)),
		"SETTLEONCE_QUERY_SHARE=" + strconv.FormatFloat(queryShare, 'f', -1, 64),
	}
}

// Run starts everything, plays the script, and judges. An error says that the
// demo could not be run to its end; a broken guarantee is in the report.
func Run(ctx context.Context, cfg Config) (report Report, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	begun := time.Now()
	for _, c := range cfg.Channels {
		if c.CallsBack && c.Promises["callback-secret"] == "" {
			c.Promises = maps.Clone(c.Promises)
			c.Promises["callback-secret"] = callbackSecret(c.Name)
		}
		cfg.Fleet.Channels = append(cfg.Fleet.Channels, c.Channel)
	}
	cfg.Fleet.Say = cfg.Say
	cfg.Fleet.Env = append(slices.Clone(cfg.Fleet.Env), rosterOf(&cfg).everywhere()...)
	f, err := fleet.Start(ctx, cfg.Fleet)
	defer func() {
		if cfg.Keep || ctx.Err() == nil && (err != nil || !report.Passed()) {
			report.Kept = f.Keep()
		}
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if stopErr := f.Stop(stopping); err == nil && len(report.Crashed) == 0 && cfg.Disturb == nil {
			err = stopErr
		}
		report.Seconds = time.Since(begun).Seconds()
	}()
	if err != nil {
		return Report{}, err
	}
	return runOn(ctx, f, cfg)
}

// runOn is the demo on a fleet that has no workers yet.
func runOn(ctx context.Context, f *fleet.Fleet, cfg Config) (Report, error) {
	team := newCrew(cfg.Seed, cfg.Say)
	team.fleet = f
	team.lenient = cfg.Disturb != nil
	who := rosterOf(&cfg)
	if err := who.enrol(ctx, f, cfg.EdgeShare > 0); err != nil {
		return Report{}, err
	}
	env := append(workerEnv(), who.env()...)
	if cfg.Workers != nil {
		more, err := cfg.Workers(f)
		if err != nil {
			return Report{}, err
		}
		env = append(env, more...)
	}
	for _, s := range f.Sims() {
		team.add(RoleSim, s.Child)
	}
	cfg.Say(fmt.Sprintf("starting %d worker processes", cfg.Each*len(workerRoles)))
	for _, role := range workerRoles {
		for n := range cfg.Each {
			child, err := f.StartWorker(ctx, role, n+1, env...)
			if err != nil {
				return Report{}, err
			}
			team.add(role, child)
		}
	}
	upstream, err := openEdge(ctx, &cfg, team, who, env)
	if err != nil {
		return Report{}, err
	}
	if err := cfg.Downstream.open(ctx, &cfg, team, env); err != nil {
		return Report{}, err
	}
	if err := cfg.Shop.open(ctx, &cfg, team); err != nil {
		return Report{}, err
	}
	publisher, err := f.Client().NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = publisher.Close(context.WithoutCancel(ctx)) }()
	topics := payment.NewTopics(cfg.Fleet.Prefix).WithOwn(who.own)
	s := write(size{cfg.Commands, cfg.Payments}, cfg.Length, cfg.Seed, time.Now(), cfg.Channels, cfg.extra...)
	who.stage(s, &cfg, time.Now())
	r := &run{
		cfg: cfg, roster: who, fleet: f, crew: team, script: s, player: newPlayer(s, publisher, topics.Commands, f.Brokers()),
		tail: check.NewTail(f.Client(), topics), begun: time.Now(),
	}
	r.player.patient, r.player.clients = cfg.Disturb != nil, upstream
	who.join(r.player)
	return r.report(ctx)
}

// run is one demo under way.
type run struct {
	cfg    Config
	roster *roster
	fleet  *fleet.Fleet
	crew   *crew
	script *script
	player *player
	tail   *check.Tail
	begun  time.Time

	published time.Duration
	settled   time.Duration
	unsettled []string
	found     []check.Violation
}

func (r *run) report(ctx context.Context) (Report, error) {
	err := r.perform(ctx)
	r.player.clients.end()
	if err == nil {
		err = r.still(ctx)
	}
	if err != nil {
		return Report{}, err
	}
	// First, so that the topics have all that it applied.
	downstream, err := r.cfg.Downstream.look(ctx, len(r.unsettled) == 0)
	if err != nil {
		return Report{}, err
	}
	sold, err := r.cfg.Shop.check(ctx, len(r.unsettled) == 0)
	if err != nil {
		return Report{}, err
	}
	evidence, err := r.collect(ctx)
	if err != nil {
		return Report{}, err
	}
	tables, err := r.tables(ctx)
	if err != nil {
		return Report{}, err
	}
	report := Report{
		Disturbed: r.cfg.Disturb != nil,
		Broker:    cmp.Or(r.cfg.Fleet.Kafka, fleet.KafkaEmbedded), Seed: r.cfg.Seed, Processes: r.cfg.Each, Payments: r.script.sought,
		Unsettled: r.unsettled, PublishSeconds: r.published.Seconds(), SettleSeconds: max(0, r.settled-r.published).Seconds(),
		QueryBudget: fmt.Sprintf("%g %% of submissions + %g/s", queryShare*100, queryFloor),
	}
	if len(r.cfg.Channels) > 1 {
		report.QueryBudget += ", for each channel"
	}
	report.Killed, report.Crashed = r.crew.losses()
	rules := knownRules()
	rules.Limits = limits(r.cfg.Channels)
	rules.Told, report.Requests = r.player.clients.answers()
	rules.Lookups = lookups(r.cfg.Channels)
	rules.Expected, rules.Database, rules.Topics = r.script.expectations(), tables, &r.tail.Topics
	r.roster.tell(&rules)
	rules.Downstream = downstream
	report.Verdict = check.Judge(evidence, rules)
	if found := slices.Concat(r.found, sold); len(found) > 0 {
		report.Add(found)
	}
	return report, nil
}

// perform publishes, kills and waits.
func (r *run) perform(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, groupCtx := errgroup.WithContext(ctx)
	acting, done := context.WithCancelCause(groupCtx)
	group.Go(func() error { return ended(acting, r.player.play(acting)) })
	group.Go(func() error { return ended(acting, r.crew.execute(acting, planKills(&r.cfg, r.script.length))) })
	group.Go(func() error { return ended(acting, r.crew.supervise(acting)) })
	group.Go(func() error { return ended(acting, r.roster.perform(acting, r)) })
	if r.cfg.Disturb != nil {
		r.crew.begin()
		group.Go(func() error {
			defer r.crew.finish()
			var err error
			r.found, err = r.cfg.Disturb(acting, &Scene{run: r, Fleet: r.fleet, Length: r.script.length})
			return ended(acting, err)
		})
	}
	group.Go(func() error {
		defer done(errOver)
		return r.watch(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// ended forgives an error that only says that the run is over.
func ended(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errOver) {
		return nil
	}
	return err
}

// errOver ends the actors when the watcher has seen enough.
var errOver = errors.New("the run is over")

// collect reads the rest of the topics, and the ledgers.
func (r *run) collect(ctx context.Context) (*check.Evidence, error) {
	group := r.cfg.Fleet.Prefix + "settleonce-consumer"
	for _, read := range []func() error{func() error { return r.tail.Offsets(ctx, group) }, func() error { return r.tail.All(ctx) }} {
		if err := patiently(ctx, read); err != nil {
			return nil, err
		}
	}
	evidence := r.tail.Evidence()
	for _, s := range r.fleet.Sims() {
		ledger, err := check.ReadLedger(ctx, s.Channel, s.URL)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", s.Channel, err)
		}
		evidence.Ledgers = append(evidence.Ledgers, ledger)
	}
	return evidence, nil
}

// tables reads what the database says.
func (r *run) tables(ctx context.Context) (*check.Database, error) {
	conn, err := pgx.Connect(ctx, r.fleet.DSN())
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return check.ReadDatabase(ctx, conn, r.cfg.Fleet.Prefix+"settleonce-consumer")
}
