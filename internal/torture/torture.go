// Package torture runs the whole system as processes of their own, breaks
// everything that can be broken at moments that a seed gives, makes it whole
// again, waits until all is settled, and has it checked from outside.
//
// The payments, their stories and the waiting are the demo's; what is broken is
// here. faults.go lists the kinds, schedule.go draws what is struck when, strikes.go
// does it, through proxies for the network and, in operator.go, with the operator's
// tools. mix.go lists the channels, squeeze.go two that are there for the bounds on
// queries. guest.go breaks services beside the workers: downstream.go is about the one
// behind the events, shop.go about a shop.
package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/shopdemo"
)

// Config is one run.
type Config struct {
	Fleet fleet.Config
	// Payments is how many payments there are at least: different keys that ought to be
	// claimed. Repeats, second keys, conflicts, replays and nonsense come on top, and
	// make it about 1.6 records each. Defaults to 3000.
	Payments int
	// Length is how long publishing and breaking takes. Defaults to a time that
	// follows from Payments.
	Length time.Duration
	// Seed makes payments and schedule; 0 takes a random one.
	Seed uint64
	// Faults are what may happen. Defaults to all.
	Faults []Fault
	// Shop is the path of the program of examples/shop; a shop stands beside the workers
	// then. Empty: none does.
	Shop string
	// Each is the processes per role. Defaults to 2.
	Each int
	// Patience is how long everything may take to settle once it is whole, and how long
	// after Length that may take. Defaults to 5 minutes and a quarter of Length.
	Patience time.Duration
	// Keep keeps data and logs.
	Keep bool
	// Progress and Say are told what is going on; nil for nobody.
	Progress func(demo.Progress)
	Say      func(what string)
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	c.Payments = cmp.Or(c.Payments, 3000)
	c.Length = cmp.Or(c.Length, min(max(time.Duration(demo.Records(c.Payments))*time.Second/perSecond, shortest), longest))
	c.Patience = cmp.Or(c.Patience, 5*time.Minute+c.Length/4)
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1e6) + 1
	}
	if len(c.Faults) == 0 {
		c.Faults = Faults()
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c Config) Validate() error {
	if c.Length < time.Second || c.Length > time.Hour {
		return errors.New("set the length between 1s and 1h")
	}
	return nil
}

const (
	// perSecond is how many records are published per second by default.
	perSecond = 250
	shortest  = 20 * time.Second
	longest   = 15 * time.Minute
	// lease of the workers; that of the relay is shorter.
	lease = 6 * time.Second
)

// Report is what a run came to.
type Report struct {
	demo.Report

	// Channels say what each of the channels could do.
	Channels []ChannelMix `json:"channels"`
	// Struck counts the faults that were done, by name; Points the crash points that
	// were reached.
	Struck map[Fault]int  `json:"struck"`
	Points map[string]int `json:"crashPoints"`
	// Effects counts what the faults did where that cannot be taken for granted:
	// messages that were lost, leaders that moved, leases that others took over.
	Effects map[string]int `json:"effects"`
	// Shop are the shop's books, nil where there was none, or not to the end.
	Shop *shopdemo.Books `json:"shop,omitempty"`
	// Failed are faults that could not be done.
	Failed []string `json:"notDone,omitempty"`
}

// Run plays, breaks, mends and checks. An error says that the run could not be
// done; a broken guarantee is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	of := mixesOf(cfg.Seed)
	if cfg.Say != nil {
		cfg.Say(fmt.Sprintf("seed %d; the channels: %v", cfg.Seed, aboutMixes(of)))
	}
	cfg.Fleet.Restartable, cfg.Fleet.EmbeddedBrokers, cfg.Fleet.Apache = true, brokers, apache()
	t := newTormentor(cfg, of)
	report, err := demo.Run(ctx, demo.Config{
		Fleet: cfg.Fleet, Payments: cfg.Payments, Length: cfg.Length, Seed: cfg.Seed, Each: cfg.Each, Kills: -1,
		Patience: cfg.Patience, Keep: cfg.Keep, Progress: cfg.Progress, Say: cfg.Say,
		Channels: append(callingBack(cfg.Seed, channelsOf(of)), squeezed()...), Disturb: t.torment, EdgeShare: edgeShare, Gateways: t.front, Downstream: t.behind(), Shop: t.shop.beside(),
		Apart: true, Registered: registered(cfg.Seed),
		Workers: func(f *fleet.Fleet) ([]string, error) { return t.connect(ctx, f) },
	})
	t.close()
	out := Report{Report: report, Channels: aboutMixes(slices.Concat(of, aside)), Struck: t.struck, Points: t.points, Effects: t.effects(), Failed: t.failed}
	if t.shop != nil {
		out.Shop = t.shop.books
	}
	return out, err
}

func newTormentor(cfg Config, of []mix) *tormentor {
	t := &tormentor{
		cfg: cfg, losses: newLosses(), struck: map[Fault]int{}, points: map[string]int{}, did: map[string]int{},
		guests: map[string]*guest{demo.RoleDownstream: newGuest(demo.RoleDownstream, groupBehind(cfg.Fleet.Prefix))},
		shop:   newOpening(&cfg, of),
	}
	if t.shop != nil {
		t.guests[demo.RoleShop] = t.shop.network
	}
	return t
}

// registered reports whether a run keeps its callers in the table, which every odd
// seed does; the others go by the settings.
func registered(seed uint64) bool { return seed%2 == 1 }

// connect puts proxies between the workers and what they need.
func (t *tormentor) connect(ctx context.Context, f *fleet.Fleet) ([]string, error) {
	env, err := t.join(ctx, f)
	if err != nil {
		return nil, err
	}
	urls := map[string]string{}
	for _, s := range f.Sims() {
		if t.setAside(s) {
			continue
		}
		own, err := newProxy(ctx, strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			return nil, err
		}
		t.channels = append(t.channels, &provider{name: s.Channel, url: s.URL, proxy: own})
		urls[s.Channel] = "http://" + own.address()
	}
	if err := f.DescribeChannels(urls); err != nil {
		return nil, err
	}
	return append(env, "SETTLEONCE_STALL_TIMEOUT=30s", "SETTLEONCE_WATCH_FIRST=20s"), t.refuse(ctx, f)
}

func (t *tormentor) close() {
	t.leave()
	for _, c := range t.channels {
		_ = c.proxy.close() // the port is free either way
	}
}
