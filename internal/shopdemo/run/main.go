// Command run plays the shop's demo: `make shop`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/shopdemo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ok, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
	}
	if err != nil || !ok {
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, args []string) (bool, error) {
	var cfg shopdemo.Config
	flags := flag.NewFlagSet("shop", flag.ExitOnError)
	flags.StringVar(&cfg.Fleet.Binary, "settleonce", "bin/settleonce", "settleonce's `program`")
	flags.StringVar(&cfg.Shop, "shop", "bin/shop", "the shop's `program`")
	flags.StringVar(&cfg.Fleet.Kafka, "kafka", fleet.KafkaEmbedded, "`broker` to start: embedded or apache")
	flags.IntVar(&cfg.Orders, "orders", 0, "orders that customers try to place; 0: 600")
	flags.DurationVar(&cfg.Length, "length", 0, "how long they take; 0: 20s")
	flags.IntVar(&cfg.Kills, "kills", 0, "processes of shop and workers to kill meanwhile; 0: 10, -1: none")
	flags.IntVar(&cfg.Replays, "replays", 0, "how often every topic is published again; 0: once, -1: never")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "makes the same customers and kills again; 0: a random one")
	flags.BoolVar(&cfg.GatewayForgets, "gateway-forgets", false, "the mail gateway does not know its Message-Ids")
	flags.BoolVar(&cfg.Hold, "hold", false, "keep the shop open until Ctrl-C, to look at its page")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	// Children run in a folder of their own.
	for _, path := range []*string{&cfg.Fleet.Binary, &cfg.Shop} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return false, fmt.Errorf("find %s: %w", *path, err)
		}
		*path = absolute
	}
	begun := time.Now()
	cfg.Say = func(what string) { fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(begun).Seconds(), what) }
	report, err := shopdemo.Run(ctx, cfg)
	if err != nil {
		return false, err
	}
	if *asJSON {
		return len(report.Violations) == 0, json.NewEncoder(os.Stdout).Encode(report)
	}
	return len(report.Violations) == 0, show(os.Stdout, report)
}

func show(out io.Writer, r shopdemo.Report) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nseed\t%d, %s\n", r.Seed, r.Took.Round(time.Second))
	fmt.Fprintf(table, "orders\t%d accepted, %d cancelled, %d open\n", r.Orders["accepted"], r.Orders["cancelled"], r.Orders["open"])
	fmt.Fprintf(table, "payments\t%d asked for, %d charged, %d to be sent back\n", r.Payments, r.Charges, r.Refunds)
	fmt.Fprintf(table, "jobs\t%d packing tasks, %d receipts, %d mails, %d receipts perhaps twice\n", r.Tasks, r.Receipts, r.Mails, r.Twice)
	fmt.Fprintf(table, "killed\t%v\n", r.Kills)
	fmt.Fprintf(table, "violations\t%d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(table, "\t%s\n", v)
	}
	if r.Kept != "" {
		fmt.Fprintf(table, "kept\t%s\n", r.Kept)
	}
	return table.Flush()
}
