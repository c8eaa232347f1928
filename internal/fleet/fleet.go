// Package fleet runs settleonce as it is run for real, on one machine: a broker,
// a database, the channel simulator, and any number of worker processes of every
// role, each an operating-system process of its own that can be killed.
//
// The demo and the benchmark stand on it.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/schemas"
)

// The kinds of brokers a fleet can start itself.
const (
	KafkaEmbedded = "embedded"
	KafkaApache   = "apache"
)

// Config says what a fleet is made of.
type Config struct {
	// Binary is the settleonce program that children run. Defaults to this one.
	Binary string
	// Dir keeps data and logs. Defaults to a temporary folder, removed at the end.
	Dir string
	// Kafka is the broker to start: KafkaEmbedded (default) or KafkaApache.
	Kafka string
	// Apache says how Apache Kafka is run, as one node or as three; its data is kept
	// in Dir. Topics get as many copies as there are nodes.
	Apache apachekafka.Config
	// Restartable keeps the embedded broker's data on disk, which RestartKafka needs.
	// Defaults to memory only.
	Restartable bool
	// EmbeddedBrokers is how many brokers the embedded cluster shows; MoveLeaders needs
	// several. Defaults to 1.
	EmbeddedBrokers int
	// Brokers are used instead of starting any.
	Brokers []string
	// DSN is a database to use instead of a private server.
	DSN string
	// Prefix of all topics and groups. Defaults to none.
	Prefix string
	// SimBehaviour is the simulator's behaviour as JSON. Defaults to a provider at
	// its best.
	SimBehaviour string
	// Channels are several channels instead, each a simulator process with a ledger of
	// its own; workers learn of them by a configuration file. Nil: one that is named
	// "sim", which workers learn of by their settings.
	Channels []Channel
	// Env is added to every child's environment, as "NAME=value".
	Env []string
	// Say is told, in a few words, what is being started.
	Say func(what string)
	Log zerolog.Logger
}

// Fleet is what was started.
type Fleet struct {
	cfg     Config
	brokers []string
	dsn     string
	sims    []*Sim
	client  *kafka.Client
	keep    bool
	closers []func(context.Context) error

	// What the fleet started itself, and may break; nil otherwise.
	embedded *devstack.Kafka
	apache   *apachekafka.Cluster
	postgres *devstack.Postgres
}

// Start starts broker, database and simulator, and prepares tables and topics.
// Workers are started one by one. Call Stop in any case.
func Start(ctx context.Context, cfg Config) (*Fleet, error) {
	f := &Fleet{cfg: cfg}
	if f.cfg.Say == nil {
		f.cfg.Say = func(string) {}
	}
	for _, step := range []func(context.Context) error{f.prepare, f.startKafka, f.startPostgres, f.ensureTopics, f.startSims} {
		if err := step(ctx); err != nil {
			return f, err
		}
	}
	return f, nil
}

// Stop ends everything, the last started first. Data in a temporary folder is
// removed.
func (f *Fleet) Stop(ctx context.Context) error {
	var err error
	for _, closer := range slices.Backward(f.closers) {
		err = errors.Join(err, closer(ctx))
	}
	f.closers = nil
	return err
}

// Brokers are the addresses of the broker.
func (f *Fleet) Brokers() []string { return f.brokers }

// DSN is the address of the database. It may hold a password.
func (f *Fleet) DSN() string { return f.dsn }

// Apache is the Apache Kafka that the fleet started; nil if it did not.
func (f *Fleet) Apache() *apachekafka.Cluster { return f.apache }

// Client is a connection to the broker, closed with the fleet.
func (f *Fleet) Client() *kafka.Client { return f.client }

// Copies is how many copies of each record topics keep.
func (f *Fleet) Copies() int { return max(1, f.cfg.Apache.Brokers) }

// Keep leaves data and logs where they are when the fleet is stopped, and returns
// the folder.
func (f *Fleet) Keep() string {
	f.keep = true
	return f.cfg.Dir
}

// Dir is where data and logs are.
func (f *Fleet) Dir() string { return f.cfg.Dir }

