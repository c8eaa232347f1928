package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/folderlock"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/schemas"
)

func newDev(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev", Short: "Run everything on this machine, for trying it out", GroupID: sectionStart,
		Example: "  settleonce dev                                          broker, database, provider and roles in one process\n" +
			"  settleonce dev --kafka-brokers localhost:9092           with a Kafka of yours\n" +
			"  settleonce dev --postgres-dsn postgres://...            with a database of yours\n" +
			"  settleonce dev --data-dir /tmp/try                      keep the data elsewhere",
		Long: "Starts an embedded broker, a private Postgres and the channel simulator, creates tables and topics, and\n" +
			"runs every role. Free ports are chosen and printed; the data survives a restart. It is for development:\n" +
			"one machine, one copy of everything.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return dev(cmd, p) },
	}
	offerAll(cmd)
	return cmd
}

// devRole is the name of the stack in logs and in pg_stat_activity.
const devRole = "dev"

// devRun is one run of the development stack.
type devRun struct {
	process

	loaded *config.Loaded
	cfg    config.Config
	log    zerolog.Logger
	// token is the credential of caller shop; empty where the table lists callers.
	token string
	// closers end what was started, the last one first.
	closers []func(context.Context) error
}

// stopTimeout bounds the end of the embedded services.
const stopTimeout = 20 * time.Second

func dev(cmd *cobra.Command, p process) error {
	l, err := loadDev(cmd, p)
	if err != nil {
		return err
	}
	d := &devRun{process: p, loaded: l, cfg: l.Config}
	d.prefer()
	if d.log, err = newLogger(p, &d.cfg); err != nil {
		return err
	}
	fmt.Fprint(p.stdout, devWarning)
	err = d.run(cmd.Context())
	closing, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), stopTimeout)
	defer cancel()
	for _, end := range slices.Backward(d.closers) {
		err = errors.Join(err, end(closing))
	}
	return err
}

// loadDev leaves out what an earlier run wrote for other terminals: started
// from one of those, the stack would wait for its own dead services.
func loadDev(cmd *cobra.Command, p process) (*config.Loaded, error) {
	l, err := load(cmd, p)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(envFile(&l.Config))
	if err != nil {
		return l, nil //nolint:nilerr // there was no earlier run
	}
	own := strings.Split(strings.ReplaceAll(string(text), "'", ""), "\n")
	p.env = slices.DeleteFunc(slices.Clone(p.env), func(pair string) bool { return slices.Contains(own, pair) })
	return load(cmd, p)
}

func envFile(c *config.Config) string { return filepath.Join(c.Dev.DataDir, "env") }

const devWarning = `
  settleonce dev: FOR DEVELOPMENT ONLY. One machine, one copy of everything, no access control.
  Nothing here survives the loss of this disk. Never point real payments at it.

`

// prefer sets what suits a developer, where nothing was set.
func (d *devRun) prefer() {
	c := &d.cfg
	if d.unset("log-format") {
		c.Log.Format = "console"
	}
	if d.unset("admin-address") {
		c.Admin.Address = "127.0.0.1:0"
	}
	if d.unset("gateway-listen") {
		c.Gateway.Listen = "127.0.0.1:0"
	}
	if d.unset("gateway-drain-delay") {
		c.Gateway.DrainDelay = 0
	}
	if d.unset("sim-listen") {
		c.Sim.Listen = "127.0.0.1:0"
	}
	if d.unset("sim-ledger") {
		c.Sim.Ledger = filepath.Join(c.Dev.DataDir, "sim", "ledger.jsonl")
	}
	if d.unset("replication") && d.unset("kafka-brokers") {
		c.Topics.Replication = 1
	}
}

func (d *devRun) unset(names ...string) bool {
	for _, name := range names {
		if d.loaded.Source(name) != "default" {
			return false
		}
	}
	return true
}

func (d *devRun) run(ctx context.Context) error {
	if err := os.MkdirAll(d.cfg.Dev.DataDir, 0o755); err != nil { //nolint:gosec // Postgres's own user must get through
		return fmt.Errorf("make data-dir, or name another: %w", err)
	}
	for _, step := range []func(context.Context) error{d.kafka, d.postgres, d.migrate, d.chooseCallers, d.ensureTopics} {
		err := step(ctx)
		if errors.Is(err, folderlock.ErrHeld) {
			return fmt.Errorf("data-dir %s is used by another settleonce: stop that one, or name another folder", d.cfg.Dev.DataDir)
		}
		if err != nil {
			return err
		}
	}
	return d.withSim(ctx, d.roles)
}

