package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/backfill"
	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/schemas"
)

// backfillRows says how many old payments the test brings in; `make backfill-million` sets it, and has
// the database durable.
const backfillRows = "SETTLEONCE_TEST_BACKFILL_ROWS"

// Old payments come in beside live traffic: nothing of either is lost, and late retries of old payments,
// sent all the while, get the old outcome without a call to the provider.
func TestBackfillBesideTraffic(t *testing.T) {
	t.Parallel()
	rows, live := 20_000, 20*time.Millisecond
	var options []option
	if text := os.Getenv(backfillRows); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		rows, live = n, 5*time.Millisecond
		options = append(options, func(s *settings) { s.database = durable })
	}
	s := start(t, options...)
	s.warm()
	b := &oldPayments{s: s, rows: rows, seed: rand.Uint64()}
	b.write()
	traffic := s.payments(live)
	s.eventually("payments before the backfill", func() bool { return traffic.sent() >= 100 })
	before := time.Now()
	retries := b.retryAllTheWhile()
	report := b.bringIn()
	after := time.Now()
	s.eventually("a late retry", func() bool { return retries.sent() > 0 })
	retries.stop()
	s.eventually("payments after the backfill", func() bool { return traffic.sentSince(after) >= 100 })
	traffic.stop()

	require.EqualValues(t, rows, report.New())
	require.True(t, report.Finished)
	b.allThere()
	s.allSettledOnce(traffic.commands())
	b.answered(retries.commands())
	s.figures(report, before, after, len(retries.commands()))
	s.again(b)
}

// allSettledOnce: every live payment has its outcome, and one charge.
func (s *stack) allSettledOnce(commands []payment.Command) {
	s.t.Helper()
	s.eventually("all live payments succeeded", func() bool {
		var n int
		err := s.db.QueryRow(s.ctx, `SELECT count(*) FROM settleonce.payments WHERE caller = 'live' AND state = 4`).Scan(&n)
		return err == nil && n == len(commands)
	})
	ledger := s.ledger()
	for i := range commands {
		key := commands[i].Identity().ProviderKey(1)
		require.Equal(s.t, 1, ledger[key].Settled)
		delete(ledger, key)
	}
	for _, charge := range ledger {
		require.True(s.t, strings.HasPrefix(charge.Order, "order-"), "the charges that are left warmed the stack up: none is of an old payment")
	}
}

// again: a second run changes nothing.
func (s *stack) again(b *oldPayments) {
	s.t.Helper()
	report := b.bringIn()
	require.Zero(s.t, report.New())
	require.EqualValues(s.t, b.rows, report.Unchanged)
	b.allThere()
	s.t.Logf("a second run found everything there, at %.0f rows/s", float64(report.Read)/report.Seconds)
}

// durable is a database of this test's own, with every flush to disk that production has.
func durable(t testing.TB) string {
	t.Helper()
	folder, err := devstack.TempDir("settleonce-backfill-")
	require.NoError(t, err)
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{DataDir: filepath.Join(folder, "pg")})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, server.Stop(context.WithoutCancel(t.Context())))
		require.NoError(t, os.RemoveAll(folder))
	})
	dsn := server.DSN("postgres")
	_, err = schemas.Migrate(t.Context(), dsn)
	require.NoError(t, err)
	return dsn
}

// oldPayments is a file of an older system. Everything about a row follows from its number.
type oldPayments struct {
	s    *stack
	rows int
	seed uint64
	path string
	read atomic.Int64 // rows that were brought in so far
}

// command is the payment of a row, as its caller would repeat it.
func (b *oldPayments) command(row int) payment.Command {
	return payment.Command{
		IdempotencyKey: b.key(row), Caller: "shop", Operation: payment.OperationCharge, OrderID: "old-" + strconv.Itoa(row/2),
		Obligation: "old-" + strconv.Itoa(row/2) + "/" + strconv.Itoa(row%2%(1+row%3)), Amount: int64(row%1000 + 1), Currency: "EUR",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: time.Date(2026, 1, 1, 0, 0, row, 0, time.UTC),
	}
}

