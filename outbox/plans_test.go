package outbox

import (
	"crypto/md5"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// A plan is made for the outbox as it is at some moment, and kept. None of the
// sizes it may have then may lead to one that reads the table from end to end,
// or loops over a list inside (PITFALLS, "Plans made on empty tables").
func TestHotStatementsKeepTheirPlan(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string][]string{
		"fresh":              nil,
		"analyzed empty":     {"ANALYZE settleonce.outbox", "ANALYZE settleonce.outbox_shards"},
		"vacuumed empty":     {"DELETE FROM settleonce.outbox", "VACUUM (ANALYZE) settleonce.outbox"},
		"large":              {fillSQL, "ANALYZE settleonce.outbox"},
		"large, many parked": {fillSQL, "UPDATE settleonce.outbox SET parked_reason = 'x' WHERE seq % 3 = 0", "ANALYZE settleonce.outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDatabase(t)
			for _, sql := range prepare {
				_, err := s.pool.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			for name, st := range hotStatements() {
				plan := s.explain("EXPLAIN ", st.sort, st.sql, st.args...)
				require.NotContains(t, plan, "Seq Scan", name)
				require.NotContains(t, plan, "CTE Scan", name)
				require.NotContains(t, plan, "Materialize", name)
				require.NotContains(t, plan, "Hash", name)
				for _, scan := range regexp.MustCompile(`Scan using (\w+) on outbox \w+`).FindAllStringSubmatch(plan, -1) {
					require.Contains(t, []string{"outbox_pkey", "outbox_parked"}, scan[1], name)
				}
				require.NotRegexp(t, `Scan using outbox_pkey on outbox p\b`, plan, name)
			}
		})
	}
}

const fillSQL = `INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, payload)
SELECT i % 16, md5(i::text)::uuid, 'payment.events', convert_to(i::text, 'UTF8'), 'payment.succeeded', '{}'
FROM generate_series(1, 20000) i`

type hotStatement struct {
	sql, sort string
	args      []any
}

// hotStatements are what a lane sends, with a batch of 500.
func hotStatements() map[string]hotStatement {
	var work []*shard
	for id := range int16(Shards) {
		work = append(work, &shard{id: id, epoch: 1, rowsLimit: 500})
	}
	read, readArgs, readSort := readStatement("me", work)
	for _, s := range work {
		s.wide = 2000
	}
	wide, wideArgs, wideSort := readStatement("me", work)
	l := leasesOf(work)
	rows, reasons := make([]rowID, 500), make([]string, 500)
	for i := range rows {
		rows[i] = rowID{int16(i % Shards), int64(i), uuid.UUID(md5.Sum([]byte(strconv.Itoa(i))))} // as fillSQL makes them
	}
	shards, seqs, ids := columns(rows)
	return map[string]hotStatement{
		"read":   {read, readSort, readArgs},
		"wide":   {wide, wideSort, wideArgs},
		"mark":   {markSQL, "off", []any{"me", l.shards, l.epochs, shards, seqs, ids}},
		"park":   {parkSQL, "off", []any{"me", l.shards, l.epochs, shards, seqs, ids, reasons}},
		"sweep":  {sweepSQL, "off", []any{l.shards, make([]int64, Shards)}},
		"parked": {parkedSQL, "off", nil},
	}
}

// explain shows the plan that a prepared statement keeps, under the settings of
// the relay.
func (s *stage) explain(how, sort, sql string, args ...any) string {
	s.t.Helper()
	var lines []string
	tx, err := s.pool.Begin(s.t.Context())
	require.NoError(s.t, err)
	defer func() { _ = tx.Rollback(s.t.Context()) }()
	_, err = tx.Exec(s.t.Context(), planSQL, sort)
	require.NoError(s.t, err)
	name := "hot_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err = tx.Exec(s.t.Context(), "PREPARE "+name+" AS "+sql)
	require.NoError(s.t, err)
	rows, err := tx.Query(s.t.Context(), how+"EXECUTE "+name+literals(args), pgx.QueryExecModeSimpleProtocol)
	require.NoError(s.t, err)
	lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return strings.Join(lines, "\n")
}

