package e2e_test

import (
	"context"
	"flag"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/consumer"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/topics"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// stacksAtOnce is more than there are processors, for each of them: these tests
// wait for due times far more than they compute.
const stacksAtOnce = 3

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = flag.Set("test.parallel", strconv.Itoa(stacksAtOnce*runtime.GOMAXPROCS(0)))
	}
	pgtest.Main(withShared{m})
}

// stack is everything one test needs, started and stopped with it.
type stack struct {
	t       testing.TB
	ctx     context.Context //nolint:containedctx // a stack lives as long as its test
	set     settings
	brokers []string
	kafka   *kafka.Client
	topics  payment.Topics
	publish *kafka.Publisher
	watch   *watcher
	logs    *logs

	dsn   string
	proxy *proxy        // only where the test asks for it
	pool  *pgxpool.Pool // of the roles, through the proxy if there is one
	store *store.Store  // of the roles
	check *store.Store  // of the test: never through the proxy
	db    *pgxpool.Pool // of the test

	sim   *sim.Server
	front *front

	relays, consumers, reconcilers []*role
}

// settings are what a test may change before its stack starts, or before it
// starts another role.
type settings struct {
	behaviour   sim.Behaviour
	timeout     time.Duration // of each call of the channel
	caps        func(*channel.Capabilities)
	wrap        func(channel.Adapter) channel.Adapter
	noChannel   bool
	rules       settle.Rules
	callers     consumer.Callers
	consumer    func(*stack, *consumer.Config)
	ownTopics   map[string]string
	budget      store.QueryPolicy
	plan        func([]kafka.TopicSpec)
	stall       time.Duration
	unmatched   time.Duration // after which a callback without a payment is reported
	batch       int
	proxied     bool
	database    func(testing.TB) string // its address; nil: a test database
	tracer      *tracing.Tracer
	relays      int
	consumers   int
	reconcilers int
}

// option changes the settings.
type option func(*settings)