func (b *oldPayments) key(row int) uuid.UUID {
	if b.keyless(row) {
		return payment.ImportedKey("shop", payment.OperationCharge, strconv.Itoa(row))
	}
	key := uuid.NewSHA1(uuid.Nil, fmt.Appendf(nil, "%d/%d", b.seed, row))
	key[6] = key[6]&0x0f | 0x40
	return key
}

// keyless rows had no key of their own.
func (b *oldPayments) keyless(row int) bool { return row%10 == 9 }

func (b *oldPayments) outcome(row int) payment.State {
	switch {
	case row%20 == 3:
		return payment.Review
	case row%8 == 5:
		return payment.Declined
	default:
		return payment.Succeeded
	}
}

func (b *oldPayments) write() {
	t := b.s.t
	b.path = filepath.Join(t.TempDir(), "old.csv")
	file, err := os.Create(b.path)
	require.NoError(t, err)
	w := bufio.NewWriter(file)
	fmt.Fprintln(w, "id,key,order,obligation,cents,status,ref,created")
	for row := range b.rows {
		c, key, status, ref := b.command(row), "", "", ""
		if !b.keyless(row) {
			key = c.IdempotencyKey.String()
		}
		if state := b.outcome(row); state != payment.Review {
			status, ref = state.String(), "old-ref-"+strconv.Itoa(row)
		}
		fmt.Fprintf(w, "%d,%s,%s,%s,%d,%s,%s,%s\n", row, key, c.OrderID, c.Obligation, c.Amount, status, ref, c.IssuedAt.Format(time.RFC3339))
	}
	require.NoError(t, w.Flush())
	require.NoError(t, file.Close())
}

// bringIn is one run, as the command makes it, at the speed of the machine.
func (b *oldPayments) bringIn() backfill.Report {
	t := b.s.t
	source, err := backfill.OpenCSV(b.path, ',')
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close(b.s.ctx)) }()
	mapping, err := backfill.NewMapping(backfill.MappingConfig{
		Columns: map[string]string{
			"idempotencyKey": "key", "orderId": "order", "amount": "cents", "outcome": "status", "providerReference": "ref", "createdAt": "created",
		},
		Values: map[string]string{"caller": "shop", "channel": "sim", "currency": "EUR"},
	}, source.Columns())
	require.NoError(t, err)
	address, err := url.Parse(b.s.dsn)
	require.NoError(t, err)
	settings := address.Query()
	for _, name := range []string{"idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"} {
		settings.Set(name, "10min") // a pause of the machine does not end the run
	}
	address.RawQuery = settings.Encode()
	pool := b.s.openPool(address.String(), 2)
	report, err := backfill.Run(b.s.ctx, backfill.Config{
		Source: source, Mapping: mapping, Store: store.New(store.Config{Pool: pool, Topics: b.s.topics}), Name: "old.csv",
		Execute: true, Actor: "test", Reason: "test", Progress: func(read, _ int64) { b.read.Store(read) },
	})
	require.NoError(t, err)
	require.Zero(t, report.RefusedRows(), "%v", report.Examples)
	return report
}

// allThere compares every row with what is stored.
func (b *oldPayments) allThere() {
	t := b.s.t
	t.Helper()
	var all, states, items int
	require.NoError(t, b.s.db.QueryRow(b.s.ctx, `SELECT count(*), count(*) FILTER (WHERE state = 3 AND provider_reference IS NULL
		OR state <> 3 AND provider_reference LIKE 'old-ref-%') FROM settleonce.payments WHERE origin_topic = 'import:old.csv'`).Scan(&all, &states))
	require.NoError(t, b.s.db.QueryRow(b.s.ctx, `SELECT count(*) FROM settleonce.review_items WHERE kind = 'imported'`).Scan(&items))
	require.Equal(t, b.rows, all)
	require.Equal(t, b.rows, states)
	require.Equal(t, (b.rows+16)/20, items)
}

