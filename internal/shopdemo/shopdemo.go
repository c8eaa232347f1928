// Package shopdemo runs examples/shop as it would be run for real, beside real
// settleonce workers and a provider that loses answers, kills processes of both
// while customers order, replays whole topics, and checks from outside what came of
// it: the shop's tables, the provider's ledger and the mail gateway's are held
// against each other.
package shopdemo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Config is one run.
type Config struct {
	Fleet fleet.Config
	// Shop is the path of the shop's program. Required.
	Shop string
	// Orders is how many orders customers try to place. Defaults to 600.
	Orders int
	// Length is how long they take. Defaults to 20 s.
	Length time.Duration
	// Seed makes customers and kills; 0 takes a random one.
	Seed uint64
	// Kills is how many processes are killed meanwhile. Defaults to 10; negative: none.
	Kills int
	// Replays is how often all commands, replies, events and decisions are
	// published again afterwards. Defaults to 1; negative: not at all.
	Replays int
	// GatewayForgets makes the mail gateway one that delivers a repetition again.
	GatewayForgets bool
	// Patience is how long everything may take to settle. Defaults to 2 minutes.
	Patience time.Duration
	// Hold keeps the shop open until ctx ends, after the checks.
	Hold bool
	// Say is told what is going on; nil for nobody.
	Say func(what string)
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	c.Orders, c.Kills, c.Replays = cmp.Or(c.Orders, 600), cmp.Or(c.Kills, 10), cmp.Or(c.Replays, 1)
	c.Length, c.Patience = cmp.Or(c.Length, 20*time.Second), cmp.Or(c.Patience, 2*time.Minute)
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1e6) + 1
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c Config) Validate() error {
	switch {
	case c.Shop == "":
		return errors.New("name the shop's program: go build -o bin/shop ./examples/shop")
	case c.Orders < 1 || c.Length < time.Second:
		return errors.New("let customers place at least one order, in at least a second")
	}
	return nil
}

// behaviour is a provider that declines, loses answers and is slow now and then.
const behaviour = `{"latency":"20ms","rates":{"declined":0.08,"refused":0.02,"lost_answer":0.06,"error_after":0.03,"slow":0.02,"reset_before":0.03,"query_error":0.1}}`

// run is a run under way.
type run struct {
	Config

	fleet    *fleet.Fleet
	pool     *pgxpool.Pool
	random   *rand.Rand
	front    string // address of the page
	mailgate string
	children []*fleet.Child
	kills    map[string]int
}

// Run plays, drains, replays and checks. An error says that the run could not be
// done; what is wrong in the shop is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	cfg.Fleet.SimBehaviour, cfg.Fleet.Say = behaviour, cfg.Say
	f, err := fleet.Start(ctx, cfg.Fleet)
	defer func() { _ = f.Stop(context.WithoutCancel(ctx)) }()
	if err != nil {
		return Report{}, err
	}
	r := &run{Config: cfg, fleet: f, random: rand.New(rand.NewPCG(cfg.Seed, 5)), kills: map[string]int{}}
	if err := r.open(ctx); err != nil {
		return Report{}, err
	}
	defer r.pool.Close()
	return r.play(ctx)
}

func (r *run) play(ctx context.Context) (Report, error) {
	begun := time.Now()
	r.Say(fmt.Sprintf("customers order, seed %d; watch http://%s", r.Seed, r.front))
	if err := r.trade(ctx); err != nil {
		return Report{}, err
	}
	r.Say("everybody has ordered, waiting until all is settled")
	if err := r.drain(ctx); err != nil {
		return Report{}, fmt.Errorf("%w; logs are in %s", err, r.fleet.Keep())
	}
	before, err := r.check(ctx)
	if err != nil {
		return before, err
	}
	for range r.Replays {
		r.Say("publishing every record of every topic again")
		if err := r.replay(ctx); err != nil {
			return before, err
		}
	}
	report, err := r.check(ctx)
	if err != nil {
		return report, err
	}
	report.compare(before)
	report.Seed, report.Kills, report.Took = r.Seed, r.kills, time.Since(begun)
	if len(report.Violations) > 0 {
		report.Kept = r.fleet.Keep()
	}
	if r.Hold {
		r.Say("the shop stays open at http://" + r.front + " until you press Ctrl-C")
		<-ctx.Done()
	}
	return report, nil
}

// open makes the shop's database and topic, and starts everything.
func (r *run) open(ctx context.Context) error {
	dsn, err := r.createDatabase(ctx)
	if err != nil {
		return fmt.Errorf("make the shop's database: %w", err)
	}
	if r.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return err
	}
	spec := kafka.TopicSpec{Name: r.Fleet.Prefix + order.Topic, Partitions: shopPartitions, Replication: 1}
	results, err := r.fleet.Client().EnsureTopics(ctx, []kafka.TopicSpec{spec})
	if err == nil && results[0].Err != nil {
		err = results[0].Err
	}
	if err != nil {
		return fmt.Errorf("make the shop's topic: %w", err)
	}
	for _, role := range []string{"outbox", "reconciler", "consumer"} {
		for number := range 2 {
			child, err := r.fleet.StartWorker(ctx, role, number, "SETTLEONCE_REPAY_NAMED="+order.Caller, "SETTLEONCE_SESSION_TIMEOUT=6s",
				"SETTLEONCE_LEASE=6s", "SETTLEONCE_DRAIN_TIMEOUT=3s", "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=2s", "SETTLEONCE_CHANNEL_QUERY_TIMEOUT=2s", "SETTLEONCE_CHANNEL_LONGEST_EXECUTION=3s")
			if err != nil {
				return err
			}
			r.children = append(r.children, child)
		}
	}
	return r.openShop(ctx, dsn)
}

// shopPartitions is how many partitions the shop gives its topic.
const shopPartitions = 8

func (r *run) openShop(ctx context.Context, dsn string) error {
	ports, err := childproc.FreePorts(ctx, 2)
	if err != nil {
		return fmt.Errorf("find free ports: %w", err)
	}
	r.front, r.mailgate = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	common := []string{
		"-dsn", dsn, "-brokers", join(r.fleet.Brokers()), "-prefix", r.Fleet.Prefix, "-page", r.front, "-mailgate", r.mailgate,
		"-patience", "5s", "-lost-mail-answers", "0.1", fmt.Sprintf("-gateway-forgets=%t", r.GatewayForgets),
	}
	for _, job := range []struct {
		name, ready string
		each        int
	}{{"mailgate", "http://" + r.mailgate + "/mails", 1}, {"page", "http://" + r.front + "/healthz", 1}, {"outbox", "", 2}, {"orders", "", 2}, {"packing", "", 2}, {"receipts", "", 2}} {
		for number := range job.each {
			child, err := r.fleet.StartProgram(ctx, fmt.Sprintf("shop-%s-%d", job.name, number), r.Shop, job.ready, append([]string{"-jobs", job.name}, common...)...)
			if err != nil {
				return err
			}
			if job.name != "mailgate" && job.name != "page" { // somebody else's, and what customers need to place an order
				r.children = append(r.children, child)
			}
		}
	}
	return nil
}

func (r *run) createDatabase(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, r.fleet.DSN())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE DATABASE shop"); err != nil {
		return "", err
	}
	dsn, err := url.Parse(r.fleet.DSN())
	if err != nil {
		return "", err
	}
	dsn.Path = "/shop"
	return dsn.String(), nil
}

// topics are all that are replayed.
func (r *run) topics() []string {
	names := payment.NewTopics(r.Fleet.Prefix)
	return []string{names.Commands, names.Replies, names.Events, r.Fleet.Prefix + order.Topic}
}
