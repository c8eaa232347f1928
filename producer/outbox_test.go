package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

const topic = "payment.commands"

func enqueue(t *testing.T, pool *pgxpool.Pool, cmds ...payment.Command) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, cmd := range cmds {
			if err := producer.EnqueueTx(t.Context(), tx, cmd); err != nil {
				return err
			}
		}
		return nil
	}))
}

func rows(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM settleonce_outbox.commands").Scan(&n))
	return n
}

func parked(t *testing.T, pool *pgxpool.Pool) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM settleonce_outbox.commands WHERE parked_reason IS NOT NULL").Scan(&n))
	return n
}

// run starts a publisher and returns what stops it and waits.
func run(t *testing.T, pool *pgxpool.Pool, p *producer.Producer, cfg producer.OutboxConfig) (stop func()) {
	t.Helper()
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 5 * time.Millisecond
	}
	cfg.PublishTimeout = 5 * time.Minute // a round that was cut short by a pause of the machine publishes again
	cfg.Logger = zerolog.New(zerolog.NewTestWriter(t))
	o, err := producer.NewOutboxPublisher(pool, p, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var group errgroup.Group
	group.Go(func() error { return o.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, group.Wait())
	})
	t.Cleanup(stop)
	return stop
}

func eventuallyEmpty(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return rows(t, pool) == 0 }, 90*time.Second, 10*time.Millisecond)
}

func TestOutboxMigrateRepeatsAndRaces(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, nil)
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return producer.OutboxMigrate(t.Context(), dsn) })
	}
	require.NoError(t, group.Wait())

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), producer.OutboxSQL())
	require.NoError(t, err, "the statements can be run again by another migrator")
}

// A service that may only enqueue can still call OutboxMigrate at its start.
func TestOutboxMigrateWithoutRights(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, producer.OutboxMigrate)
	name := fmt.Sprintf("settleonce_test_%d", time.Now().UnixNano())
	_, err := pool.Exec(t.Context(), "CREATE ROLE "+name+" LOGIN PASSWORD 'x'")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := pool.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name)
		require.NoError(t, err)
	})
	_, err = pool.Exec(t.Context(), "GRANT USAGE ON SCHEMA settleonce_outbox TO "+name+
		"; GRANT INSERT ON settleonce_outbox.commands TO "+name)
	require.NoError(t, err)

	cfg := pool.Config().ConnConfig.Copy()
	cfg.User, cfg.Password = name, "x"
	require.NoError(t, producer.OutboxMigrate(t.Context(), fmt.Sprintf("user=%s password=x host=%s port=%d dbname=%s sslmode=disable",
		name, cfg.Host, cfg.Port, cfg.Database)))
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return producer.EnqueueTx(t.Context(), tx, commands(t, 1)[0])
	}))
}

func TestEnqueueIsPartOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, producer.OutboxMigrate)
	_, err := pool.Exec(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY)")
	require.NoError(t, err)
	cmds := commands(t, 2)
	order := func(cmd payment.Command, end error) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "INSERT INTO orders VALUES ($1)", cmd.OrderID); err != nil {
				return err
			}
			if err := producer.EnqueueTx(t.Context(), tx, cmd); err != nil {
				return err
			}
			return end
		})
	}
	abandoned := errors.New("basket abandoned")
	require.ErrorIs(t, order(cmds[0], abandoned), abandoned)
	require.Zero(t, rows(t, pool), "no order, no command")
	require.NoError(t, order(cmds[1], nil))
	require.Equal(t, 1, rows(t, pool))
	require.Error(t, order(cmds[1], nil), "the order exists")
	require.Equal(t, 1, rows(t, pool))
}

func TestEnqueueRefusesInvalidAndLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 2)
	cmds[0].Amount = -5
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		err := producer.EnqueueTx(t.Context(), tx, cmds[0])
		require.ErrorIs(t, err, producer.ErrInvalid)
		return producer.EnqueueTx(t.Context(), tx, cmds[1])
	}))
	require.Equal(t, 1, rows(t, pool))
}

