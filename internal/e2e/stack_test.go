package e2e_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"path/filepath"
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
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/reconciler"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stack is everything one test needs, started and stopped with it.
type stack struct {
	t       *testing.T
	ctx     context.Context
	pool    *pgxpool.Pool
	kafka   *kafka.Client
	store   *store.Store
	sim     *sim.Server
	topics  payment.Topics
	publish *kafka.Publisher
}

// option changes a stack before it starts.
type option func(*settings)

type settings struct {
	behaviour sim.Behaviour
	rules     settle.Rules
	callers   consumer.Callers
}

func start(t *testing.T, options ...option) *stack {
	t.Helper()
	set := settings{behaviour: sim.DefaultBehaviour(), callers: consumer.AnyCaller{}}
	for _, o := range options {
		o(&set)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &stack{t: t, ctx: ctx, topics: payment.NewTopics("")}
	t.Cleanup(cancel)
	s.startServers(set)
	registry := s.startChannel(set)
	s.startRoles(set, registry)
	return s
}

func (s *stack) startServers(set settings) {
	t := s.t
	broker, err := devstack.StartKafka(devstack.KafkaConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { broker.Close() })
	s.kafka, err = kafka.NewClient(kafka.Config{Brokers: broker.Brokers(), Logger: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(s.kafka.Close)
	_, err = s.kafka.EnsureTopics(s.ctx, plan())
	require.NoError(t, err)
	s.pool, err = store.OpenPool(s.ctx, store.PoolConfig{DSN: pgtest.DSN(t, pgtest.Schema), MaxConns: 24})
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	s.publish, err = s.kafka.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.publish.Close(context.Background()) })
}

func plan() []kafka.TopicSpec {
	const week = 7 * 24 * time.Hour
	return topics.Policy{
		Partitions: 16, Replication: 1, Window: 2 * week, CommandsRetention: week, RequeryRetention: week, OutputRetention: week,
		DeadRetention: week, MaxCommandBytes: 1 << 20,
	}.Plan()
}

func (s *stack) startChannel(set settings) *channel.Registry {
	t := s.t
	server, err := sim.NewServer(filepath.Join(t.TempDir(), "ledger"), set.behaviour)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	s.sim = server
	front := httptest.NewServer(server)
	t.Cleanup(front.Close)
	caps := set.behaviour.Capabilities("sim:test")
	caps.SubmitTimeout, caps.QueryTimeout = time.Second, time.Second
	adapter, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: front.URL, Capabilities: caps})
	require.NoError(t, err)
	t.Cleanup(adapter.Close)
	registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: adapter, Capabilities: caps}})
	require.NoError(t, err)
	return registry
}

func (s *stack) startRoles(set settings, registry *channel.Registry) {
	t := s.t
	log := zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	metrics := telemetry.NewMetrics("test")
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: s.pool, Kafka: s.kafka, Logger: log})
	require.NoError(t, err)
	s.store = store.New(store.Config{Pool: s.pool, Topics: s.topics, Wake: relay.Wake, Logger: log})
	set.rules.Channels = registry
	set.rules.Lease = 5 * time.Second
	settler := func() *settle.Settler {
		st, err := settle.New(settle.Config{Store: s.store, Rules: set.rules, Metrics: metrics, Logger: log})
		require.NoError(t, err)
		return st
	}
	c, err := consumer.New(consumer.Config{
		Kafka: s.kafka, Store: s.store, Settler: settler(), Callers: set.callers, Metrics: metrics, Logger: log,
	})
	require.NoError(t, err)
	r, err := reconciler.New(reconciler.Config{
		Kafka: s.kafka, Store: s.store, Settler: settler(), Metrics: metrics, Logger: log,
		// The mix of faults has far more unknowns than a real channel: give it the queries.
		Budget: store.QueryPolicy{Floor: 200},
	})
	require.NoError(t, err)
	s.run(relay.Run)
	s.run(c.Run)
	s.run(r.Run)
}

// run runs a role until the test ends, and waits for it.
func (s *stack) run(role func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan error, 1)
	go func() { done <- role(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		require.NoError(s.t, <-done)
	})
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

func (s *stack) send(commands ...payment.Command) {
	s.t.Helper()
	messages := make([]kafka.Message, len(commands))
	for i := range commands {
		messages[i] = kafka.Message{
			Topic: s.topics.Commands, Key: []byte(commands[i].IdempotencyKey.String()), Value: commands[i].AppendJSON(nil),
		}
	}
	require.NoError(s.t, s.publish.Publish(s.ctx, messages...))
}

// replies reads all replies to a key so far, in topic order.
func (s *stack) replies(key uuid.UUID) []payment.Reply {
	s.t.Helper()
	var out []payment.Reply
	require.NoError(s.t, s.kafka.ReadAll(s.ctx, s.topics.Replies, func(r kafka.Record) error {
		if string(r.Key) != key.String() {
			return nil
		}
		var reply payment.Reply
		if err := json.Unmarshal(r.Value, &reply); err != nil {
			return err
		}
		out = append(out, reply)
		return nil
	}))
	return out
}

// waitReply waits until a reply of the kind came for the key.
func (s *stack) waitReply(key uuid.UUID, kind payment.ReplyKind) payment.Reply {
	s.t.Helper()
	var found payment.Reply
	require.Eventually(s.t, func() bool {
		for _, r := range s.replies(key) {
			if r.Kind == kind {
				found = r
				return true
			}
		}
		return false
	}, 30*time.Second, 20*time.Millisecond, "no %s reply for %s", kind, key)
	return found
}

// waitState waits until the payment is in the state.
func (s *stack) waitState(c payment.Command, state payment.State) store.Status {
	s.t.Helper()
	var st store.Status
	require.Eventually(s.t, func() bool {
		var err error
		st, err = s.store.Status(s.ctx, c.Identity().PaymentID())
		return err == nil && st.Payment.State == state
	}, 40*time.Second, 20*time.Millisecond, "payment %s never %s", c.IdempotencyKey, state)
	return st
}

// settled is how often the channel took the money for a command.
func (s *stack) settled(c payment.Command) int {
	for _, charge := range s.sim.Charges() {
		if charge.ProviderKey == c.Identity().ProviderKey(1) {
			return charge.Settled
		}
	}
	return 0
}

// How long tests wait for what must come; nothing is timed by it.
const (
	waitFor  = 30 * time.Second
	waitLong = 90 * time.Second
	tick     = 20 * time.Millisecond
)