func (d *devRun) kafka(context.Context) error {
	if !d.unset("kafka-brokers") {
		return nil
	}
	broker, err := devstack.StartKafka(devstack.KafkaConfig{
		DataDir: filepath.Join(d.cfg.Dev.DataDir, "kafka"), Partitions: outbox.Shards, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func(context.Context) error { return broker.Close() })
	d.cfg.Kafka = config.Kafka{Brokers: broker.Brokers(), ClientID: d.cfg.Kafka.ClientID}
	return nil
}

func (d *devRun) postgres(ctx context.Context) error {
	if !d.unset("postgres-dsn", "postgres-dsn-file") {
		return nil
	}
	const database = "settleonce"
	server, err := devstack.StartPostgres(ctx, devstack.PostgresConfig{DataDir: filepath.Join(d.cfg.Dev.DataDir, "postgres"), Log: d.log})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, server.Stop)
	if err := server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	d.cfg.Postgres = config.Postgres{
		DSN: server.DSN(database), PoolSize: d.cfg.Postgres.PoolSize, StatementTimeout: d.cfg.Postgres.StatementTimeout,
	}
	return nil
}

func (d *devRun) migrate(ctx context.Context) error {
	dsn, err := d.cfg.Postgres.ConnString()
	if err != nil {
		return asUsage(err)
	}
	if _, err := schemas.Migrate(ctx, dsn); err != nil {
		return explainPostgres(err)
	}
	return nil
}

func (d *devRun) ensureTopics(ctx context.Context) error {
	client, err := openKafka(ctx, &d.cfg, zerolog.Nop())
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = createTopics(ctx, client, &d.cfg)
	return err
}

// withSim runs next beside the simulator, unless a channel is configured. The
// simulator ends after what uses it.
func (d *devRun) withSim(ctx context.Context, next func(context.Context) error) error {
	if !d.unset("channel-url", "channel-type") || len(d.cfg.Channels) != 1 {
		return next(ctx)
	}
	cfg, err := simConfig(&d.cfg)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(cfg.LedgerPath), 0o700); err != nil {
		return fmt.Errorf("make the folder of sim-ledger, or name another: %w", err)
	}
	address := make(chan net.Addr, 1)
	cfg.Ready = func(_ *sim.Server, addr net.Addr) { address <- addr }
	simCtx, endSim := context.WithCancel(context.WithoutCancel(ctx))
	defer endSim()
	ended := make(chan error, 1)
	go func() { ended <- sim.Run(simCtx, cfg) }()
	select {
	case err := <-ended:
		return err
	case addr := <-address:
		d.useSim(addr)
	}
	err = next(ctx)
	endSim()
	return errors.Join(err, <-ended)
}

// useSim gives the channel an identity without the port, which is another one
// at each start: open payments must be resumed after a restart.
func (d *devRun) useSim(addr net.Addr) {
	for name, c := range d.cfg.Channels {
		c.URL = "http://" + addr.String()
		if d.unset("channel-identity") {
			c.Capabilities.Identity = "sim dev"
		}
		d.cfg.Channels[name] = c
	}
}

func (d *devRun) roles(ctx context.Context) error {
	w, err := openWorker(ctx, d.process, &d.cfg, devRole)
	if err != nil {
		return err
	}
	defer w.close()
	d.invite(w)
	w.started = func() { d.announce(w) }
	return w.runRoles(ctx, roleOutbox, roleReconciler, roleConsumer, roleGateway)
}

// announce says where everything is. The address of the database holds its
// password, so it goes into a file that only this user can read.
func (d *devRun) announce(w *worker) {
	env, err := d.writeEnv(w)
	if err != nil {
		d.log.Warn().Err(err).Msg("the file for other terminals could not be written")
	}
	t := newTable(d.stdout)
	t.row("  kafka", strings.Join(d.cfg.Kafka.Brokers, ","))
	for name, c := range d.cfg.Channels {
		t.row("  channel "+name, c.URL+"/ledger/summary")
	}
	t.row("  http", w.edge.URL()+"/openapi.json")
	t.row("  metrics", "http://"+w.admin.Address()+"/metrics")
	t.row("  data", d.cfg.Dev.DataDir)
	if err := t.flush(); err != nil {
		d.log.Warn().Err(err).Msg("the addresses could not be printed")
	}
	fmt.Fprintf(d.stdout, `
  In another terminal:
    set -a; . %[1]s
    %[2]s publish --order order-1001 --amount 1999 --currency EUR
    %[2]s status KEY --caller shop
%[3]s
`, env, d.program(), d.curl())
}

func (d *devRun) writeEnv(w *worker) (string, error) {
	path := envFile(&d.cfg)
	text := fmt.Sprintf("SETTLEONCE_KAFKA_BROKERS=%s\nSETTLEONCE_POSTGRES_DSN='%s'\nSETTLEONCE_ADMIN_ADDRESS=%s\n",
		strings.Join(d.cfg.Kafka.Brokers, ","), d.cfg.Postgres.DSN, w.admin.Address())
	text += fmt.Sprintf("SETTLEONCE_REPLICATION=%d\n", d.cfg.Topics.Replication)
	text += fmt.Sprintf("EDGE=%s\nTOKEN=%s\n", w.edge.URL(), d.token)
	if channels := slices.Collect(maps.Values(d.cfg.Channels)); len(channels) == 1 {
		text += fmt.Sprintf("SETTLEONCE_CHANNEL_URL=%s\nSETTLEONCE_CHANNEL_IDENTITY='%s'\n", channels[0].URL, channels[0].Capabilities.Identity)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return path, fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}