// What Debezium's outbox router reads: topic, key and value in the columns of its
// convention, and the very bytes a direct publish would send.
func TestEnqueueWritesDebeziumColumns(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmd := commands(t, 1)[0]
	db := stdlib.OpenDBFromPool(pool)
	defer func() { require.NoError(t, db.Close()) }()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, producer.EnqueueSQLTx(t.Context(), tx, cmd))
	require.NoError(t, tx.Commit())

	var id, aggregateType, aggregateID, typ string
	var payload []byte
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT id::text, aggregatetype, aggregateid, type, payload
FROM settleonce_outbox.commands`).Scan(&id, &aggregateType, &aggregateID, &typ, &payload))
	require.Equal(t, cmd.Identity().PaymentID().String(), id)
	require.Equal(t, "payment.commands", aggregateType)
	require.Equal(t, cmd.IdempotencyKey.String(), aggregateID)
	require.Equal(t, "payment.command", typ)
	require.Equal(t, string(cmd.AppendJSON(nil)), string(payload))

	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	cmd.Currency = "eur"
	require.ErrorIs(t, producer.EnqueueSQLTx(t.Context(), tx, cmd), producer.ErrInvalid)
	require.NoError(t, tx.Rollback())
}

func TestOutboxPublisherSendsAndDeletes(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "prod.")
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 25)
	enqueue(t, pool, cmds...)
	p := newProducer(t, cluster, func(c *producer.Config) { c.Prefix = "prod." })
	stop := run(t, pool, p, producer.OutboxConfig{BatchSize: 10})
	c := reader(t, cluster, "prod.payment.commands")
	byKey := make(map[string]payment.Command)
	for _, cmd := range cmds {
		byKey[cmd.IdempotencyKey.String()] = cmd
	}
	for _, record := range take(t, c, len(cmds)) {
		cmd := byKey[string(record.Key)]
		require.Equal(t, string(cmd.AppendJSON(nil)), string(record.Value))
		require.Equal(t, cmd.Identity().PaymentID().String(), header(record, "ce_id"))
		require.Equal(t, "/settleonce/producer/shop", header(record, "ce_source"))
	}
	eventuallyEmpty(t, pool)
	stop()
	requireNoMore(t, cluster, c, "prod.payment.commands")
}

// A publisher that dies between publish and delete: its command is published
// again, unchanged, so that the consumer answers the second one from the first (G2).
func TestOutboxPublisherKilledBetweenPublishAndDelete(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 3)
	enqueue(t, pool, cmds...)

	killer, err := pgx.Connect(t.Context(), pool.Config().ConnString())
	require.NoError(t, err)
	defer func() { require.NoError(t, killer.Close(t.Context())) }()
	var requests, killed atomic.Int32
	onProduce(cluster, func(*kmsg.ProduceRequest) {
		if requests.Add(1) > 1 {
			return
		}
		// The broker takes the request after this, with the database session gone.
		tag, err := killer.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction'`)
		if err == nil {
			killed.Add(int32(tag.RowsAffected()))
		}
	})
	p := newProducer(t, cluster, nil)
	stop := run(t, pool, p, producer.OutboxConfig{})
	c := reader(t, cluster, topic)
	records := take(t, c, 2*len(cmds))
	eventuallyEmpty(t, pool)
	stop()
	require.EqualValues(t, 1, killed.Load())
	values := make(map[string]string)
	times := make(map[string]int)
	for _, record := range records {
		key := string(record.Key)
		if first, again := values[key]; again {
			require.Equal(t, first, string(record.Value))
		}
		values[key] = string(record.Value)
		times[key]++
	}
	for _, cmd := range cmds {
		require.Equal(t, 2, times[cmd.IdempotencyKey.String()])
	}
	requireNoMore(t, cluster, c, topic)
}

func TestTwoOutboxPublishersShareTheWork(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	pool := pgtest.New(t, producer.OutboxMigrate)
	const total = 1000
	enqueue(t, pool, commands(t, total)...)
	for range 2 {
		run(t, pool, newProducer(t, cluster, nil), producer.OutboxConfig{BatchSize: 20})
	}
	c := reader(t, cluster, topic)
	seen := make(map[string]bool)
	for _, record := range take(t, c, total) {
		require.False(t, seen[string(record.Key)], "published twice without a fault")
		seen[string(record.Key)] = true
	}
	eventuallyEmpty(t, pool)
	requireNoMore(t, cluster, c, topic)
}

