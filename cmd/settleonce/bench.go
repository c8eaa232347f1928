package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/bench"
	"github.com/settleonce/settleonce/internal/fleet"
)

func newBench(p process) *cobra.Command {
	var cfg bench.Config
	var brokers string
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure throughput and latency, and count correctness beside them", GroupID: sectionTools,
		Example: "  settleonce bench                                   embedded broker, private Postgres, HTTP channel\n" +
			"  settleonce bench --latency 50ms                    a channel that takes its time\n" +
			"  settleonce bench --rate 200 --instant              latency without load\n" +
			"  settleonce bench --kafka apache -o json            on Apache Kafka, for machines\n" +
			"  settleonce bench --brokers host:9092 --dsn postgres://...",
		Long: "Publishes commands to Kafka and reads their outcome events back from it. Workers and the channel simulator\n" +
			"are processes of their own on this machine. Use an empty database and a topic prefix of your own with\n" +
			"services that others use: the benchmark writes payments. Exit code 1 when an outcome is missing, or a\n" +
			"charge is doubled.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if brokers != "" {
				cfg.Fleet.Brokers = strings.Split(brokers, ",")
			}
			return runBench(cmd, p, cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Fleet.Kafka, "kafka", fleet.KafkaEmbedded, "broker to start: embedded or apache")
	f.StringVar(&brokers, "brokers", "", "Kafka to use instead, host:port,...")
	f.StringVar(&cfg.Fleet.DSN, "dsn", "", "database to use instead of a private Postgres")
	f.StringVar(&cfg.Fleet.Prefix, "prefix", "", "prefix of all topics and groups")
	f.DurationVar(&cfg.Warm, "warm", 3*time.Second, "time before the measurement")
	f.DurationVar(&cfg.Duration, "duration", 10*time.Second, "time measured")
	f.Float64Var(&cfg.Rate, "rate", 0, "commands per second; 0: as fast as the window allows")
	f.IntVar(&cfg.Window, "window", 2048, "commands without an outcome at once")
	f.Float64Var(&cfg.Duplicates, "duplicates", 0.1, "share of deliveries that repeat a recent command")
	f.DurationVar(&cfg.Latency, "latency", 0, "latency of the channel")
	f.BoolVar(&cfg.Instant, "instant", false, "a channel inside the worker, without HTTP")
	f.IntVar(&cfg.Workers, "workers", 1, "worker processes, each with every role")
	f.IntVar(&cfg.InFlight, "in-flight", 0, "calls under way at once in a worker; 0: 512, or 2048 with latency")
	f.StringArrayVar(&cfg.Env, "env", nil, "setting of the workers, SETTLEONCE_NAME=value")
	offerOutput(cmd)
	return cmd
}

func runBench(cmd *cobra.Command, p process, cfg bench.Config) error {
	if cfg.Duplicates == 0 {
		cfg.Duplicates = -1
	}
	cfg.Fleet.Say = func(what string) { fmt.Fprintln(p.stderr, what) }
	if isTerminal(p.stderr) {
		cfg.Progress = func(s bench.Progress) {
			fmt.Fprintf(p.stderr, "\r%-10s %4.1f s  %d outcomes ", s.Phase, s.Elapsed.Seconds(), s.Outcomes)
		}
	}
	report, err := bench.Run(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	if isTerminal(p.stderr) {
		fmt.Fprintln(p.stderr)
	}
	if err := show(cmd, report, benchTable); err != nil {
		return err
	}
	if !report.Correct() {
		return errors.New("the counts above do not add up: an outcome is missing, a repeat was not answered, or a charge was doubled")
	}
	return nil
}

func benchTable(t *table, r bench.Report) {
	t.row("broker", r.Broker)
	t.row("channel", fmt.Sprintf("%s, %g ms", r.Channel, r.LatencyMS))
	t.row("measured", fmt.Sprintf("%.1f s, %d worker(s), %.0f %% duplicates", r.Seconds, r.Workers, 100*r.Duplicates))
	t.row("payments/s", fmt.Sprintf("%.0f", r.PaymentsPerSecond))
	t.row("latency ms", fmt.Sprintf("p50 %.1f  p95 %.1f  p99 %.1f  max %.1f", r.P50, r.P95, r.P99, r.Max))
	t.row("workers", fmt.Sprintf("%.2f cores, %.0f MiB", r.WorkerCPU, r.WorkerMemory))
	t.row("commands", fmt.Sprintf("%d, and %d repeats of them", r.Unique, r.Repeated))
	t.row("outcomes", fmt.Sprintf("%d, missing %d", r.Outcomes, r.Missing))
	t.row("replies to repeats", r.RepliesToThem)
	if r.ChannelChecked {
		t.row("charges at the channel", fmt.Sprintf("%d, double %d", r.Charges, r.DoubleCharged))
	}
}
