// Package shopdemo runs examples/shop as it would be run for real, beside real
// settleonce workers, and checks from outside what came of it: the shop's tables, the
// provider's ledger and the mail gateway's are held against each other.
//
// Shop is a shop beside a fleet, whoever breaks what; internal/torture has one too.
// Run is `make shop`: a provider that loses answers, processes of both killed while
// customers order, whole topics replayed.
package shopdemo

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/settleonce/settleonce/examples/shop/order"
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

// shop is the one that the run has.
func (c Config) shop(random *rand.Rand) ShopConfig {
	return ShopConfig{
		Program: c.Shop, Prefix: c.Fleet.Prefix, Orders: c.Orders, Length: c.Length, GatewayForgets: c.GatewayForgets, Random: random,
	}
}

// Report is what a run came to.
type Report struct {
	Books

	Seed  uint64         `json:"seed"`
	Took  time.Duration  `json:"took"`
	Kills map[string]int `json:"kills"`
	// Kept is where data and logs are, after a violation.
	Kept string `json:"kept,omitempty"`
}

// behaviour is a provider that declines, loses answers and is slow now and then.
const behaviour = `{"latency":"20ms","rates":{"declined":0.08,"refused":0.02,"lost_answer":0.06,"error_after":0.03,"slow":0.02,"reset_before":0.03,"query_error":0.1}}`

// run is a run under way.
type run struct {
	Config

	fleet    *fleet.Fleet
	shop     *Shop
	random   *rand.Rand
	children []*fleet.Child // of workers and shop
	kills    map[string]int
}

// Run plays, drains, replays and checks. An error says that the run could not be
// done; what is wrong in the shop is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.WithDefaults()
	r := &run{Config: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 5)), kills: map[string]int{}}
	if err := cfg.shop(r.random).Validate(); err != nil {
		return Report{}, err
	}
	cfg.Fleet.SimBehaviour, cfg.Fleet.Say = behaviour, cfg.Say
	var err error
	r.fleet, err = fleet.Start(ctx, cfg.Fleet)
	defer func() { _ = r.fleet.Stop(context.WithoutCancel(ctx)) }()
	if err == nil {
		err = r.startWorkers(ctx)
	}
	if err != nil {
		return Report{}, err
	}
	r.shop, err = Open(ctx, r.fleet, cfg.shop(r.random))
	defer r.shop.Close()
	if err != nil {
		return Report{}, err
	}
	r.children = append(r.children, r.shop.Children()...)
	return r.play(ctx)
}

func (r *run) startWorkers(ctx context.Context) error {
	for _, role := range []string{"outbox", "reconciler", "consumer"} {
		for number := range each {
			child, err := r.fleet.StartWorker(ctx, role, number, "SETTLEONCE_REPAY_NAMED="+order.Caller, "SETTLEONCE_SESSION_TIMEOUT=6s",
				"SETTLEONCE_LEASE=6s", "SETTLEONCE_DRAIN_TIMEOUT=3s", "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=2s", "SETTLEONCE_CHANNEL_QUERY_TIMEOUT=2s", "SETTLEONCE_CHANNEL_LONGEST_EXECUTION=3s")
			if err != nil {
				return err
			}
			r.children = append(r.children, child)
		}
	}
	return nil
}

func (r *run) play(ctx context.Context) (Report, error) {
	begun := time.Now()
	r.Say(fmt.Sprintf("customers order, seed %d; watch http://%s", r.Seed, r.shop.front))
	if err := r.trade(ctx); err != nil {
		return Report{}, err
	}
	r.Say("everybody has ordered, waiting until all is settled")
	if err := r.shop.Drain(ctx, r.Patience); err != nil {
		return Report{}, fmt.Errorf("%w; logs are in %s", err, r.fleet.Keep())
	}
	before, err := r.shop.Check(ctx)
	if err != nil {
		return Report{Books: before}, err
	}
	for range r.Replays {
		r.Say("publishing every record of every topic again")
		if err := r.replay(ctx); err != nil {
			return Report{Books: before}, err
		}
	}
	books, err := r.shop.Check(ctx)
	if err != nil {
		return Report{Books: books}, err
	}
	books.compare(&before)
	report := Report{Books: books, Seed: r.Seed, Kills: r.kills, Took: time.Since(begun)}
	if len(report.Violations) > 0 {
		report.Kept = r.fleet.Keep()
	}
	if r.Hold {
		r.Say("the shop stays open at http://" + r.shop.front + " until you press Ctrl-C")
		<-ctx.Done()
	}
	return report, nil
}

// replay publishes every record of every topic again, as an operator would who
// does not know what was lost, and waits until all is read.
func (r *run) replay(ctx context.Context) error {
	client := r.fleet.Client()
	publisher, err := client.NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close(context.WithoutCancel(ctx)) }()
	names := payment.NewTopics(r.Fleet.Prefix)
	for _, topic := range []string{names.Commands, names.Replies, names.Events, r.Fleet.Prefix + order.Topic} {
		var again []kafka.Message
		if err := client.ReadAll(ctx, topic, func(record kafka.Record) error {
			again = append(again, kafka.Message{Topic: topic, Key: record.Key, Value: record.Value, Headers: record.Headers})
			return nil
		}); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		if err := publisher.Publish(ctx, again...); err != nil {
			return fmt.Errorf("publish %s again: %w", topic, err)
		}
	}
	if err := r.awaitConsumers(ctx, names.Commands); err != nil {
		return err
	}
	if err := r.shop.Drain(ctx, r.Patience); err != nil {
		return err
	}
	if err := r.shop.ResetGroups(ctx, r.Say); err != nil {
		return err
	}
	return r.shop.Drain(ctx, r.Patience)
}

// awaitConsumers waits until the workers have read all commands.
func (r *run) awaitConsumers(ctx context.Context, topic string) error {
	for deadline := time.Now().Add(r.Patience); ; {
		lag, err := r.fleet.Lag(ctx, r.Fleet.Prefix+"settleonce-consumer", topic)
		if err != nil || lag == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d commands are not read in time", lag)
		}
		if !fleet.Pause(ctx, time.Second/2) {
			return ctx.Err()
		}
	}
}

// role is a child's name without its number.
func role(c *fleet.Child) string { return c.Name[:strings.LastIndexByte(c.Name, '-')] }