// A row with a lower number that commits late must not be passed over (B1).
func TestOutboxPublisherFindsLateCommits(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 3)
	open, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, producer.EnqueueTx(t.Context(), open, cmds[0]))
	undone, err := pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, producer.EnqueueTx(t.Context(), undone, cmds[1]))
	enqueue(t, pool, cmds[2])

	run(t, pool, newProducer(t, cluster, nil), producer.OutboxConfig{})
	c := reader(t, cluster, topic)
	require.Equal(t, cmds[2].IdempotencyKey.String(), string(take(t, c, 1)[0].Key))
	require.NoError(t, undone.Rollback(t.Context()))
	require.NoError(t, open.Commit(t.Context()))
	require.Equal(t, cmds[0].IdempotencyKey.String(), string(take(t, c, 1)[0].Key))
	eventuallyEmpty(t, pool)
	requireNoMore(t, cluster, c, topic)
}

// Messages of the service's own take the same way, with the same identity each time.
func TestOutboxPublisherSendsMessagesToo(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, "x-payment.commands", "x-shop.orders"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	pool := pgtest.New(t, producer.OutboxMigrate)
	m := producer.Message{ID: uuid.New(), Topic: "shop.orders", Key: "order-1", Type: "order.accepted", Payload: []byte(`{"order":"order-1"}`)}
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		for _, wrong := range []func(*producer.Message){
			func(m *producer.Message) { m.ID = uuid.Nil },
			func(m *producer.Message) { m.Topic = "payment.events" },
			func(m *producer.Message) { m.Topic = "shop orders" },
			func(m *producer.Message) { m.Key = "" },
			func(m *producer.Message) { m.Payload = nil },
			func(m *producer.Message) { m.Payload = []byte("accepted") },
			func(m *producer.Message) { m.Payload = []byte(`"` + strings.Repeat("x", 1_000_000) + `"`) },
		} {
			bad := m
			wrong(&bad)
			require.Error(t, producer.EnqueueMessageTx(t.Context(), tx, bad))
		}
		return errors.Join(producer.EnqueueMessageTx(t.Context(), tx, m), producer.EnqueueMessageTx(t.Context(), tx, m))
	}))
	stop := run(t, pool, newProducer(t, cluster, func(c *producer.Config) { c.Prefix = "x-" }), producer.OutboxConfig{})
	for _, record := range take(t, reader(t, cluster, "x-shop.orders"), 2) {
		require.Equal(t, "order-1", string(record.Key))
		require.JSONEq(t, `{"order":"order-1"}`, string(record.Value))
		require.Equal(t, m.ID.String(), header(record, "ce_id"))
		require.Equal(t, "order.accepted", header(record, "ce_type"))
	}
	eventuallyEmpty(t, pool)
	stop()
}

// Rows that are no commands are parked with the reason; the others go on.
func TestOutboxPublisherParksWhatIsNoCommand(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "", kfake.SeedTopics(1, "shop.orders"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.orders", Partitions: []int32{0}, Err: kerr.MessageTooLarge, Count: -1})
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 4)
	byHand := func(topic, key string, payload []byte) {
		_, err := pool.Exec(t.Context(), `INSERT INTO settleonce_outbox.commands (id, aggregatetype, aggregateid, type, payload)
VALUES (gen_random_uuid(), $1, $2, 'payment.command', $3)`, topic, key, payload)
		require.NoError(t, err)
	}
	byHand(topic, "k", []byte("not JSON"))
	byHand("payment.événements", cmds[0].IdempotencyKey.String(), cmds[0].AppendJSON(nil))
	byHand(topic, cmds[2].IdempotencyKey.String(), cmds[1].AppendJSON(nil))
	enqueue(t, pool, cmds[3])
	byHand("shop.orders", "order-1", []byte(`"larger than the topic takes"`))

	run(t, pool, newProducer(t, cluster, nil), producer.OutboxConfig{})
	c := reader(t, cluster, topic)
	require.Equal(t, cmds[3].IdempotencyKey.String(), string(take(t, c, 1)[0].Key))
	require.Eventually(t, func() bool { return parked(t, pool) == 4 }, 90*time.Second, 10*time.Millisecond)
	found, err := pool.Query(t.Context(), "SELECT coalesce(parked_reason, '') FROM settleonce_outbox.commands ORDER BY seq")
	require.NoError(t, err)
	reasons, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, reasons[0], "is not JSON")
	require.Contains(t, reasons[1], `aggregatetype is "payment.\u00e9v`)
	require.Contains(t, reasons[2], "must be the command's idempotencyKey")
	require.Contains(t, reasons[3], "too large for the topic")

	// Corrected by hand, the row goes on.
	_, err = pool.Exec(t.Context(), `UPDATE settleonce_outbox.commands SET aggregateid = $1, parked_reason = NULL
WHERE aggregateid = $2`, cmds[1].IdempotencyKey.String(), cmds[2].IdempotencyKey.String())
	require.NoError(t, err)
	require.Equal(t, cmds[1].IdempotencyKey.String(), string(take(t, c, 1)[0].Key))
}

