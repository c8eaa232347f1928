package backfill_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/backfill"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

// A dry run tells what a run does, and a second run changes nothing.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := payments(1234)
	dry := w.config(openCSV(t, text), constants())
	dry.Execute = false
	told, err := w.run(dry)
	require.NoError(t, err)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.payments`))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.audit`))

	first, err := w.run(w.config(openCSV(t, text), constants()))
	require.NoError(t, err)
	require.EqualValues(t, 1234, first.Read)
	require.EqualValues(t, 1234, first.New())
	require.EqualValues(t, 411, first.Review)
	require.EqualValues(t, 1234, first.Generated)
	require.Equal(t, [3]int64{first.Succeeded, first.Declined, first.Review}, [3]int64{told.Succeeded, told.Declined, told.Review})
	require.True(t, first.Finished)
	require.Equal(t, 411, w.count(`SELECT count(*) FROM settleonce.review_items WHERE kind = 'imported' AND blocks`))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.outbox`))

	second, err := w.run(w.config(openCSV(t, text), constants()))
	require.NoError(t, err)
	require.Zero(t, second.New())
	require.EqualValues(t, 1234, second.Unchanged)
	require.Equal(t, 1234, w.count(`SELECT count(*) FROM settleonce.payments`))
	require.Equal(t, 4, w.count(`SELECT count(*) FROM settleonce.audit WHERE actor = 'ada' AND reason = 'moving'`))
}

// stopping ends a run after some batches.
func stopping(ctx context.Context, batches int) (context.Context, func(int64, int64)) {
	ctx, cancel := context.WithCancel(ctx)
	return ctx, func(int64, int64) {
		if batches--; batches == 0 {
			cancel()
		}
	}
}

// A run that was stopped, as by a signal, goes on where it was; nothing is missed, and nothing is read twice.
func TestRunGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := payments(1000)
	cfg := w.config(openCSV(t, text), constants())
	cfg.Batch = 100
	ctx, stop := stopping(t.Context(), 4)
	cfg.Progress = stop
	report, err := backfill.Run(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, report.Finished)
	require.EqualValues(t, 400, report.Read)
	require.Equal(t, 400, w.count(`SELECT count(*) FROM settleonce.payments`))

	rest, err := w.run(w.config(openCSV(t, text), constants()))
	require.NoError(t, err)
	require.EqualValues(t, 400, rest.ResumedAfter)
	require.EqualValues(t, 600, rest.New())
	require.Zero(t, rest.Unchanged)

	again, err := w.run(w.config(openCSV(t, text+"2000,order-2000,1,declined,,\n"), constants()))
	require.NoError(t, err)
	require.Zero(t, again.ResumedAfter)
	require.EqualValues(t, 1, again.New(), "another content begins anew")
}

// Rows that a stopped run could not take are not forgotten by the run that goes on: it does not end as if all were there (G5).
func TestG5_RunGoesOnWithWhatWasNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text := strings.Replace(payments(300), "\n3,order-3,102,,", "\n3,order-3,102,gone,", 1)
	cfg := w.config(openCSV(t, text), constants())
	cfg.Batch = 100
	ctx, stop := stopping(t.Context(), 1)
	cfg.Progress = stop
	report, err := backfill.Run(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, report.RefusedRows())

	rest, err := w.run(w.config(openCSV(t, text), constants()))
	require.NoError(t, err)
	require.EqualValues(t, 200, rest.New())
	require.Zero(t, rest.RefusedRows())
	require.EqualValues(t, 1, rest.NotTaken())
}

// Every row that is not taken is told, with what is wrong with it, and the others are taken.
func TestRunTellsWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := uuid.NewString()
	text := `id,key,order,amount,currency,outcome,method,created,ended
