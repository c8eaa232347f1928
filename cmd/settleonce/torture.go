package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/shopdemo"
	"github.com/settleonce/settleonce/internal/torture"
)

func newTorture(p process) *cobra.Command {
	var cfg torture.Config
	var faults string
	cmd := &cobra.Command{
		Use: "torture", Short: "Break everything at seeded moments, make it whole again, and check that nothing was lost or paid twice", GroupID: sectionTools,
		Example: "  settleonce torture                                     3000 payments, every fault\n" +
			"  settleonce torture --payments 100000 --kafka apache    the long run, on Apache Kafka\n" +
			"  settleonce torture --seed 7 --faults crash,postgres    these faults only, at the moments of seed 7",
		Long: "Runs broker, database, channel simulator and worker processes on this machine and breaks them: kills, kills between\n" +
			"two given steps, frozen processes, restarts of broker and database, cut, silent and slow networks, answers and commits\n" +
			"lost on the way, partition leaders that move, clocks that jump (in the program that make torture builds), channels that\n" +
			"misbehave, commands published again, a service downstream and a shop (--shop) whose groups are set back. The seed decides\n" +
			"what the channel can do, and what is broken when. Exit code 1 when a guarantee is broken; data and logs are kept then.\n" +
			"Faults: " + faultNames() + ".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if cfg.Faults, err = torture.ParseFaults(faults); err != nil {
				return asUsage(fmt.Errorf("--faults: %w", err))
			}
			if cfg.Shop != "" { // children run in a folder of their own
				if cfg.Shop, err = filepath.Abs(cfg.Shop); err != nil {
					return fmt.Errorf("find %s: %w", cfg.Shop, err)
				}
			}
			return runTorture(cmd, p, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Fleet.Kafka, "kafka", fleet.KafkaEmbedded, "broker to start: embedded or apache")
	f.IntVar(&cfg.Payments, "payments", 3000, "payments: different keys to claim; repeats, second keys and nonsense come on top, about 1.6 records for each")
	f.DurationVar(&cfg.Length, "length", 0, "time to publish and break in; 0: 1 s per 156 payments (250 records), at least 20 s, at most 15m")
	f.Uint64Var(&cfg.Seed, "seed", 0, "makes the same payments and schedule again; 0: a random one, which is printed")
	f.StringVar(&faults, "faults", "", "faults to use, separated by commas; empty: all")
	f.StringVar(&cfg.Shop, "shop", "", "program of examples/shop, which stands beside the workers then; empty: no shop")
	f.IntVar(&cfg.Each, "each", 2, "processes per role")
	f.DurationVar(&cfg.Patience, "patience", 0, "time for everything to settle once nothing is broken any more; 0: 5m and a quarter of the length")
	f.StringVar(&cfg.Fleet.Dir, "dir", "", "folder for data and logs; empty: a temporary one, removed at the end")
	f.BoolVar(&cfg.Keep, "keep", false, "keep database, topics and logs")
	offerOutput(cmd)
	return cmd
}

func faultNames() string {
	var names []string
	for _, f := range torture.Faults() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// tortureMemory is what a run may use before the garbage is collected more often.
// The brokers run in this process, and so do the proxies and the checker.
const tortureMemory = 1 << 30

func runTorture(cmd *cobra.Command, p process, cfg torture.Config) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	debug.SetMemoryLimit(tortureMemory)
	live := newLive(p.stderr)
	cfg.Say, cfg.Progress = live.say, live.progress
	report, err := torture.Run(cmd.Context(), cfg)
	live.end()
	if report.Kept != "" {
		fmt.Fprintln(p.stderr, "data and logs are in", report.Kept)
	}
	if err != nil {
		return err
	}
	if err := show(cmd, report, tortureTable); err != nil {
		return err
	}
	return verdictError(report.Report)
}

func tortureTable(t *table, r torture.Report) {
	t.row("")
	t.row("CHANNELS", fmt.Sprintf("%6d", len(r.Channels)))
	for _, c := range r.Channels {
		t.row("  "+c.Name, "", c.About)
	}
	t.row("BROKEN ON PURPOSE")
	for _, f := range torture.Faults() {
		if n := r.Struck[f]; n > 0 {
			t.row("  "+string(f), fmt.Sprintf("%6d", n))
		}
	}
	for _, point := range slices.Sorted(maps.Keys(r.Points)) {
		t.row("  died at", fmt.Sprintf("%6d", r.Points[point]), point)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Effects)) {
		t.row("  came of it", fmt.Sprintf("%6d", r.Effects[what]), what)
	}
	for _, text := range r.Failed {
		t.row("  not done", "", text)
	}
	shopRows(t, r.Shop)
	demoTable(t, r.Report)
}

// shopRows say what the shop came to, where there was one.
func shopRows(t *table, b *shopdemo.Books) {
	if b == nil {
		t.row("SHOP", "", "none that was judged: make torture has one, --shop names its program")
		return
	}
	count := func(name string, n int, about string, args ...any) {
		t.row("  "+name, fmt.Sprintf("%6d", n), fmt.Sprintf(about, args...))
	}
	t.row("SHOP", "", "examples/shop; its books held against the channel's and the mail gateway's")
	count("orders accepted", b.Orders["accepted"], "%d cancelled, %d open", b.Orders["cancelled"], b.Orders["open"])
	count("payments", b.Payments, "%d charged, %d in review, %d to be sent back", b.Charges, b.InReview, b.Refunds)
	count("packing tasks", b.Tasks, "")
	count("receipts", b.Receipts, "%d mails", b.Mails)
}
