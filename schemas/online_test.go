package schemas_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/schemas"
)

const (
	wait     = 5 * time.Minute
	oftenish = 5 * time.Millisecond
	// patience of a migrator in tests: far more than the statements of the traffic take.
	lockTimeout = 200 * time.Millisecond
)

// released is the schema of the first version, and what tests add to it.
func released(t *testing.T, more map[string]string) fs.FS {
	t.Helper()
	files, err := schemas.Files()
	require.NoError(t, err)
	first, err := fs.ReadFile(files, "00001_payments.sql")
	require.NoError(t, err)
	out := fstest.MapFS{"00001_payments.sql": {Data: first}}
	for name, text := range more {
		out[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

// installed is a database of the first version with payments in it.
func installed(t *testing.T) (string, *pgxpool.Pool) {
	t.Helper()
	dsn := pgtest.DSN(t, nil)
	_, err := schemas.MigrateFiles(t.Context(), dsn, released(t, nil), lockTimeout, 10)
	require.NoError(t, err)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for range 500 {
		_, err := pool.Exec(t.Context(), claimOfVersion1, uuid.New())
		require.NoError(t, err)
	}
	return dsn, pool
}

// claimOfVersion1 and endOfVersion1 are what the first binary does to the tables, in short: it keeps
// running while the database is migrated.
//
//nolint:dupword // It is SQL.
const claimOfVersion1 = `
WITH ins AS (
    INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version, namespace,
        obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity,
        provider_key, state, version, attempt, sends, origin_topic, origin_partition, origin_offset, origin_time, issued_at,
        latest_issued_at)
    VALUES ($1::uuid, 'shop', 'charge', $1::uuid, '\x01', 1, 'shop', $1::uuid::text, hashtext($1::uuid::text), $1::uuid::text, 1999, 'EUR', 'cust', 'tok',
        'sim', 'sim', $1::uuid, 1, 0, 1, 1, 'payment.commands', 0, 0, now(), now(), now())
    ON CONFLICT (id) DO NOTHING RETURNING id
), opened AS (
    INSERT INTO settleonce.open_payments (payment, channel, lease, lease_until, next_check_at, sends)
    SELECT id, 'sim', 1, now(), now(), 1 FROM ins
), held AS (
    INSERT INTO settleonce.obligation_holds (namespace, obligation, payment) SELECT 'shop', id::text, id FROM ins
), history AS (
    INSERT INTO settleonce.payment_history (payment, state, version, attempt, send, actor) SELECT id, 1, 0, 1, 1, 'consumer' FROM ins
), told AS (
    INSERT INTO settleonce.deliveries (payment, topic, partition, "offset", kind, state, version)
    SELECT id, 'payment.commands', 0, 0, 'pending', 1, 0 FROM ins
)
SELECT suspect FROM settleonce.installation`

const endOfVersion1 = `
WITH ended AS (
    UPDATE settleonce.payments SET state = 4, version = 1, provider_reference = 'ref', updated_at = now(), ended_at = now()
    WHERE id = $1 AND state = 1 RETURNING id
), opened AS (DELETE FROM settleonce.open_payments WHERE payment = $1
), held AS (DELETE FROM settleonce.obligation_holds WHERE payment = $1
), item AS (INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason)
    SELECT id, 'unresolved', 'shop', id::text, 0, false, 'test' FROM ended
), message AS (INSERT INTO settleonce.outbox (shard, id, aggregatetype, type) SELECT 0, id, 'payment.events', 'payment.succeeded' FROM ended
) SELECT count(*) FROM ended`

// traffic is workers of the first version at work.
type traffic struct {
	t      *testing.T
	cancel context.CancelFunc
	group  sync.WaitGroup
	done   [workers]atomic.Int64
	failed atomic.Pointer[error]
}

const workers = 3

func startTraffic(t *testing.T, pool *pgxpool.Pool) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &traffic{t: t, cancel: cancel}
	for i := range w.done {
		w.group.Go(func() {
			for ctx.Err() == nil {
				if err := pay(ctx, pool); err != nil {
					if ctx.Err() == nil {
						w.failed.Store(&err)
					}
					return
				}
				w.done[i].Add(1)
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

// pay claims and ends one payment, under the settings of a worker but for the bound on locks: a
// machine that pauses a step, which holds one then, makes it fail nobody.
func pay(ctx context.Context, pool *pgxpool.Pool) error {
	id := uuid.New()
	for _, statement := range []string{claimOfVersion1, endOfVersion1} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '2min'`); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, statement, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// goesOn waits until each worker has made n more payments: none of them waits for anything.
func (w *traffic) goesOn(n int64, when string) {
	w.t.Helper()
	var from [workers]int64
	for i := range w.done {
		from[i] = w.done[i].Load()
	}
	require.Eventually(w.t, func() bool {
		all := true
		for i := range w.done {
			all = all && w.done[i].Load() >= from[i]+n
		}
		return all || w.failed.Load() != nil
	}, wait, oftenish, when)
	w.healthy(when)
}

func (w *traffic) healthy(when string) {
	w.t.Helper()
	if err := w.failed.Load(); err != nil {
		require.NoError(w.t, *err, when)
	}
}

func (w *traffic) stop() {
	w.cancel()
	w.group.Wait()
}

// report holds a transaction open that has read a table: its lock and its snapshot stay.
func report(t *testing.T, pool *pgxpool.Pool, table string) (end func()) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	var rows int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM settleonce."+table).Scan(&rows))
	var once sync.Once
	end = func() { once.Do(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) }
	t.Cleanup(end)
	return end
}

type migrated struct {
	steps []schemas.Migration
	err   error
}

func inBackground(ctx context.Context, migrate func(context.Context) ([]schemas.Migration, error)) <-chan migrated {
	out := make(chan migrated, 1)
	go func() {
		steps, err := migrate(ctx)
		out <- migrated{steps, err}
	}()
	return out
}

func result(t *testing.T, from <-chan migrated) migrated {
	t.Helper()
	select {
	case m := <-from:
		return m
	case <-time.After(wait):
		require.Fail(t, "the migration does not end")
		return migrated{}
	}
}

// The released version, with rows, under traffic of its own binaries and beside a report that has read
// every table that is in use, becomes the newest one. Payments go on all the while.
func TestMigrateToNewestBesideTraffic(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"payments", "installation", "open_payments", "outbox", "review_items"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			dsn, pool := installed(t)
			files, err := schemas.Files()
			require.NoError(t, err)
			w := startTraffic(t, pool)
			w.goesOn(7, "before")
			end := report(t, pool, table)
			background := inBackground(t.Context(), func(ctx context.Context) ([]schemas.Migration, error) {
				return schemas.MigrateFiles(ctx, dsn, files, lockTimeout, 10_000)
			})
			w.goesOn(34, "while the report is open: somebody waits for it")
			end()
			m := result(t, background)
			require.NoError(t, m.err)
			w.goesOn(7, "afterwards")
			w.stop()
			latest, err := schemas.Latest()
			require.NoError(t, err)
			require.Equal(t, latest, m.steps[len(m.steps)-1].Version)
			var invalid int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_index WHERE NOT indisvalid`).Scan(&invalid))
			require.Zero(t, invalid)
		})
	}
}

// A step that needs a lock gives way, over and over, until it gets it.
func TestMigrateGivesWayToTraffic(t *testing.T) {
	t.Parallel()
	dsn, pool := installed(t)
	w := startTraffic(t, pool)
	end := report(t, pool, "payments")
	files := released(t, map[string]string{"00002_add.sql": "-- +goose Up\nALTER TABLE settleonce.payments ADD COLUMN note text;\n"})
	background := inBackground(t.Context(), func(ctx context.Context) ([]schemas.Migration, error) {
		return schemas.MigrateFiles(ctx, dsn, files, lockTimeout, 10_000)
	})
	require.Eventually(t, func() bool { return waiting(t, pool, "ALTER TABLE") }, wait, oftenish)
	w.goesOn(34, "while the step waits")
	require.Empty(t, background)
	end()
	m := result(t, background)
	require.NoError(t, m.err)
	require.Len(t, m.steps, 1)
	w.goesOn(4, "afterwards")
}

func waiting(t *testing.T, pool *pgxpool.Pool, statement string) bool {
	t.Helper()
	var found bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND query LIKE '%' || $1 || '%')`, statement).Scan(&found))
	return found
}

// An index is built while an old snapshot is open: the build waits for it, longer than any lock_timeout,
// and nobody waits for the build.
func TestMigrateBuildsIndexBesideOldSnapshot(t *testing.T) {
	t.Parallel()
	dsn, pool := installed(t)
	w := startTraffic(t, pool)
	end := report(t, pool, "deliveries")
	background := inBackground(t.Context(), func(ctx context.Context) ([]schemas.Migration, error) {
		return schemas.MigrateFiles(ctx, dsn, released(t, map[string]string{"00002_index.sql": indexStep("")}), time.Millisecond, 1)
	})
	require.Eventually(t, func() bool { return waiting(t, pool, "CONCURRENTLY") }, wait, oftenish)
	w.goesOn(67, "while the build waits")
	require.Empty(t, background)
	end()
	require.NoError(t, result(t, background).err)
	require.True(t, valid(t, pool, "deliveries_kind"))
}

func indexStep(unique string) string {
	return "-- +goose NO TRANSACTION\n-- +goose Up\nCREATE " + unique +
		" INDEX CONCURRENTLY IF NOT EXISTS deliveries_kind ON settleonce.deliveries (kind);\n"
}

func valid(t *testing.T, pool *pgxpool.Pool, index string) bool {
	t.Helper()
	var ok bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT coalesce(bool_and(i.indisvalid), false) FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname = $1`, index).Scan(&ok))
	return ok
}

