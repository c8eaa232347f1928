// Command testrun runs `go test` with the servers that tests share: one Postgres, and one Apache Kafka
// node where Java and Maven exist. `make test` calls it.
//
//	go run ./internal/testrun [-require] [-- arguments of go test]
//
// It adds -race where a C compiler exists. What it has to leave out it says in one line each; with
// -require it fails instead.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/devstack"
)

const (
	postgresEnv = "SETTLEONCE_TEST_POSTGRES"
	kafkaEnv    = "SETTLEONCE_TEST_KAFKA"

	stopTimeout     = 3 * time.Minute
	goTestGrace     = 30 * time.Second
	testConnections = 500
)

func main() {
	require := flag.Bool("require", false, "fail when Apache Kafka or the race detector has to be left out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *require, flag.Args())
	stop()
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit): // go test has said why
		os.Exit(max(1, exit.ExitCode()))
	default:
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

// session is what has to be given back after the tests.
type session struct {
	log     zerolog.Logger
	require bool
	env     []string
	closers []func(context.Context) error
}

func run(ctx context.Context, require bool, args []string) (err error) {
	s := &session{
		log:     zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, PartsExclude: []string{zerolog.TimestampFieldName}}).Level(zerolog.InfoLevel),
		require: require,
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	if err := s.startPostgres(ctx); err != nil {
		return err
	}
	if err := s.startKafka(ctx); err != nil {
		return err
	}
	race, err := s.raceFlag(ctx)
	if err != nil {
		return err
	}
	return s.goTest(ctx, append(race, args...))
}

func (s *session) goTest(ctx context.Context, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = goTestGrace
	return cmd.Run()
}

func (s *session) startPostgres(ctx context.Context) error {
	if os.Getenv(postgresEnv) != "" {
		return nil
	}
	folder, err := devstack.TempDir("settleonce-test-")
	if err != nil {
		return err
	}
	s.closers = append(s.closers, func(context.Context) error { return os.RemoveAll(folder) })
	pg, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{
		DataDir: filepath.Join(folder, "pg"), Fast: true, MaxConnections: testConnections, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, pg.Stop)
	s.env = append(s.env, postgresEnv+"="+pg.DSN("postgres"))
	return nil
}

func (s *session) startKafka(ctx context.Context) error {
	if os.Getenv(kafkaEnv) != "" {
		return nil
	}
	if ok, reason := apachekafka.Available(ctx); !ok {
		return s.leaveOut("Apache Kafka left out, tests see the embedded broker only: " + reason)
	}
	cluster, err := apachekafka.Start(ctx, apachekafka.Config{
		Log:      s.log,
		Settings: map[string]string{"group.min.session.timeout.ms": "1000"}, // tests of lost members need not wait
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, cluster.Stop)
	s.env = append(s.env, kafkaEnv+"="+strings.Join(cluster.Brokers(), ","))
	return nil
}

// raceFlag asks Go itself: without a C compiler it switches cgo off, which the race detector needs.
func (s *session) raceFlag(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "CGO_ENABLED").Output()
	if err != nil {
		return nil, fmt.Errorf("ask go for cgo: %w", err)
	}
	if strings.TrimSpace(string(out)) == "1" {
		return []string{"-race"}, nil
	}
	return nil, s.leaveOut("race detector left out: it needs a C compiler (gcc or clang) and CGO_ENABLED=1")
}

func (s *session) leaveOut(what string) error {
	if s.require {
		return errors.New(what)
	}
	fmt.Fprintln(os.Stderr, "testrun:", what)
	return nil
}

// close stops the servers, the last started first.
func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}
