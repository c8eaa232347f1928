package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/pgtest"
)

func callersEnv(t *testing.T) []string {
	t.Helper()
	return []string{"USER=ada", "SETTLEONCE_POSTGRES_DSN=" + pgtest.DSN(t, pgtest.Schema)}
}

func jsonOf[T any](t *testing.T, env []string, args ...string) T {
	t.Helper()
	r := runCommand(t, env, append(args, "-o", "json")...)
	requireOK(t, r)
	var v T
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &v), r.stdout)
	return v
}

func TestCallersByCommandLine(t *testing.T) {
	t.Parallel()
	env := callersEnv(t)
	table := runCommand(t, env, "callers", "list")
	requireOK(t, table)
	require.Contains(t, table.stdout, "there are no callers: add one with `settleonce callers add NAME`")
	require.Empty(t, jsonOf[[]callerView](t, env, "callers", "list"))

	r := runCommand(t, env, "callers", "add", "shop", "--rate", "200", "--require-issued-at", "--grace-until", "2030-03-31", "--reason", "go live")
	requireOK(t, r)
	require.Regexp(t, `key +so_[a-z2-7]{16}_[a-z2-7]{52}\n`, r.stdout)
	require.Contains(t, r.stdout, "shown once")
	cron := jsonOf[callers.Issued](t, env, "callers", "add", "shop-cron", "--namespace", "shop")
	require.Equal(t, "shop-cron", cron.Caller)
	next := jsonOf[callers.Issued](t, env, "callers", "rotate", "shop-cron", "--keep", "1h")
	require.NotNil(t, next.Until)
	list := runCommand(t, env, "callers", "list")
	requireOK(t, list)
	for _, want := range []string{"200/s, 200 at once", "needs issuedAt; no key needed until 2030-04-01T00:00:00Z", "expiring", cron.ID} {
		require.Contains(t, list.stdout, want)
	}
	require.NotContains(t, list.stdout, "so_")
	requireOK(t, runCommand(t, env, "callers", "set", "shop", "--grace-until", "none", "--rate", "0"))
	require.Equal(t, revoked{Caller: "shop-cron", Keys: 1}, jsonOf[revoked](t, env, "callers", "revoke", "shop-cron", "--key", cron.ID))
	require.Equal(t, revoked{Caller: "shop-cron", Keys: 1, ShutOut: true}, jsonOf[revoked](t, env, "callers", "revoke", "shop-cron", "--all"))
	views := jsonOf[[]callerView](t, env, "callers", "list")
	require.Len(t, views, 2)
	require.Equal(t, "shop", views[0].Caller)
	require.Nil(t, views[0].GraceUntil)
	require.True(t, views[1].ShutOut)
	require.Len(t, views[1].Keys, 2)
}