1,,order-1,100,EUR,succeeded,tok,2025-01-01T00:00:00Z,2025-01-01T00:00:01Z
2,,,100,EUR,succeeded,,,
3,,order-3,1.50,EUR,succeeded,,,
4,,order-4,-1,EUR,succeeded,,,
5,,order-5,100,EURO,succeeded,,,
6,,order-6,100,EUR,gone,,,
7,,order-7,100,EUR,succeeded,4111111111111111,,
8,,order-8,100,EUR,succeeded,,2999-01-01,
9,,order-9,100,EUR,succeeded,,yesterday,
10,,order-10,100,EUR,succeeded,,2025-01-01T00:00:00Z,2024-01-01T00:00:00Z
,,order-11,100,EUR,succeeded,,,
,nil,order-12,100,EUR,succeeded,,,
13,order-13
1,,order-1,200,EUR,succeeded,tok,,
1,,order-1,100,EUR,declined,tok,,
1,,order-1,100,EUR,succeeded,tok,,
4111111111111111,,,100,EUR,succeeded,,,
,` + key + `,order-14,100,EUR,succeeded,,,
`
	mapping := constants()
	delete(mapping.Values, "currency")
	mapping.Columns = map[string]string{"idempotencyKey": "key", "orderId": "order", "paymentMethod": "method", "createdAt": "created", "endedAt": "ended"}
	got, err := w.run(w.config(openCSV(t, text), mapping))
	require.NoError(t, err)
	require.EqualValues(t, 18, got.Read)
	require.EqualValues(t, 2, got.New())
	require.EqualValues(t, 1, got.Unchanged)
	require.EqualValues(t, 15, got.RefusedRows())
	want := []struct{ id, code, problem string }{
		{"2", backfill.CodeInvalid, "orderId: must not be empty"},
		{"3", backfill.CodeInvalid, "--amounts major"},
		{"4", backfill.CodeInvalid, "amount: must be between 1"},
		{"5", backfill.CodeInvalid, "currency: must be a current ISO 4217 code"},
		{"6", backfill.CodeOutcome, `"gone" has no meaning`},
		{"7", backfill.CodeInvalid, "looks like a card number"},
		{"8", backfill.CodeInvalid, "createdAt: must be a time"},
		{"9", backfill.CodeInvalid, "createdAt: must be a time"},
		{"10", backfill.CodeInvalid, "endedAt: lies before createdAt"},
		{"", backfill.CodeNoIdentity, "neither a UUID"},
		{"nil", backfill.CodeNoIdentity, "neither a UUID"},
		{"13", backfill.CodeBrokenRow, "has 2 values and the first row names 9 columns"},
		{"(looks like a card number)", backfill.CodeInvalid, "orderId"},
		{"1", backfill.CodeContent, "another payment with other content"},
		{"1", backfill.CodeDiffers, "another outcome"},
	}
	require.Len(t, got.rejects, len(want))
	for i := range want {
		require.Equal(t, want[i].id, got.rejects[i].ID, i)
		require.Equal(t, want[i].code, got.rejects[i].Code, want[i].id)
		require.Contains(t, got.rejects[i].Problem, want[i].problem, want[i].id)
		require.NotContains(t, got.rejects[i].Problem, "4111")
	}
	id := payment.Identity{Caller: "shop", Operation: "charge", Key: uuid.MustParse(key)}.PaymentID()
	st, err := w.store.Status(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, key, st.Payment.Identity.Key.String(), "a row keeps its own key")
}

// What a payment without an outcome came to is taken by a later run.
func TestRunTakesLaterOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const header = "id,orderId,amount,outcome,cause\n"
	_, err := w.run(w.config(openCSV(t, header+"1,o-1,100,open,\n2,o-1,100,open,\n"), outcomes()))
	require.NoError(t, err)
	got, err := w.run(w.config(openCSV(t, header+"1,o-1,100,failed,expired\n2,o-1,100,open,\n"), outcomes()))
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Resolved)
	require.EqualValues(t, 1, got.Unchanged)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL`))
}

func outcomes() backfill.MappingConfig {
	m := constants()
	m.Outcomes = map[string]string{"open": "unknown", "failed": "declined"}
	return m
}