func (f *Fleet) prepare(context.Context) error {
	if f.cfg.Binary == "" {
		binary, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		f.cfg.Binary = binary
	}
	if f.cfg.Dir != "" {
		//nolint:gosec // the database's user enters it; the folders below are private
		if err := os.MkdirAll(f.cfg.Dir, 0o711); err != nil {
			return fmt.Errorf("make the data folder: %w", err)
		}
		return nil
	}
	dir, err := devstack.TempDir("settleonce-fleet-*")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	f.cfg.Dir = dir
	f.closers = append(f.closers, func(context.Context) error {
		if f.keep {
			return nil
		}
		return os.RemoveAll(dir)
	})
	return nil
}

func (f *Fleet) startKafka(ctx context.Context) error {
	switch {
	case len(f.cfg.Brokers) > 0:
		f.brokers = f.cfg.Brokers
	case f.cfg.Kafka == KafkaApache:
		if ok, reason := apachekafka.Available(ctx); !ok {
			return fmt.Errorf("apache kafka cannot be started here: %s; use --kafka embedded", reason)
		}
		f.cfg.Say("starting Apache Kafka")
		apache := f.cfg.Apache
		apache.DataDir = filepath.Join(f.cfg.Dir, "kafka")
		cluster, err := apachekafka.Start(ctx, apache)
		if err != nil {
			return err
		}
		f.closers = append(f.closers, cluster.Stop)
		f.apache = cluster
		f.brokers = cluster.Brokers()
	case f.cfg.Kafka == KafkaEmbedded || f.cfg.Kafka == "":
		f.cfg.Say("starting the embedded broker")
		if err := f.startEmbedded(ctx); err != nil {
			return err
		}
		f.closers = append(f.closers, func(context.Context) error { return f.embedded.Close() })
	default:
		return fmt.Errorf("there is no broker %q; use %s or %s", f.cfg.Kafka, KafkaEmbedded, KafkaApache)
	}
	return nil
}

// database is created in the private server.
const database = "settleonce"

func (f *Fleet) startPostgres(ctx context.Context) error {
	if f.dsn = f.cfg.DSN; f.dsn == "" {
		f.cfg.Say("starting a private Postgres")
		server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{DataDir: filepath.Join(f.cfg.Dir, "postgres"), Log: f.cfg.Log})
		if err != nil {
			return err
		}
		f.closers = append(f.closers, server.Stop)
		f.postgres = server
		if err := server.CreateDatabase(ctx, database); err != nil {
			return err
		}
		f.dsn = server.DSN(database)
	}
	if _, err := schemas.Migrate(ctx, f.dsn); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}

func (f *Fleet) ensureTopics(ctx context.Context) error {
	client, err := kafka.NewClient(kafka.Config{Brokers: f.brokers, ClientID: "settleonce-fleet", Logger: f.cfg.Log})
	if err != nil {
		return err
	}
	f.client = client
	f.closers = append(f.closers, func(context.Context) error {
		client.Close()
		return nil
	})
	// A broker that has just started may not know its own controller yet.
	return wait(ctx, 2*time.Minute, f.runTopics)
}

// runTopics creates the topics as an operator would.
func (f *Fleet) runTopics(ctx context.Context) error {
	_, err := f.Command(ctx, "topics", "ensure")
	return err
}

// Command runs the program as an operator would, with the fleet's broker and
// database, and returns what it printed. The error holds that too.
func (f *Fleet) Command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, f.cfg.Binary, args...)
	cmd.Env = append(append(clean(os.Environ()), f.cfg.Env...), append(f.kafkaEnv(), "SETTLEONCE_POSTGRES_DSN="+f.dsn)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// kafkaEnv are the settings that say where Kafka is.
func (f *Fleet) kafkaEnv() []string {
	return []string{
		"SETTLEONCE_KAFKA_BROKERS=" + strings.Join(f.brokers, ","), "SETTLEONCE_TOPIC_PREFIX=" + f.cfg.Prefix,
		"SETTLEONCE_REPLICATION=" + strconv.Itoa(f.Copies()),
	}
}

// wait calls try until it works, and gives its last error when time is up.
func wait(ctx context.Context, atMost time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil || errors.Is(err, errEnded) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Pause waits for d, and reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