// start starts a stack: by default one of each role over a channel at its best.
func start(t testing.TB, options ...option) *stack {
	t.Helper()
	set := settings{
		behaviour: sim.DefaultBehaviour(), callers: consumer.AnyCaller{}, relays: 1, consumers: 1, reconcilers: 1,
		rules: settle.Rules{Lease: 20 * time.Second, WatchEvery: time.Second, WatchAtMost: 2 * time.Second}, timeout: 9 * time.Second,
		// Tests have far more unknowns than a real channel: give them the queries.
		budget: store.QueryPolicy{Floor: 200},
	}
	for _, o := range options {
		o(&set)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := &stack{t: t, ctx: ctx, set: set, topics: payment.NewTopics("").WithOwn(set.ownTopics), logs: &logs{t: t}}
	s.startBroker()
	s.startDatabase()
	s.startChannel()
	for range set.relays {
		s.startRelay()
	}
	for range set.consumers {
		s.startConsumer()
	}
	for range set.reconcilers {
		s.startReconciler()
	}
	return s
}

func behave(change func(*sim.Behaviour)) option {
	return func(s *settings) { change(&s.behaviour) }
}

func capable(change func(*channel.Capabilities)) option {
	return func(s *settings) { s.caps = change }
}

func ruled(change func(*settle.Rules)) option {
	return func(s *settings) { change(&s.rules) }
}

// brisk leases end soon, and calls sooner, for tests that wait for the end of one. Others outlast
// a pause of the machine: what was sent is answered in time.
func brisk(lease time.Duration) option {
	return func(s *settings) { s.rules.Lease, s.timeout = lease, lease/3 }
}

// only says how many of each role the stack starts with.
func only(relays, consumers, reconcilers int) option {
	return func(s *settings) { s.relays, s.consumers, s.reconcilers = relays, consumers, reconcilers }
}

// patient leases and calls outlast far longer pauses, for stacks where nobody waits for the end of one:
// a late answer is still the first outcome, without a query or an event of something unknown.
func patient(s *settings) { s.rules.Lease, s.timeout = 80*time.Second, 40*time.Second }

func proxied(s *settings) { s.proxied = true }

func (s *stack) startBroker() {
	t := s.t
	broker, err := devstack.StartKafka(devstack.KafkaConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	s.brokers = broker.Brokers()
	s.kafka, err = kafka.NewClient(kafka.Config{Brokers: s.brokers, Logger: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(s.kafka.Close)
	specs := plan(s.set.ownTopics)
	if s.set.plan != nil {
		s.set.plan(specs)
	}
	require.Eventually(t, func() bool {
		_, err := s.kafka.EnsureTopics(s.ctx, specs)
		return err == nil
	}, waitFor, tick, "create topics")
	s.publish, err = s.kafka.NewPublisher(kafka.PublisherConfig{Timeout: publishWithin})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.publish.Close(context.Background()) })
	s.watch = startWatcher(t, s.brokers, s.topics)
}

func plan(own map[string]string) []kafka.TopicSpec {
	const week = 7 * 24 * time.Hour
	return topics.Policy{
		Own: own, Partitions: 16, Replication: 1, Window: 2 * week, CommandsRetention: week, RequeryRetention: week, OutputRetention: week,
		DeadRetention: week, MaxCommandBytes: 1 << 20,
	}.Plan()
}

func (s *stack) startDatabase() {
	if s.set.database == nil {
		s.set.database = func(t testing.TB) string {
			t.Helper()
			return pgtest.DSN(t, pgtest.Schema)
		}
	}
	s.dsn = s.set.database(s.t)
	s.db = s.openOwnPool()
	s.check = store.New(store.Config{Pool: s.db, Topics: s.topics})
	roles := s.dsn
	if s.set.proxied {
		s.proxy, roles = startProxy(s.t, s.dsn)
	}
	s.pool = s.openPool(roles, 12)
	s.store = store.New(store.Config{Pool: s.pool, Topics: s.topics, Logger: s.logs.logger()})
}

// openOwnPool is for what the test itself looks at: none of it may fail for being late.
func (s *stack) openOwnPool() *pgxpool.Pool {
	config, err := pgxpool.ParseConfig(s.dsn)
	require.NoError(s.t, err)
	config.MaxConns, config.PingTimeout, config.ConnConfig.ConnectTimeout = 3, waitFor, waitFor
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	pool, err := pgxpool.NewWithConfig(s.ctx, config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

func (s *stack) openPool(dsn string, conns int) *pgxpool.Pool {
	var pool *pgxpool.Pool
	require.Eventually(s.t, func() bool {
		var err error
		pool, err = store.OpenPool(s.ctx, store.PoolConfig{DSN: dsn, MaxConns: conns})
		return err == nil
	}, waitFor, tick, "connect to the database")
	s.t.Cleanup(pool.Close)
	return pool
}

func (s *stack) startChannel() {
	server, err := sim.NewServer(filepath.Join(s.t.TempDir(), "ledger"), s.set.behaviour)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = server.Close() })
	s.sim = server
	s.front = startFront(s.t, server)
}

// registry is the channel as the settings have it now.
func (s *stack) registry() *channel.Registry {
	caps := s.set.behaviour.Capabilities("sim:test")
	caps.SubmitTimeout, caps.QueryTimeout = s.set.timeout, max(s.set.timeout, queryWithin)
	if s.set.caps != nil {
		s.set.caps(&caps)
	}
	adapter, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: "http://" + s.front.addr, Capabilities: caps})
	require.NoError(s.t, err)
	s.t.Cleanup(adapter.Close)
	entry := channel.Entry{Adapter: adapter, Capabilities: caps}
	if s.set.wrap != nil {
		entry.Adapter = s.set.wrap(adapter)
	}
	name := "sim"
	if s.set.noChannel {
		name = "other"
	}
	registry, err := channel.NewRegistry(map[string]channel.Entry{name: entry})
	require.NoError(s.t, err)
	return registry
}

func (s *stack) settler() *settle.Settler {
	rules := s.set.rules
	rules.Channels = s.registry()
	st, err := settle.New(settle.Config{
		Store: s.store, Rules: rules, Metrics: telemetry.NewMetrics("test"), Tracer: s.set.tracer, Logger: s.logs.logger(), DrainTimeout: 20 * time.Second,
	})
	require.NoError(s.t, err)
	return st
}

// command returns a valid command for an order of its own.
func command(change ...func(*payment.Command)) payment.Command {
	c := payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-" + uuid.NewString(),
		Amount: 1999, Currency: "EUR", CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
		IssuedAt: time.Now().UTC().Truncate(time.Millisecond),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// fault scripts what the channel does to the command.
func fault(text string) func(*payment.Command) {
	return func(c *payment.Command) { c.Metadata = map[string]string{"sim": text} }
}

// orderOf makes a command one for the order of another.
func orderOf(other payment.Command) func(*payment.Command) {
	return func(c *payment.Command) { c.OrderID = other.OrderID }
}

// issued moves the time of the intent.
func issued(by time.Duration) func(*payment.Command) {
	return func(c *payment.Command) { c.IssuedAt = c.IssuedAt.Add(by) }
}

// How long tests wait for what must come; nothing is timed by it.
const (
	waitFor       = 4 * time.Minute
	waitLong      = 5 * time.Minute
	publishWithin = 30 * time.Second
	// A query may take longer than a brisk lease: it is asked again then, and not one of the three.
	queryWithin = 9 * time.Second
	tick        = 25 * time.Millisecond
)