// What is parked does not fail its round: nothing of it is tried again.
func TestOutboxPublisherParksAndGoesOn(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "", kfake.SeedTopics(1, "shop.orders"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.orders", Partitions: []int32{0}, Err: kerr.MessageTooLarge, Count: -1})
	pool := pgtest.New(t, producer.OutboxMigrate)
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return producer.EnqueueMessageTx(t.Context(), tx, producer.Message{
			ID: uuid.New(), Topic: "shop.orders", Key: "order-1", Type: "order.accepted", Payload: []byte(`{}`),
		})
	}))
	var log bytes.Buffer
	o, err := producer.NewOutboxPublisher(pool, newProducer(t, cluster, nil), producer.OutboxConfig{
		Logger: zerolog.New(&log), PublishTimeout: 5 * time.Minute,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return o.Run(ctx) })
	require.Eventually(t, func() bool { return parked(t, pool) == 1 }, 90*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, group.Wait())
	require.Contains(t, log.String(), "was parked")
	require.NotContains(t, log.String(), "unconfirmed, first: message too large")
}

// The rows of partitions that are not available fill the first batches; the row
// behind them still gets its turn (P14), and in the end nothing is lost.
func TestOutboxPublisherPassesUnavailablePartitions(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 60)
	for i := range cmds {
		for up := i == len(cmds)-1; (partitionOf(&cmds[i]) == 0) != up; {
			cmds[i].IdempotencyKey = uuid.New()
		}
	}
	enqueue(t, pool, cmds...)
	down := make([]int32, 0, partitions)
	for partition := int32(1); partition < partitions; partition++ {
		down = append(down, partition)
	}
	fault := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: down, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	p := newProducer(t, cluster, hasty)
	run(t, pool, p, producer.OutboxConfig{BatchSize: 20})
	c := reader(t, cluster, topic)
	require.Equal(t, cmds[59].IdempotencyKey.String(), string(take(t, c, 1)[0].Key))
	fault.Remove()
	takeKeys(t, c, 59) // some may come twice: their last try before was cut short
	eventuallyEmpty(t, pool)
}

func partitionOf(cmd *payment.Command) int {
	return kafka.Partition([]byte(cmd.IdempotencyKey.String()), partitions)
}

// Kafka does not answer at all: nothing is lost or deleted, and stopping is quick.
func TestOutboxPublisherOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	pool := pgtest.New(t, producer.OutboxMigrate)
	cmds := commands(t, 5)
	enqueue(t, pool, cmds...)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	p := newProducer(t, cluster, hasty)
	stop := run(t, pool, p, producer.OutboxConfig{})
	require.NoError(t, fault.Wait(t.Context(), 2))
	require.Equal(t, len(cmds), rows(t, pool))
	stop()
	fault.Remove()
	run(t, pool, p, producer.OutboxConfig{})
	c := reader(t, cluster, topic)
	takeKeys(t, c, len(cmds))
	eventuallyEmpty(t, pool)
}

func TestOutboxConfigSaysWhatToChange(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, nil)
	p := newProducer(t, broker(t, ""), nil)
	_, err := producer.NewOutboxPublisher(nil, p, producer.OutboxConfig{})
	require.ErrorContains(t, err, "pass both")
	_, err = producer.NewOutboxPublisher(pool, nil, producer.OutboxConfig{})
	require.ErrorContains(t, err, "pass both")
	for sentence, cfg := range map[string]producer.OutboxConfig{
		"use 1 to 1000":    {BatchSize: 1001},
		"use 1 ms or more": {PollInterval: -1},
		"use 1 s or more":  {PublishTimeout: time.Millisecond},
	} {
		_, err := producer.NewOutboxPublisher(pool, p, cfg)
		require.ErrorContains(t, err, sentence)
	}
}