func TestCallersRefuseInOneSentence(t *testing.T) {
	t.Parallel()
	env := callersEnv(t)
	requireOK(t, runCommand(t, env, "callers", "add", "shop"))
	for _, c := range []struct {
		want string
		code int
		env  []string
		args []string
	}{
		{"name one caller, like shop: see `settleonce callers add --help`", exitUsage, env, []string{"add"}},
		{`caller "Shop" is not a name`, exitFailed, env, []string{"add", "Shop"}},
		{"caller shop is there already: change it with `settleonce callers set shop`", exitFailed, env, []string{"add", "shop", "--rate", "1"}},
		{"rotate it, or name another with --credential", exitFailed, env, []string{"add", "shop"}},
		{"--grace-until \"soon\" is not a day: write it like 2027-03-31", exitUsage, env, []string{"add", "kiosk", "--grace-until", "soon"}},
		{"caller kiosk is not there: see `settleonce callers list`", exitFailed, env, []string{"rotate", "kiosk"}},
		{"nothing is to be set", exitFailed, env, []string{"set", "shop"}},
		{"a rate of -1 requests per second is out of range", exitFailed, env, []string{"set", "shop", "--rate", "-1"}},
		{"say what to revoke, one of: --key ID, --credential NAME, --all", exitUsage, env, []string{"revoke", "shop"}},
		{"say what to revoke", exitUsage, env, []string{"revoke", "shop", "--all", "--key", "x"}},
		{"has no such valid key", exitFailed, env, []string{"revoke", "shop", "--key", "x"}},
		{"--actor is not given and variable USER is empty", exitUsage, env[1:], []string{"add", "kiosk"}},
		{`"x" is too much`, exitUsage, env, []string{"list", "x"}},
		{"-o xml is not known", exitUsage, env, []string{"list", "-o", "xml"}},
		{`command "ad" is not known, did you mean "add"`, exitUsage, env, []string{"ad"}},
		{"run `settleonce migrate` first", exitFailed, []string{"USER=ada", "SETTLEONCE_POSTGRES_DSN=" + pgtest.DSN(t, nil)}, []string{"list"}},
		{"name the callers that the key may speak for, or --everyone", exitUsage, nil, []string{"signing-key"}},
		{"name the callers", exitUsage, nil, []string{"signing-key", "shop", "--everyone"}},
		{"is not 1 to 64 letters", exitUsage, nil, []string{"signing-key", "shop", "--id", "a b"}},
	} {
		r := runCommand(t, c.env, append([]string{"callers"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.stderr)
		require.Contains(t, r.stderr, c.want)
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
		require.Empty(t, r.stdout)
	}
}

func TestSigningKeyByCommandLine(t *testing.T) {
	t.Parallel()
	r := runCommand(t, nil, "callers", "signing-key", "shop", "shop-cron")
	requireOK(t, r)
	edge := runCommand(t, nil, "callers", "signing-key", "--everyone", "--id", "edge-1")
	requireOK(t, edge)
	ring, err := signing.Parse(r.stdout + edge.stdout)
	require.NoError(t, err)
	require.Len(t, ring, 2)
	for id, k := range ring {
		require.Regexp(t, `^(edge-1|shop-\d{8})$`, id)
		require.Equal(t, id == "edge-1", k.SpeaksFor("anybody"))
		require.True(t, k.SpeaksFor("shop-cron"))
	}
	require.True(t, ring["edge-1"].SpeaksFor("anybody"))
}

// Callers from the table, signatures and topics of their own, in a real worker: what
// is added while it runs is taken, what is forged or foreign charges nobody (G12).
func TestG12_CallersOfARunningWorker(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	keys := filepath.Join(t.TempDir(), "keys")
	key := runCommand(t, nil, "callers", "signing-key", "partner", "--id", "partner-1")
	requireOK(t, key)
	require.NoError(t, os.WriteFile(keys, []byte(key.stdout), 0o600))
	env := []string{
		"USER=ada", "SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "SETTLEONCE_CALLERS_FROM=database",
		"SETTLEONCE_CALLER_TOPICS=partner=partner", "SETTLEONCE_SIGNING_KEYS_FILE=" + keys, "SETTLEONCE_REQUIRE_SIGNATURE=partner",
	}
	for _, pair := range s.env {
		if !strings.HasPrefix(pair, "SETTLEONCE_CALLERS=") {
			env = append(env, pair)
		}
	}
	requireOK(t, runCommand(t, env, "migrate"))
	requireOK(t, runCommand(t, env, "topics", "ensure"))
	requireOK(t, runCommand(t, env, "callers", "add", "shop"))
	requireOK(t, runCommand(t, env, "callers", "add", "partner"))
	r := start(t, env, "consumer")
	t.Cleanup(func() { require.Zero(t, r.stop(t), r.stderr) })
	url := adminURL(t, r, env)
	succeeds := func(c publishedCommand, caller string) {
		t.Helper()
		require.Eventually(t, func() bool {
			views := statusOf(t, env, c.Key.String(), "--caller", caller)
			return len(views) == 1 && views[0]["state"] == "succeeded"
		}, patience, 100*time.Millisecond, r.stderr)
	}
	succeeds(publishOne(t, env, "--order", "order-1", "--amount", "100"), "shop")
	publishOne(t, env, "--caller", "partner", "--order", "order-2", "--amount", "200")
	publishOne(t, env, "--caller", "stranger", "--order", "order-3", "--amount", "300")
	signed := append([]string{"SETTLEONCE_SIGNING_KEY=partner-1"}, env...)
	succeeds(publishOne(t, signed, "--caller", "partner", "--order", "order-2", "--amount", "200"), "partner")
	publishOne(t, signed, "--caller", "shop", "--order", "order-4", "--amount", "400")
	requireOK(t, runCommand(t, env, "callers", "add", "kiosk"))
	succeeds(publishOne(t, env, "--caller", "kiosk", "--order", "order-5", "--amount", "500"), "kiosk")
	requireOK(t, runCommand(t, env, "callers", "revoke", "kiosk", "--all"))
	publishOne(t, env, "--caller", "kiosk", "--order", "order-6", "--amount", "600")
	require.Eventually(t, func() bool {
		metrics := scrape(t, url)
		return strings.Contains(metrics, `settleonce_dead_letters_total{reason="foreign_caller"} 2`) &&
			strings.Contains(metrics, `settleonce_dead_letters_total{reason="bad_signature"} 2`)
	}, patience, 200*time.Millisecond)
	require.Equal(t, 3, s.sim.Summary().Charges)

	moved := append([]string{"SETTLEONCE_CALLERS=shop=family,partner=partner,kiosk=kiosk"}, env...)
	moved[3] = "SETTLEONCE_CALLERS_FROM=settings"
	refused := runCommand(t, moved, "consumer")
	require.Equal(t, exitFailed, refused.code, refused.stderr)
	require.Contains(t, refused.stderr, "caller shop has namespace shop in the database and family by the settings: set callers-from to database")
}
