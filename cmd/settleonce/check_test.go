package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
)

// What could not be looked at is said in one sentence, with what to do.
func TestCheck_ExplainsWhatItCannotLookAt(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, explainCheck(check.ErrNotInstalled), "settleonce migrate")
	require.ErrorContains(t, explainCheck(check.ErrChannel), "channel-url")
	other := errors.New("the cable is out")
	require.ErrorIs(t, explainCheck(other), other)
}

// Violations are shown with guarantee and key, and fail the command.
func TestCheck_ShowsViolations(t *testing.T) {
	t.Parallel()
	v := check.Verdict{}
	require.NoError(t, checkError(v))
	v.Add([]check.Violation{{Guarantee: "G1", Key: "key-1", Text: "the channel took the money 2 times"}})
	require.ErrorContains(t, checkError(v), "G1 (one charge)")
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	offerOutput(cmd)
	require.NoError(t, show(cmd, v, checkTable))
	require.Contains(t, out.String(), "key-1 the channel took the money 2 times")
}

// Bad flags of the tools end with a sentence and the code of wrong usage.
func TestTools_RefuseBadFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"torture", "--faults", "earthquake"},
		{"torture", "--faults", "kill,,crash"},
		{"torture", "--seed", "seven"},
		{"torture", "--seed", "-1"},
		{"torture", "--payments", "many"},
		{"torture", "-o", "xml"},
		{"torture", "7"},
		{"demo", "--kill", "postgres@1"},
		{"check", "--grace", "0s"},
		{"check", "-o", "xml"},
	} {
		r := runCommand(t, nil, args...)
		require.Equal(t, exitUsage, r.code, args)
		require.Empty(t, r.stdout, args)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
	require.Contains(t, runCommand(t, nil, "torture", "--faults", "earthquake").stderr, `there is no fault "earthquake"`)
	require.Contains(t, runCommand(t, nil, "torture", "--seed", "seven").stderr, "seven")
}

// Sizes that cannot be end before anything is started.
func TestTools_RefuseBadSizes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"torture", "--length", "0.1s"},
		{"torture", "--payments", "5"},
		{"torture", "--kafka", "pigeon"},
		{"demo", "--commands", "5"},
	} {
		r := runCommand(t, nil, args...)
		require.NotZero(t, r.code, args)
		require.Empty(t, r.stdout, args)
		require.NotEmpty(t, r.stderr, args)
	}
}

// A database without tables, with some of them, or of another version, topics that
// are not there, and an installation in which nothing ever happened: each is one
// sentence and a code, and never "0 violations".
func TestCheck_RefusesWhatItCannotCheck(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	refused := func(want string) {
		t.Helper()
		for _, args := range [][]string{{"check"}, {"check", "--drained"}, {"check", "-o", "json"}} {
			r := runCommand(t, s.env, args...)
			require.Equal(t, exitFailed, r.code)
			require.Empty(t, r.stdout)
			require.Contains(t, r.stderr, want)
			require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		}
	}
	refused("run `settleonce migrate` first")
	requireOK(t, runCommand(t, s.env, "migrate"))
	refused("payment.commands")
	requireOK(t, runCommand(t, s.env, "topics", "ensure"))
	refused("there is nothing to check")
	pool := openTestPool(t, s.env)
	exec := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("ALTER TABLE settleonce.obligation_holds RENAME TO elsewhere")
	refused("run `settleonce migrate` first")
	exec("ALTER TABLE settleonce.elsewhere RENAME TO obligation_holds")
	exec("DELETE FROM settleonce.schema_migrations WHERE version_id = (SELECT max(version_id) FROM settleonce.schema_migrations)")
	refused("run `settleonce migrate` first")
}

func openTestPool(t *testing.T, env []string) *pgxpool.Pool {
	t.Helper()
	for _, pair := range env {
		if dsn, ok := strings.CutPrefix(pair, "SETTLEONCE_POSTGRES_DSN="); ok {
			pool, err := pgxpool.New(t.Context(), dsn)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return pool
		}
	}
	require.Fail(t, "no database")
	return nil
}

// An installation at work holds; what was not looked at is listed. What nobody
// will ever work on is a violation once nothing is under way.
func TestCheck_AtWorkAndDrained(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	requireOK(t, runCommand(t, s.env, "migrate"))
	requireOK(t, runCommand(t, s.env, "topics", "ensure"))
	env := append([]string{"SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true"}, s.env...)
	r := start(t, env, "all")
	adminURL(t, r, env)
	lost := publishOne(t, env, "--order", "order-1", "--amount", "2999", "--metadata", "sim=lost_answer@1")
	require.Eventually(t, func() bool {
		views := statusOf(t, env, lost.Key.String(), "--caller", "shop")
		return len(views) == 1 && views[0]["state"] == "succeeded"
	}, patience, 100*time.Millisecond)
	requireOK(t, runCommand(t, env, "check"))
	pool := openTestPool(t, env)
	require.Eventually(t, func() bool { // a stop does not wait for what is to be published
		var left int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM settleonce.outbox").Scan(&left)
		return err == nil && left == 0
	}, patience, 50*time.Millisecond)
	require.Zero(t, r.stop(t), r.stderr)
	drained := runCommand(t, env, "check", "--drained")
	requireOK(t, drained)
	require.Contains(t, drained.stdout, "✓ G13")
	require.Contains(t, drained.stdout, "NOT CHECKED")
	require.Contains(t, drained.stdout, "– G16")
	publishOne(t, env, "--order", "order-2", "--amount", "100") // nobody is there
	requireOK(t, runCommand(t, env, "check"))
	open := runCommand(t, env, "check", "--drained")
	require.Equal(t, exitFailed, open.code)
	require.Contains(t, open.stdout, "✗ G5")
	require.Contains(t, open.stderr, "G5 (nothing lost)")
}