// Faults of a source as a whole are one sentence each, and nothing is taken.
func TestFaultsOfSources(t *testing.T) {
	t.Parallel()
	const header = "id,orderId,amount,outcome\n"
	_, err := backfill.OpenCSV("/no/such/file.csv", ',')
	require.ErrorContains(t, err, "the file cannot be read: open /no/such/file.csv")
	require.ErrorIs(t, err, backfill.ErrInput)
	_, err = backfill.OpenCSV(file(t, ""), ',')
	require.ErrorContains(t, err, "is empty: its first row must name the columns")

	for text, want := range map[string]string{
		header: "the source has no rows",
		header + "1,o,100,succeeded\n2,\"o\"x,100,succeeded\n": "is no CSV from row 2 on",
	} {
		w := newWorld(t)
		_, err := w.run(w.config(openCSV(t, text), constants()))
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, backfill.ErrInput)
	}
	for want, change := range map[string]func(*backfill.MappingConfig){
		`--map names the field "order"`:                   func(m *backfill.MappingConfig) { m.Columns = map[string]string{"order": "id"} },
		`--set names the field "Amount"`:                  func(m *backfill.MappingConfig) { m.Values["Amount"] = "1" },
		`from the column "nr", which the source does not`: func(m *backfill.MappingConfig) { m.Columns = map[string]string{"orderId": "nr"} },
		"nothing gives the currency":                      func(m *backfill.MappingConfig) { delete(m.Values, "currency") },
		`--outcomes gives "ok" the meaning "good"`:        func(m *backfill.MappingConfig) { m.Outcomes = map[string]string{"ok": "good"} },
		"caller is given by --map and by --set":           func(m *backfill.MappingConfig) { m.Columns = map[string]string{"caller": "id"} },
	} {
		m := constants()
		change(&m)
		_, err := backfill.NewMapping(m, []string{"id", "orderId", "amount", "outcome"})
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, backfill.ErrInput)
	}
	_, err = backfill.NewMapping(constants(), []string{"orderId", "amount", "outcome"})
	require.ErrorContains(t, err, "nothing tells the payments apart")
	_, err = backfill.NewMapping(constants(), []string{"id", "id", "orderId", "amount", "outcome"})
	require.ErrorContains(t, err, "two columns")
}

// Amounts with a point are taken by the currency's own decimals; a column is found in any spelling.
func TestMappingReadsWhatDatabasesWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := backfill.MappingConfig{Values: map[string]string{"caller": "shop", "channel": "sim"}, MajorUnits: true}
	text := "\xef\xbb\xbfID,ORDER_ID,amount,currency,outcome,created_at\n" +
		"1,o1,19.99,EUR,SUCCEEDED,2025-01-01 00:00:00.5+00\n2,o2,500,JPY,succeeded,2025-01-01 00:00:00\n3,o3,1.234,KWD,succeeded,\n4,o4,19.990,EUR,succeeded,\n5,o5,19.999,EUR,succeeded,\n"
	got, err := w.run(w.config(openCSV(t, text), m))
	require.NoError(t, err)
	require.EqualValues(t, 4, got.New())
	require.Equal(t, 1999+500+1234+1999, w.count(`SELECT sum(amount) FROM settleonce.payments`))
	require.Equal(t, 2, w.count(`SELECT count(*) FROM settleonce.payments WHERE issued_at < now() - interval '300 days'`))
}

// A caller that is not configured would never be recognised.
func TestMappingWantsKnownCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := constants()
	m.Caller = func(name string) (string, bool) { return "pool", name == "till" }
	got, err := w.run(w.config(openCSV(t, payments(2)), m))
	require.NoError(t, err)
	require.Contains(t, got.rejects[1].Problem, "caller: is none of the callers that are configured")
	m.Values["caller"] = "till"
	got, err = w.run(w.config(openCSV(t, payments(2)), m))
	require.NoError(t, err)
	require.EqualValues(t, 2, got.New())
	require.Equal(t, 2, w.count(`SELECT count(*) FROM settleonce.payments WHERE namespace = 'pool'`))
}

// legacy is a table of an older system in a database of its own.
func legacy(t *testing.T, rows int) (string, *pgx.Conn) {
	t.Helper()
	dsn := pgtest.DSN(t, nil)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	//nolint:dupword // It is SQL.
	_, err = conn.Exec(t.Context(), `CREATE TABLE pay (id bigint, order_no text, cents int, status text, ref text, at timestamptz);
		INSERT INTO pay SELECT i, 'order-' || i, i, 'succeeded', 'ch_' || i, '2025-01-01' FROM generate_series(1, `+strconv.Itoa(rows)+`) i`)
	require.NoError(t, err)
	return dsn, conn
}

