package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// plan is a node of what auto_explain says about a statement that ran.
type plan struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Parent   string  `json:"Parent Relationship"`
	Cond     string  `json:"Index Cond"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Removed  float64 `json:"Rows Removed by Filter"`
	Children []plan  `json:"Plans"`
}

type explained struct {
	Query string `json:"Query Text"`
	Plan  plan   `json:"Plan"`
}

// plans collects what ran on the store's pool.
type plans struct {
	mu  sync.Mutex
	all []explained
	bad []string
}

func (p *plans) notice(_ *pgconn.PgConn, n *pgconn.Notice) {
	_, text, ok := strings.Cut(n.Message, "plan:\n")
	if !ok {
		return
	}
	var e explained
	err := json.Unmarshal([]byte(text), &e)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.bad = append(p.bad, err.Error())
	}
	p.all = append(p.all, e)
}

func (p *plans) take() []explained {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// big are the tables that a hot statement must not read from end to end.
var big = map[string]bool{
	"payments": true, "open_payments": true, "obligation_holds": true, "outbox": true,
	"payment_history": true, "deliveries": true, "review_items": true,
}

// faults of a plan: scans without a condition, loops over a CTE or a function
// per row, and nodes that touch far more rows than the batch has.
func (n *plan) faults(most float64, inner bool) []string {
	var out []string
	say := func(format string, arguments ...any) { out = append(out, fmt.Sprintf(format, arguments...)) }
	scan := strings.HasSuffix(n.Type, "Scan")
	switch {
	case n.Type == "Seq Scan" && big[n.Relation]:
		say("sequential scan of %s", n.Relation)
	case scan && strings.HasPrefix(n.Type, "Index") && big[n.Relation] && n.Cond == "":
		say("scan of all of %s by an index", n.Relation)
	case inner && n.Type == "CTE Scan" && n.Loops > 1:
		say("a CTE is read %g times", n.Loops)
	}
	if touched := (n.Rows + n.Removed) * n.Loops; touched > most {
		say("%s %s touches %g rows", n.Type, n.Relation, touched)
	}
	for i := range n.Children {
		child := &n.Children[i]
		out = append(out, child.faults(most, inner || (n.Type == "Nested Loop" && child.Parent == "Inner"))...)
	}
	return out
}

// listen is a world whose store runs with auto_explain.
func listen(t *testing.T, mode string) (*world, *plans) {
	t.Helper()
	w := newWorld(t)
	cfg, err := pgxpool.ParseConfig(w.dsn)
	require.NoError(t, err)
	cfg.MaxConns = 1 // one session, whose statements are prepared early
	maps.Copy(cfg.ConnConfig.RuntimeParams, store.SessionSettings())
	maps.Copy(cfg.ConnConfig.RuntimeParams, map[string]string{
		"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_format": "json",
		"auto_explain.log_analyze": "on", "auto_explain.log_timing": "off", "auto_explain.log_level": "notice",
		"client_min_messages": "notice", "plan_cache_mode": mode, "statement_timeout": "5min",
	})
	p := &plans{}
	cfg.ConnConfig.OnNotice = p.notice
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w.store = store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()})
	w.store.CommitWithin(patience)
	return w, p
}

// work runs every hot statement on a batch of n, most of it fresh.
func (w *world) work(n int) {
	w.t.Helper()
	b := batch()
	b.Next = map[store.Partition]int64{{Topic: "payment.commands"}: w.offset.Load() + int64(n)}
	b.LeaseFor = time.Millisecond // picked again below
	for len(b.Arrivals) < n {
		c := command()
		old := command()
		old.IssuedAt = old.IssuedAt.Add(-30 * 24 * time.Hour)
		b.Arrivals = append(b.Arrivals, w.arriveAll(c, command(), command(), command(), c, old, command(), command())...)
	}
	out, err := w.store.Claim(w.t.Context(), b)
	require.NoError(w.t, err)
	var steps []store.Step
	var wakes []store.Wake
	var ids []uuid.UUID
	for i := range out {
		if out[i].Verdict != store.Claimed {
			continue
		}
		id := out[i].Payment.ID
		steps = append(steps, store.Step{Payment: id, WithGround: true, Decide: requery})
		wakes = append(wakes, store.Wake{Payment: id, Query: 1})
		ids = append(ids, id)
	}
	require.NotEmpty(w.t, steps)
	applied, err := w.store.Apply(w.t.Context(), steps)
	require.NoError(w.t, err)
	require.Equal(w.t, payment.Unknown, applied[0].After.State)
	_, err = w.store.PickWoken(w.t.Context(), 99, time.Millisecond, wakes)
	require.NoError(w.t, err)
	_, err = w.store.PickDue(w.t.Context(), 100, time.Millisecond, 0, n)
	require.NoError(w.t, err)
	for i := range steps {
		steps[i].WithGround, steps[i].Decide = false, always(finish(payment.Succeeded))
	}
	_, err = w.store.Apply(w.t.Context(), steps[:len(steps)-5]) // some stay open
	require.NoError(w.t, err)
	_, err = w.store.Read(w.t.Context(), ids)
	require.NoError(w.t, err)
}

// requery is a send without an answer, due at once.
func requery(l store.Locked) *store.Change {
	open := *l.Open
	open.Lease, open.LeaseUntil, open.NextCheckAt = 0, l.Now, l.Now
	return &store.Change{To: payment.Unknown, Event: payment.EventUnknown, Requery: 1, Open: &open, Cause: "timeout", Actor: "test"}
}

// TestPlansOnFreshTables: prepared while every table was empty and never
// analyzed, the hot statements still join small arrays to indexes, and still do
// with tens of thousands of rows, in generic and in custom plans.
func TestPlansOnFreshTables(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"auto", "force_generic_plan"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w, p := listen(t, mode)
			w.exec(`ALTER TABLE settleonce.payments SET (autovacuum_enabled = off)`)
			w.exec(`ALTER TABLE settleonce.open_payments SET (autovacuum_enabled = off)`)
			for range 8 {
				w.work(8) // prepared and, after five runs, generic
			}
			p.take()
			w.work(500)
			w.refuse(p, 500)
			w.fill(50000)
			w.work(500)
			w.refuse(p, 500)
		})
	}
}

// refuse fails on any fault of the plans seen since.
func (w *world) refuse(p *plans, n float64) {
	w.t.Helper()
	seen := p.take()
	require.Empty(w.t, p.bad)
	require.Greater(w.t, len(seen), 15)
	for i := range seen {
		faults := seen[i].Plan.faults(4*n, false)
		if len(faults) > 0 {
			w.t.Errorf("%s\n%s", strings.Join(faults, "\n"), seen[i].Query)
		}
	}
}

// fill adds many ended payments, and as many open ones, without an ANALYZE.
func (w *world) fill(n int) {
	w.t.Helper()
	w.exec(`INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version, namespace,
			obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity,
			provider_key, state, version, attempt, sends, origin_topic, origin_partition, origin_offset, origin_time, issued_at,
			latest_issued_at, ended_at)
		SELECT gen_random_uuid(), 'shop', 'charge', gen_random_uuid(), '\x00', 1, 'shop', 'filled-' || i, i, 'filled-' || i, 1, 'EUR',
			'c', 'm', 'sim', 'sim', gen_random_uuid(), 1 + 3 * (i % 2), 0, 1, 1, 't', 0, i, now(), now(), now(),
			CASE WHEN i % 2 = 1 THEN now() END
		FROM generate_series(1, $1::int) AS i`, n)
	w.exec(`INSERT INTO settleonce.open_payments (payment, channel, lease, lease_until, next_check_at, sends)
		SELECT id, 'sim', 1, now() + interval '1 hour', now() + interval '1 hour', 1 FROM settleonce.payments
		WHERE state = 1 AND NOT EXISTS (SELECT FROM settleonce.open_payments WHERE payment = id)`)
	w.exec(`INSERT INTO settleonce.obligation_holds SELECT namespace, obligation, id FROM settleonce.payments
		WHERE state = 1 ON CONFLICT DO NOTHING`)
	w.exec(`INSERT INTO settleonce.payment_history (payment, at, state, version, attempt, send, actor)
		SELECT id, now() - interval '1 day', state, 0, 1, 1, 'test' FROM settleonce.payments`)
	w.exec(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason)
		SELECT id, 'unresolved', namespace, obligation, obligation_hash, true, 'filled' FROM settleonce.payments WHERE obligation LIKE 'filled%'`)
	w.exec(`INSERT INTO settleonce.deliveries (payment, topic, partition, "offset", kind, state, version)
		SELECT id, 't', 0, 0, 'pending', 1, 0 FROM settleonce.payments`)
}

// TestUpdatesStayHOT: from claim to outcome a payment's row is updated in place,
// with no new index entries.
func TestUpdatesStayHOT(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		var steps []store.Step
		b := batch()
		for range 100 {
			c := command()
			b.Arrivals = append(b.Arrivals, w.arrive(c))
			steps = append(steps, store.Step{Payment: idOf(c), Decide: always(finish(payment.Succeeded))})
		}
		_, err := w.store.Claim(t.Context(), b)
		require.NoError(t, err)
		_, err = w.store.Apply(t.Context(), steps)
		require.NoError(t, err)
	}
	w.pool.Close() // its sessions report
	w.eventually("the statistics are there", `SELECT n_tup_upd >= 2000 FROM pg_stat_user_tables WHERE relname = 'payments'`)
	updates := w.count(`SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'payments'`)
	hot := w.count(`SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'payments'`)
	t.Logf("%d of %d updates were HOT", hot, updates)
	require.GreaterOrEqual(t, hot*100, updates*90)
}
