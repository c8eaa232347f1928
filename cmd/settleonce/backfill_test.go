package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/backfill"
	"github.com/settleonce/settleonce/internal/pgtest"
)

const legacyFile = `pay_id,key,order_no,amount,status,reference,paid_at
1,8e03978e-40d5-43e8-bc93-6894a57f9324,order-1,19.99,paid,ch_1,2026-01-02 10:00:00
2,,order-2,5.00,failed,,2026-01-02 11:00:00
3,,order-3,7.50,open,,
`

var legacyFlags = []string{
	"--map", "id=pay_id,idempotencyKey=key,orderId=order_no,outcome=status,providerReference=reference,createdAt=paid_at",
	"--set", "caller=shop,channel=sim,currency=EUR", "--outcomes", "paid=succeeded,failed=declined,open=unknown", "--amounts", "major",
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "legacy.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func reportOf(t *testing.T, r result) backfill.Report {
	t.Helper()
	var report backfill.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r.stdout+r.stderr)
	return report
}

// From a dry run to a second run, as docs/adoption.md has it.
func TestBackfillStepByStep(t *testing.T) {
	t.Parallel()
	env := []string{"SETTLEONCE_POSTGRES_DSN=" + pgtest.DSN(t, nil)}
	path := writeFile(t, legacyFile)
	call := func(more ...string) result {
		return runCommand(t, env, append(append([]string{"backfill", "--csv", path}, legacyFlags...), more...)...)
	}
	r := call()
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "run `settleonce migrate` first")
	requireOK(t, runCommand(t, env, "migrate"))

	r = call()
	requireOK(t, r)
	require.Contains(t, r.stdout, "would be taken  3")
	require.Contains(t, r.stdout, "nothing was changed: add --execute --reason TEXT to do it")
	r = call("--execute")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--execute needs --reason")
	r = call("--execute", "--reason", "SHOP-7")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--execute needs --actor")

	r = call("--execute", "--actor", "ada", "--reason", "SHOP-7", "-o", "json")
	requireOK(t, r)
	report := reportOf(t, r)
	require.True(t, report.Executed)
	require.Equal(t, [4]int64{1, 1, 1, 2}, [4]int64{report.Succeeded, report.Declined, report.Review, report.Generated})
	r = call("--execute", "--actor", "ada", "--reason", "SHOP-7")
	requireOK(t, r)
	require.Contains(t, r.stdout, "everything was there already: nothing changed")

	r = runCommand(t, env, "status", "8e03978e-40d5-43e8-bc93-6894a57f9324", "--caller", "shop")
	requireOK(t, r)
	require.Contains(t, r.stdout, "succeeded")
	require.Contains(t, r.stdout, "imported from legacy.csv")
	require.Contains(t, r.stdout, "ch_1")
}

// Rows that cannot be taken make the run fail, after the others were taken, and are listed.
func TestBackfillListsRejects(t *testing.T) {
	t.Parallel()
	env := []string{"SETTLEONCE_POSTGRES_DSN=" + pgtest.DSN(t, pgtest.Schema), "USER=ada"}
	path, rejects := writeFile(t, legacyFile+"4,,order-4,8,lost,,\n"), filepath.Join(t.TempDir(), "rejects.jsonl")
	args := append([]string{"backfill", "--csv", path, "--rejects", rejects, "--execute", "--reason", "x"}, legacyFlags...)
	r := runCommand(t, env, args...)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "1 of 4 rows cannot be taken")
	require.Contains(t, r.stdout, "not taken    1")
	text, err := os.ReadFile(rejects)
	require.NoError(t, err)
	require.JSONEq(t, `{"row":4,"id":"4","code":"unknown_outcome",
		"problem":"its outcome \"lost\" has no meaning: give it one with --outcomes, as succeeded, declined or unknown"}`, string(text))
	r = runCommand(t, env, args...)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--rejects must name a new file")
}

// A query on a team's own table, through a user who may only read, and its file of SQL.
func TestBackfillFromQuery(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	dsn := pool.Config().ConnString()
	_, err := pool.Exec(t.Context(), `CREATE TABLE pay AS SELECT i AS id, 'order-' || i AS order_id, i AS amount, 'succeeded' AS outcome
		FROM generate_series(1, 700) i`)
	require.NoError(t, err)
	query := writeFile(t, "SELECT id, order_id, amount, outcome\nFROM pay -- all of them\n;\n")
	r := runCommand(t, []string{"SETTLEONCE_POSTGRES_DSN=" + dsn, "USER=ada"}, "backfill", "--query", "@"+query, "--source-dsn", dsn,
		"--set", "caller=shop,channel=sim,currency=EUR", "--execute", "--reason", "move", "-o", "json")
	requireOK(t, r)
	require.EqualValues(t, 700, reportOf(t, r).Succeeded)
}

func TestFaultsOfBackfill(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, pgtest.Schema)
	path := writeFile(t, legacyFile)
	for want, args := range map[string][]string{
		"name one source":                    nil,
		"name one source: --csv FILE":        {"--csv", path, "--query", "SELECT 1"},
		"--source-dsn belongs to --query":    {"--csv", path, "--source-dsn", dsn},
		"--delimiter must be one character":  {"--csv", path, "--delimiter", ";;"},
		"--amounts cents is not known":       {"--csv", path, "--amounts", "cents"},
		"--batch is 0":                       {"--csv", path, "--batch", "0"},
		"--rate must not be negative":        {"--csv", path, "--rate", "-1"},
		"the file cannot be read":            {"--csv", "/no/such.csv"},
		"the file of --query cannot be read": {"--query", "@/no/such.sql", "--source-dsn", dsn},
		"nothing gives the caller":           {"--csv", path},
		"the query fails":                    {"--query", "SELEC", "--source-dsn", dsn},
		"--source-dsn cannot be used":        {"--query", "SELECT 1 AS id", "--source-dsn", "postgres://%"},
	} {
		r := runCommand(t, []string{"SETTLEONCE_POSTGRES_DSN=" + dsn}, append([]string{"backfill"}, args...)...)
		require.Equal(t, exitUsage, r.code, want)
		require.Contains(t, r.stderr, want)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		require.Empty(t, r.stdout)
	}
	env := []string{"SETTLEONCE_POSTGRES_DSN=" + dsn, "SETTLEONCE_CALLERS=till=till"}
	r := runCommand(t, env, append([]string{"backfill", "--csv", path}, legacyFlags...)...)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "caller: is none of the callers that are configured")
}

// An older binary runs on a newer schema that only adds, and not on one that says otherwise.
func TestOlderBinaryOnNewerSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	exec := func(sql string, arguments ...any) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql, arguments...)
		require.NoError(t, err)
	}
	require.NoError(t, checkMigrations(t.Context(), pool))
	exec(`INSERT INTO settleonce.schema_migrations (version_id, is_applied) VALUES (9001, true)`)
	require.NoError(t, checkMigrations(t.Context(), pool))
	exec(`UPDATE settleonce.installation SET oldest_binary = 9001`)
	require.ErrorContains(t, checkMigrations(t.Context(), pool), "no longer for binaries that know")
	exec(`DELETE FROM settleonce.schema_migrations WHERE version_id = 3`)
	require.ErrorContains(t, checkMigrations(t.Context(), pool), "lacks the migrations [3] of this binary")
	exec(`DELETE FROM settleonce.schema_migrations WHERE version_id > 1`)
	require.ErrorContains(t, checkMigrations(t.Context(), pool), "run `settleonce migrate` first")
}