const legacyQuery = `SELECT id, order_no, cents, status AS outcome, ref AS "providerReference", at AS created_at FROM pay;`

func openQuery(t *testing.T, cfg backfill.QueryConfig) *backfill.Query {
	t.Helper()
	source, err := backfill.OpenQuery(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close(context.WithoutCancel(t.Context()))) })
	return source
}

func legacyMapping() backfill.MappingConfig {
	m := constants()
	m.Columns = map[string]string{"orderId": "order_no", "amount": "cents"}
	return m
}

// A query is read page by page; rows with equal ids are not lost between pages, and a run that was stopped goes on.
func TestRunFromQuery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dsn, conn := legacy(t, 12_000)
	_, err := conn.Exec(t.Context(), `INSERT INTO pay SELECT 5000, 'twin-' || i, 7, 'succeeded', '', '2025-01-01' FROM generate_series(1, 3) i`)
	require.NoError(t, err)
	cfg := backfill.QueryConfig{DSN: dsn, SQL: legacyQuery, Key: "id"}
	stopped := w.config(openQuery(t, cfg), legacyMapping())
	ctx, stop := stopping(t.Context(), 13)
	stopped.Progress = stop
	report, err := backfill.Run(ctx, stopped)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 12_003, stopped.Source.Total())

	got, err := w.run(w.config(openQuery(t, cfg), legacyMapping()))
	require.NoError(t, err)
	require.Equal(t, report.Read, got.ResumedAfter)
	require.EqualValues(t, 12_000, report.New()+got.New())
	require.EqualValues(t, 3, report.RefusedRows()+got.RefusedRows(), "twins are told, not lost")
	require.Equal(t, 12_000, w.count(`SELECT count(*) FROM settleonce.payments`))
	require.Equal(t, 12_000, w.count(`SELECT count(*) FROM settleonce.payments WHERE provider_reference = 'ch_' || substr(order_id, 7)`))
}

// A query can only read, and says what is wrong with it.
func TestFaultsOfQueries(t *testing.T) {
	t.Parallel()
	dsn, conn := legacy(t, 3)
	_, err := conn.Exec(t.Context(), `CREATE FUNCTION spoil() RETURNS int LANGUAGE sql AS 'DELETE FROM pay RETURNING 1'; INSERT INTO pay (order_no) VALUES ('x')`)
	require.NoError(t, err)
	for query, want := range map[string]string{
		`SELECT order_no FROM pay`:                             `the query has no column "id"`,
		`SELECT id FROM payments`:                              `relation "payments" does not exist`,
		`SELECT id, order_no FROM pay`:                         "1 rows of the query have no id",
		`SELECT spoil() AS id`:                                 "read-only transaction",
		`DELETE FROM pay RETURNING id`:                         "syntax error",
		`SELECT id FROM pay) AS q; DELETE FROM pay; SELECT (1`: "the query fails",
	} {
		_, err := backfill.OpenQuery(t.Context(), backfill.QueryConfig{DSN: dsn, SQL: query, Key: "id"})
		require.ErrorContains(t, err, want, query)
		require.ErrorIs(t, err, backfill.ErrInput, query)
	}
	_, err = backfill.OpenQuery(t.Context(), backfill.QueryConfig{DSN: "postgres://nobody@127.0.0.1:1/x", SQL: "SELECT 1 AS id", Key: "id"})
	require.ErrorContains(t, err, "the source database cannot be reached")
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pay`).Scan(&rows))
	require.Equal(t, 4, rows)
}

// full fails to write.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// A report that cannot be written stops the run; the next one goes on.
func TestRunStopsWhenRejectsCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config(openCSV(t, "id,orderId,amount,outcome\n1,,1,succeeded\n"), constants())
	cfg.Rejects = full{}
	_, err := backfill.Run(t.Context(), cfg)
	require.ErrorContains(t, err, "write the rows that were not taken: no space left")
}