// A build that failed leaves an index that is none. The next run does not take it for one.
func TestMigrateBuildsInvalidIndexAnew(t *testing.T) {
	t.Parallel()
	dsn, pool := installed(t)
	files := released(t, map[string]string{"00002_index.sql": indexStep("UNIQUE")})
	_, err := schemas.MigrateFiles(t.Context(), dsn, files, lockTimeout, 10_000)
	require.ErrorContains(t, err, "deliveries_kind")
	require.False(t, valid(t, pool, "deliveries_kind"))
	_, err = pool.Exec(t.Context(), `DELETE FROM settleonce.deliveries`)
	require.NoError(t, err)
	steps, err := schemas.MigrateFiles(t.Context(), dsn, files, lockTimeout, 10_000)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	require.True(t, valid(t, pool, "deliveries_kind"))
}

// A table that stays locked ends in a sentence that names who holds it, and in no half of a step.
func TestMigrateSaysWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	dsn, pool := installed(t)
	end := report(t, pool, "payments")
	files := released(t, map[string]string{
		"00002_new.sql": "-- +goose Up\nCREATE TABLE settleonce.extra (id int);\n",
		"00003_add.sql": "-- +goose Up\nCREATE TABLE settleonce.more (id int);\nALTER TABLE settleonce.payments ADD COLUMN note text;\n",
	})
	steps, err := schemas.MigrateFiles(t.Context(), dsn, files, 50*time.Millisecond, 3)
	require.ErrorContains(t, err, "a table stayed locked by the transaction of process")
	require.Len(t, steps, 1, "what was done is told")
	end()
	steps, err = schemas.MigrateFiles(t.Context(), dsn, files, lockTimeout, 10_000)
	require.NoError(t, err)
	require.Len(t, steps, 1)
	require.True(t, strings.HasPrefix(steps[0].Name, "00003"))
}

// Several migrators at once: each step is taken once, and nobody fails.
func TestMigratorsTakeTurns(t *testing.T) {
	t.Parallel()
	dsn, _ := installed(t)
	more := map[string]string{"00009_index.sql": strings.ReplaceAll(indexStep(""), "00002", "00009")}
	for i := 2; i < 9; i++ {
		more[fmt.Sprintf("0000%d_table.sql", i)] = fmt.Sprintf("-- +goose Up\nCREATE TABLE settleonce.extra_%d (id int);\n", i)
	}
	files := released(t, more)
	var running []<-chan migrated
	for range 3 {
		running = append(running, inBackground(t.Context(), func(ctx context.Context) ([]schemas.Migration, error) {
			return schemas.MigrateFiles(ctx, dsn, files, lockTimeout, 10_000)
		}))
	}
	steps := 0
	for _, r := range running {
		m := result(t, r)
		require.NoError(t, m.err)
		steps += len(m.steps)
	}
	require.Equal(t, 8, steps)
}
