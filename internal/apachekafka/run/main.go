// Command run runs Apache Kafka in the foreground until it is interrupted. `make kafka` calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/apachekafka"
)

func main() {
	cfg := apachekafka.Config{Log: zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName}})}
	flag.IntVar(&cfg.Brokers, "brokers", 1, "how many nodes: 1 or 3")
	flag.StringVar(&cfg.DataDir, "data-dir", "", "where the data stays over a restart (default: a temporary folder)")
	flag.StringVar(&cfg.Heap, "heap", "", "each JVM's heap (default: 512m, 384m with three nodes)")
	flag.Parse()
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "kafka:", err)
		os.Exit(1)
	}
}

// run prints the addresses once the nodes accept clients, one line with commas, and stops them at the
// first signal; a second one cuts that short.
func run(cfg apachekafka.Config) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cluster, err := apachekafka.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop(context.WithoutCancel(ctx))) }()
	fmt.Println(strings.Join(cluster.Brokers(), ","))
	<-ctx.Done()
	stop()
	return nil
}