// literals writes arguments for EXECUTE, which takes no parameters.
func literals(args []any) string {
	if len(args) == 0 {
		return ""
	}
	list := make([]string, len(args))
	for i, a := range args {
		text := fmt.Sprint(a)
		if strings.HasPrefix(text, "[") {
			text = "{" + strings.ReplaceAll(strings.Trim(text, "[]"), " ", ",") + "}"
		}
		if texts, ok := a.([]string); ok {
			text = "{x" + strings.Repeat(",x", len(texts)-1) + "}"
		}
		list[i] = "'" + text + "'"
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// While somebody holds an old snapshot the index keeps an entry for every row
// ever published; reads do not wade through them (PITFALLS 17 to 19).
func TestReadsStayCheapUnderOldSnapshot(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	old, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = old.Rollback(t.Context()) }()
	var n int
	require.NoError(t, old.QueryRow(t.Context(), "SELECT count(*) FROM settleonce.outbox").Scan(&n))

	relay := s.start()
	for round := range 10 {
		var messages []Message
		for i := range 2000 {
			messages = append(messages, s.message(s.events, fmt.Sprint(round, "-", i), 0))
		}
		s.enqueue(messages...)
		s.drained()
	}
	s.enqueue(s.message(s.events, keyOf(4, "last"), 0))
	s.eventually("the marks have risen", func() bool {
		for shard := range int16(Shards) {
			if relay.from(shard) < 19_000 {
				return false
			}
		}
		return true
	})
	relay.stop()
	// Reads as they would go on now, and from the beginning.
	_, err = s.pool.Exec(t.Context(), "UPDATE settleonce.outbox_shards SET owner = 'me', epoch = 1, lease_until = 'infinity'")
	require.NoError(t, err)
	buffers := func(from int64) int {
		var work []*shard
		for id := range int16(Shards) {
			work = append(work, &shard{id: id, epoch: 1, rowsLimit: 500, mark: lowWater{from: from}})
		}
		sql, args, sort := readStatement("me", work)
		plan := s.explain("EXPLAIN (ANALYZE, BUFFERS) ", sort, sql, args...)
		hits, err := strconv.Atoi(regexp.MustCompile(`shared hit=(\d+)`).FindStringSubmatch(plan)[1])
		require.NoError(t, err)
		return hits
	}
	require.Greater(t, buffers(0), 10*buffers(19_000))
}

// The model's CHECK: every statement of the relay tests owner, epoch and lease
// itself, by the database's clock.
func TestEveryStatementChecksTheLease(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]string{
		"other owner":   "UPDATE settleonce.outbox_shards SET owner = 'other'",
		"other epoch":   "UPDATE settleonce.outbox_shards SET epoch = 2",
		"expired":       "UPDATE settleonce.outbox_shards SET lease_until = clock_timestamp()",
		"quiet":         "UPDATE settleonce.outbox_shards SET quiet_until = clock_timestamp() + interval '1 hour'",
		"still its own": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDatabase(t)
			for _, sql := range []string{
				"UPDATE settleonce.outbox_shards SET owner = 'me', epoch = 1, lease_until = clock_timestamp() + interval '1 hour'", fillSQL, lose,
			} {
				_, err := s.pool.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			held := lose == ""
			hot, l := hotStatements(), leases{[]int16{3}, []int64{1}}
			for name, sql := range map[string]string{"read": hot["read"].sql, "wide": hot["wide"].sql} {
				require.Equal(t, held, s.affects(sql, hot[name].args...), name)
			}
			held = held || name == "quiet"
			require.Equal(t, held, s.affects(markSQL, hot["mark"].args...), "mark")
			require.Equal(t, held, s.affects(parkSQL, hot["park"].args...), "park")
			require.Equal(t, held, s.affects(renewSQL, "me", l.shards, l.epochs, "1 hour"), "renew")
			require.Equal(t, held, s.affects(storeProducerSQL, "me", l.shards, l.epochs, []int64{1}, []int32{1}, "0"), "store")
			require.Equal(t, held || name == "expired", s.affects(releaseSQL, "me", l.shards, l.epochs), "release")
			require.Equal(t, name == "expired", s.affects(claimSQL, "me", "1 hour", 16, []int16{}), "claim")
		})
	}
}

// affects tells whether a statement returns or changes rows, and undoes it.
// G5: after commits were lost, numbers are given out again. A mark that is tried again
// does not take a message away that was never published.
func TestMarksMeetTheirOwnRowsOnly(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	for _, sql := range []string{
		"UPDATE settleonce.outbox_shards SET owner = 'me', epoch = 1, lease_until = clock_timestamp() + interval '1 hour'",
		fillSQL, "UPDATE settleonce.outbox SET id = gen_random_uuid()",
	} {
		_, err := s.pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	for _, name := range []string{"mark", "park"} {
		hot := hotStatements()[name]
		require.False(t, s.affects(hot.sql, hot.args...), name)
	}
}

func (s *stage) affects(sql string, args ...any) bool {
	s.t.Helper()
	tx, err := s.pool.Begin(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, tx.Rollback(s.t.Context())) }()
	tag, err := tx.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
	return tag.RowsAffected() > 0
}

// A mark rises only to what a read saw after the writers of the time were gone.
func TestLowWater(t *testing.T) {
	t.Parallel()
	w := newLowWater()
	read := func(lowest, highest int64) int64 {
		w.observe(lowest, highest)
		return w.from
	}
	unset := w.from
	w.arm()
	require.Equal(t, unset, read(10, 12), "nothing is confirmed")
	w.candidate = w.seen
	w.arm()
	w.confirmed = w.candidate
	require.Equal(t, unset, read(-1, unset), "the read was sent before")
	w.arm()
	require.EqualValues(t, 10, read(-1, unset))
	require.EqualValues(t, 13, w.seen)
	w.candidate = w.seen
	w.confirmed = w.candidate
	w.arm()
	require.EqualValues(t, 10, read(7, 13), "never falls by itself, nor rises past a row that waits")
	require.EqualValues(t, 11, read(11, 13))
	w.lower(5)
	require.EqualValues(t, 5, w.from)
	w.arm()
	require.EqualValues(t, 5, read(5, 13))
}
