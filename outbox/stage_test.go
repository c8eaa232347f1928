package outbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	// kafkaEnv names an Apache Kafka to test on instead of the embedded broker.
	kafkaEnv = "SETTLEONCE_TEST_KAFKA"

	// patience is for what must come, and longLease outlasts a pause of the machine: nothing is timed by them.
	// Relays that share look at each other six times in a lease.
	patience  = 5 * time.Minute
	longLease = time.Minute
)

// stage is a database and a cluster for one test.
type stage struct {
	t       testing.TB
	pool    *pgxpool.Pool
	brokers []string
	cluster *kfake.Cluster // nil on Apache Kafka
	name    string         // unique on a shared cluster
	events  string
	replies string
	admin   *kafka.Client
}

var serial atomic.Int64

// newDatabase is a stage without a cluster.
func newDatabase(t testing.TB) *stage {
	t.Helper()
	return &stage{
		t: t, name: fmt.Sprintf("t%d-%d-", time.Now().UnixNano(), serial.Add(1)), pool: pgtest.New(t, pgtest.Schema),
		events: "payment.events", replies: "payment.replies",
	}
}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := newDatabase(t)
	if list := os.Getenv(kafkaEnv); list != "" {
		s.brokers = strings.Split(list, ",")
	} else {
		s.startBroker()
	}
	s.admin = s.client(nil)
	s.events, s.replies = s.topic("payment.events"), s.topic("payment.replies")
	return s
}

func (s *stage) startBroker() {
	s.t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2))
	require.NoError(s.t, err)
	s.t.Cleanup(cluster.Close)
	s.cluster, s.brokers = cluster, cluster.ListenAddrs()
}

// embedded skips a test that needs the embedded broker's faults.
func (s *stage) embedded() *kfake.Cluster {
	s.t.Helper()
	if s.cluster == nil {
		s.t.Skip("needs the embedded broker")
	}
	return s.cluster
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func (s *stage) client(dial dialFunc) *kafka.Client {
	s.t.Helper()
	c, err := kafka.NewClient(kafka.Config{Brokers: s.brokers, Dial: dial, ConfirmTimeout: patience})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

func (s *stage) topic(name string) string {
	s.t.Helper()
	name = s.name + name
	require.Eventually(s.t, func() bool {
		_, err := s.admin.EnsureTopics(s.t.Context(), []kafka.TopicSpec{{Name: name, Partitions: 4, Replication: 1}})
		return err == nil
	}, patience, 50*time.Millisecond)
	return name
}

// message makes a message of a key that says which one it is.
func (s *stage) message(topic, key string, version int) Message {
	return Message{
		ID: uuid.New(), Topic: topic, Key: []byte(key), Type: "payment.succeeded",
		Payload: fmt.Appendf(nil, "%s/%d", key, version),
	}
}

func (s *stage) enqueue(messages ...Message) {
	s.t.Helper()
	ctx := s.t.Context()
	require.NoError(s.t, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return Enqueue(ctx, tx, messages...) }))
}

// rows counts rows of the outbox.
func (s *stage) rows(where string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM settleonce.outbox WHERE "+where, args...).Scan(&n))
	return n
}

func (s *stage) eventually(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, patience, 5*time.Millisecond, what)
}

func (s *stage) drained() {
	s.t.Helper()
	s.eventually("the outbox is empty", func() bool { return s.rows("true") == 0 })
}

// log reads everything in a topic, in the order of each partition.
func (s *stage) log(topic string) (records []*kgo.Record) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	var ends map[int]int64
	s.eventually("the broker says how long the topic is", func() (ok bool) { // one try has some seconds
		var err error
		ends, err = s.admin.EndOffsets(ctx, topic)
		return err == nil
	})
	var want int64
	for _, end := range ends {
		want += end
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
	require.NoError(s.t, err)
	defer cl.Close()
	for int64(len(records)) < want {
		fetches := cl.PollFetches(ctx)
		require.NoError(s.t, fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

// values are the payloads of a topic, by key, in their order.
func (s *stage) values(topic string) map[string][]string {
	s.t.Helper()
	byKey := make(map[string][]string)
	for _, r := range s.log(topic) {
		byKey[string(r.Key)] = append(byKey[string(r.Key)], string(r.Value))
	}
	return byKey
}

// actor is a running relay.
type actor struct {
	*Relay

	cancel context.CancelFunc
	stop   func() // waits until Run has returned; safe to call again
}

// relay prepares a relay without running it.
func (s *stage) relay(dial dialFunc, change ...func(*RelayConfig)) *Relay {
	s.t.Helper()
	cfg := RelayConfig{
		Pool: s.pool, Kafka: s.client(dial), TransactionalPrefix: s.name, Owner: "test",
		Lease: longLease, Sweep: 200 * time.Millisecond, Poll: 20 * time.Millisecond,
		Logger: zerolog.New(zerolog.NewTestWriter(s.t)).Level(zerolog.ErrorLevel),
	}
	for _, c := range change {
		c(&cfg)
	}
	r, err := NewRelay(cfg)
	require.NoError(s.t, err)
	return r
}

// alone gives a relay that shares with nobody a lease of which even a tenth, which is what a publish gets,
// outlasts a pause of the machine.
func alone(c *RelayConfig) { c.Lease = 4 * time.Minute }

func (s *stage) run(r *Relay) *actor {
	s.t.Helper()
	ctx, cancel := contextWithCancel(s.t)
	done := make(chan error, 1)
	go func() {
		done <- r.Run(ctx)
		close(done)
	}()
	a := &actor{Relay: r, cancel: cancel}
	a.stop = func() {
		s.t.Helper()
		cancel()
		require.NoError(s.t, <-done)
	}
	s.t.Cleanup(a.stop)
	return a
}

func (s *stage) start(change ...func(*RelayConfig)) *actor {
	s.t.Helper()
	return s.run(s.relay(nil, change...))
}

func contextWithCancel(tb testing.TB) (context.Context, context.CancelFunc) {
	tb.Helper()
	return context.WithCancel(context.WithoutCancel(tb.Context()))
}
