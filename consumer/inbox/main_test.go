package inbox_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a downstream service's: a broker, a database, and a table of effects.
type world struct {
	t         *testing.T
	cluster   *kfake.Cluster
	pool      *pgxpool.Pool
	client    *kafka.Client
	publisher *kafka.Publisher
}

const partitions = 4

func newWorld(t *testing.T) *world {
	t.Helper()
	topics := payment.NewTopics("")
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics.Events, topics.Replies, topics.DeadLetter))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kafka.NewClient(kafka.Config{Brokers: cluster.ListenAddrs()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	publisher, err := client.NewPublisher(kafka.PublisherConfig{Timeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close(context.Background())) })
	return &world{t: t, cluster: cluster, pool: pgtest.New(t, migrate), client: client, publisher: publisher}
}

// migrate makes the inbox's tables and that of the service.
func migrate(ctx context.Context, dsn string) error {
	if err := inbox.Migrate(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, `CREATE TABLE tasks (n bigint GENERATED ALWAYS AS IDENTITY, order_id text NOT NULL, version int NOT NULL,
		UNIQUE (order_id, version) DEFERRABLE INITIALLY DEFERRED)`)
	return err
}

// event is a fact about an order; the payment and its key follow from the order.
func event(order string, version int) payment.Event {
	return payment.Event{
		PaymentID: uuid.NewSHA1(uuid.NameSpaceOID, []byte(order)), IdempotencyKey: uuid.NewSHA1(uuid.NameSpaceURL, []byte(order)),
		Caller: "shop", Operation: payment.OperationCharge, OrderID: order, Obligation: order, Amount: 1999, Currency: "EUR", Channel: "sim",
		State: payment.Succeeded, Version: version, Attempt: 1, OccurredAt: time.Now().UTC(),
	}
}

// message is the event as the relay publishes it.
func message(e payment.Event, at time.Time) kafka.Message {
	return kafka.Message{
		Topic: payment.NewTopics("").Events, Key: []byte(e.IdempotencyKey.String()), Value: e.AppendJSON(nil),
		Headers: []kafka.Header{
			{Key: "ce_id", Value: []byte(payment.EventID(e.PaymentID, e.Version, payment.EventSucceeded).String())},
			{Key: "ce_type", Value: []byte(payment.EventSucceeded)},
			{Key: "ce_time", Value: []byte(at.UTC().Format(time.RFC3339Nano))},
		},
	}
}

func (w *world) publish(messages ...kafka.Message) {
	w.t.Helper()
	require.NoError(w.t, w.publisher.Publish(w.t.Context(), messages...))
}

func (w *world) events(order string, versions ...int) {
	w.t.Helper()
	for _, version := range versions {
		w.publish(message(event(order, version), time.Now()))
	}
}

// work is the handler of most tests: one task for each event.
func work(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
	e, err := m.Event()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO tasks (order_id, version) VALUES ($1, $2)", e.OrderID, e.Version)
	return err
}

// run starts an inbox, and returns it with what stops it.
func (w *world) run(handler inbox.Handler, change func(*inbox.Config)) (in *inbox.Inbox, stop func()) {
	w.t.Helper()
	cfg := inbox.Config{
		Name: "packing", Topics: []string{"payment.events"}, Handler: handler, Pool: w.pool, Brokers: w.cluster.ListenAddrs(),
		Attempts: 2, Logger: zerolog.New(zerolog.NewTestWriter(w.t)),
		// A pause of the machine is neither a silent member nor a slow handler.
		SessionTimeout: time.Minute, Timeout: 5 * time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	in, err := inbox.New(cfg)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return in.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, group.Wait())
		require.NoError(w.t, in.Close(context.Background()))
	})
	w.t.Cleanup(stop)
	return in, stop
}

// handled waits until the inbox has finished n deliveries.
func (w *world) handled(in *inbox.Inbox, n uint64) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		s := in.Stats()
		return s.Applied+s.Repeated+s.DeadLettered >= n
	}, 5*time.Minute, 5*time.Millisecond, "%+v", in.Stats())
}

// ownPool is a pool whose sessions can be told from those that look at what was done.
func (w *world) ownPool(name string) *pgxpool.Pool {
	w.t.Helper()
	config := w.pool.Config()
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(w.t, err)
	w.t.Cleanup(pool.Close)
	return pool
}

// tasks are what the handler did, per order, in the order of the commits.
func (w *world) tasks() map[string][]int {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), "SELECT order_id, version FROM tasks ORDER BY n")
	require.NoError(w.t, err)
	found := map[string][]int{}
	var order string
	var version int
	_, err = pgx.ForEachRow(rows, []any{&order, &version}, func() error {
		found[order] = append(found[order], version)
		return nil
	})
	require.NoError(w.t, err)
	return found
}

func (w *world) count(sql string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), sql).Scan(&n))
	return n
}

// deadLetters are the headers of what was put into the dead letters, with the
// value under "".
func (w *world) deadLetters() (found []map[string]string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { // one try has some seconds
		found = nil
		return w.client.ReadAll(w.t.Context(), payment.NewTopics("").DeadLetter, func(r kafka.Record) error {
			headers := map[string]string{"": string(r.Value)}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			found = append(found, headers)
			return nil
		}) == nil
	}, 5*time.Minute, 10*time.Millisecond)
	return found
}