// answered: every late retry was told what the older system knew.
func (b *oldPayments) answered(retries []int) {
	t := b.s.t
	t.Helper()
	require.NotEmpty(t, retries)
	for _, row := range retries {
		c, want := b.command(row), payment.ReplyReplayed
		if b.outcome(row) == payment.Review {
			want = payment.ReplyPending
		}
		reply := b.s.waitReply(c.IdempotencyKey, want)
		require.True(t, reply.Replayed)
		require.Equal(t, b.outcome(row), reply.State)
		if want == payment.ReplyReplayed {
			require.Equal(t, "old-ref-"+strconv.Itoa(row), reply.Outcome.ProviderReference)
		}
	}
}

// ticking does something at an interval until it is stopped.
type ticking[T any] struct {
	mu   sync.Mutex
	made []T
	at   []time.Time
	stop func()
}

func (k *ticking[T]) commands() []T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]T(nil), k.made...)
}

func (k *ticking[T]) sent() int { return len(k.commands()) }

func (k *ticking[T]) sentSince(from time.Time) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, at := range k.at {
		if at.After(from) {
			n++
		}
	}
	return n
}

// every publishes what next returns, if it returns something.
func every[T any](s *stack, interval time.Duration, next func() (T, payment.Command, bool)) *ticking[T] {
	ctx, cancel := context.WithCancel(s.ctx)
	k := &ticking[T]{}
	var group sync.WaitGroup
	group.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			what, c, ok := next()
			if !ok {
				continue
			}
			k.mu.Lock()
			k.made, k.at = append(k.made, what), append(k.at, time.Now())
			k.mu.Unlock()
			group.Go(func() {
				r := s.record(c)
				for s.publish.Publish(s.ctx, kafka.Message{Topic: r.Topic, Key: r.Key, Value: r.Value}) != nil && s.ctx.Err() == nil {
					continue // unknown is not failed: the same key again
				}
			})
		}
	})
	k.stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	s.t.Cleanup(k.stop)
	return k
}

// payments is live traffic of a caller of its own.
func (s *stack) payments(interval time.Duration) *ticking[payment.Command] {
	return every(s, interval, func() (payment.Command, payment.Command, bool) {
		c := command(func(c *payment.Command) { c.Caller = "live" })
		return c, c, true
	})
}

// retryAllTheWhile repeats payments that were just brought in, as late clients do.
func (b *oldPayments) retryAllTheWhile() *ticking[int] {
	seen := map[int]bool{}
	return every(b.s, 20*time.Millisecond, func() (int, payment.Command, bool) {
		read := int(b.read.Load())
		if read == 0 {
			return 0, payment.Command{}, false
		}
		row := rand.N(read)
		if seen[row] || b.keyless(row) {
			return 0, payment.Command{}, false
		}
		seen[row] = true
		return row, b.command(row), true
	})
}

func (s *stack) eventually(what string, condition func() bool) {
	s.t.Helper()
	require.Eventually(s.t, condition, waitLong, tick, what)
}

// figures prints what the backfill took, and what live payments took beside it: from the time of the
// intent to the stored outcome.
func (s *stack) figures(report backfill.Report, before, after time.Time, retries int) {
	s.t.Helper()
	s.t.Logf("backfill: %d rows in %.1f s, %.0f rows/s; %d retries of old payments answered", report.Read, report.Seconds,
		float64(report.Read)/report.Seconds, retries)
	for _, phase := range []struct {
		name     string
		from, to time.Time
	}{{"before", before.Add(-time.Hour), before}, {"during", before, after}, {"after", after, after.Add(time.Hour)}} {
		var n int
		var p50, p99, longest float64
		require.NoError(s.t, s.db.QueryRow(s.ctx, `SELECT count(*), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), 0),
			coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), 0), coalesce(max(ms), 0)
			FROM (SELECT (extract(epoch FROM ended_at - issued_at) * 1000)::float8 AS ms FROM settleonce.payments
			    WHERE caller = 'live' AND state = 4 AND issued_at >= $1 AND issued_at < $2) AS live`, phase.from, phase.to).Scan(&n, &p50, &p99, &longest))
		s.t.Logf("live payments %s: %d, p50 %.1f ms, p99 %.1f ms, longest %.1f ms", phase.name, n, p50, p99, longest)
	}
}
