package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/review"
)

// What cannot be meant is one sentence, exit code 2, and needs no server.
func TestReviewRefuses(t *testing.T) {
	t.Parallel()
	act := []string{"--execute", "--actor", "ada", "--reason", "INC-42"}
	for want, args := range map[string][]string{
		"--kind open is not known":           {"review", "list", "--kind", "open"},
		"--older-than -1h0m0s is negative":   {"review", "list", "--older-than", "-1h"},
		"--limit 0 shows nothing":            {"review", "list", "--limit", "0"},
		"-o yaml is not known":               {"review", "show", "1", "-o", "yaml"},
		"accepts 1 arg":                      {"review", "show"},
		"say who does it and why":            {"review", "requery", "1"},
		"--wait -1s is negative":             {"review", "requery", "1", "--actor", "ada", "--reason", "x", "--wait", "-1s"},
		"say what it was":                    {"review", "resolve", "1"},
		"--as failed is not known":           {"review", "resolve", "1", "--as", "failed"},
		"nothing is closed without evidence": append([]string{"review", "resolve", "1", "--as", "declined"}, act...),
		"needs an actor and a reason":        {"review", "resolve", "1", "--as", "declined", "--evidence", "x", "--execute"},
		"name the other one with":            append([]string{"review", "resolve", "1", "--as", "declined", "--statement", "letter"}, act...),
		"this takes two persons":             append([]string{"review", "resolve", "1", "--as", "declined", "--statement", "letter", "--second-actor", "Ada"}, act...),
		"reference and its written":          append([]string{"review", "resolve", "1", "--as", "succeeded", "--evidence", "ch_1"}, act...),
		"does not go with --as settled":      {"review", "resolve", "1", "--as", "settled", "--statement", "letter"},
		"goes with --as succeeded only":      {"review", "resolve", "1", "--as", "declined", "--attempt", "2"},
		"an order needs an actor":            {"review", "attempt", "1", "--execute"},
	} {
		r := runCommand(t, nil, args...)
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.stderr, want, args)
		require.Empty(t, r.stdout, args)
	}
}

func TestStatementIsKeptByItsDigest(t *testing.T) {
	t.Parallel()
	letter := filepath.Join(t.TempDir(), "letter.txt")
	require.NoError(t, os.WriteFile(letter, []byte("not executed"), 0o600))
	f := resolveFlags{orderFlags: orderFlags{statement: letter}}
	require.NoError(t, f.readStatement())
	require.Regexp(t, `^file letter.txt, sha256 f600c95[0-9a-f]{57}$`, f.statement)
	f.statement = "ticket 5501"
	require.NoError(t, f.readStatement())
	require.Equal(t, "ticket 5501", f.statement)
}

// TestReview is the way of an operator from an alert to resolved payments, with the
// commands of the runbook.
func TestReview(t *testing.T) {
	t.Parallel()
	// A channel that executes a send within 8 s or never, and is not sent to twice.
	channel := []string{
		"SETTLEONCE_LEASE=9s", "SETTLEONCE_DRAIN_TIMEOUT=5s", "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=3s", "SETTLEONCE_CHANNEL_LONGEST_EXECUTION=5s",
		"SETTLEONCE_CHANNEL_IDEMPOTENT_SUBMIT=false", "SETTLEONCE_CHANNEL_KEY_MEMORY=0", "SETTLEONCE_CHANNEL_PINS_FAILURES=false",
	}
	stack, env := startDev(t, openFolder(t), channel)
	env = append(env, channel...)
	lost := publishOne(t, env, "--order", "order-1", "--amount", "1999", "--metadata", `"sim=lost_answer,query_error@1,query_error@2,query_error@3"`)
	absent := publishOne(t, env, "--order", "order-2", "--amount", "2000", "--metadata", "sim=error_before@*")
	repaired := publishOne(t, env, "--order", "order-3", "--amount", "2001", "--metadata", "sim=error_before@*")
	state := func(c publishedCommand) any {
		views := statusOf(t, env, c.Key.String(), "--caller", "shop")
		if len(views) != 1 {
			return nil
		}
		return views[0]["state"]
	}
	for _, c := range []publishedCommand{lost, absent, repaired} {
		require.Eventually(t, func() bool { return state(c) == "review" }, 90*time.Second, 250*time.Millisecond, stack.stderr)
	}

	var entries []review.Entry
	list := runCommand(t, env, "review", "list", "-o", "json", "--kind", "unresolved", "--channel", "sim", "--caller", "shop")
	requireOK(t, list)
	require.NoError(t, json.Unmarshal([]byte(list.stdout), &entries))
	require.Len(t, entries, 3)
	require.Contains(t, runCommand(t, env, "review", "list").stdout, "order-1")
	require.Contains(t, runCommand(t, env, "review", "list", "--older-than", "1h").stdout, "nothing waits")
	require.Contains(t, runCommand(t, env, "review", "show", "4711").stderr, "no review item")

	key := lost.Key.String()
	var shown caseView
	out := runCommand(t, env, "review", "show", key, "--caller", "shop", "-o", "json")
	requireOK(t, out)
	require.NotContains(t, out.stdout, "tok_visa")
	require.NoError(t, json.Unmarshal([]byte(out.stdout), &shown))
	require.Len(t, shown.Sends, 1)
	require.Contains(t, shown.Obligation.Meaning, "this payment holds it")
	text := runCommand(t, env, "review", "show", key)
	for _, word := range []string{"PROVIDER KEY", "CAN STILL BE EXECUTED", "no answer after three queries", "MAY BE DONE", "requery", "next: settleonce review requery"} {
		require.Contains(t, text.stdout, word)
	}

	by := []string{"--actor", "ada", "--reason", "INC-42"}
	asked := runCommand(t, env, append([]string{"review", "requery", key, "--wait", "60s"}, by...)...)
	requireOK(t, asked)
	require.Regexp(t, `state +succeeded`, asked.stdout)
	again := runCommand(t, env, append([]string{"review", "requery", key}, by...)...)
	require.Equal(t, 1, again.code)
	require.Contains(t, again.stdout, "refused, nothing was changed: the payment ended succeeded")

	closing := []string{"review", "resolve", absent.Key.String(), "--as", "declined", "--evidence", "not in their books"}
	var dry result
	require.Eventually(t, func() bool { dry = runCommand(t, env, closing...); return dry.code == 0 }, 30*time.Second, 250*time.Millisecond)
	require.Contains(t, dry.stdout, "ask the provider")
	require.Contains(t, dry.stdout, "nothing was changed")
	require.Equal(t, "review", state(absent))
	strict := runCommand(t, append([]string{"SETTLEONCE_REVIEW_SECOND_PERSON=true"}, env...), append(append(closing, "--execute"), by...)...)
	require.Equal(t, 2, strict.code, strict.stdout)
	require.Contains(t, strict.stderr, "--second-actor")
	requireOK(t, runCommand(t, env, append(append(closing, "--execute"), by...)...))
	require.Equal(t, "declined", state(absent))
	refused := runCommand(t, env, append(append(closing, "--execute", "-o", "json"), by...)...)
	require.Equal(t, 1, refused.code)
	require.Contains(t, refused.stdout, `"refused": "the payment ended declined`)

	// The provider was wrong, as it says in writing: a conflict, which holds the order until it is settled.
	wrong := runCommand(t, env, append([]string{
		"review", "resolve", absent.Key.String(), "--as", "succeeded", "--evidence", "ch_9", "--statement", "ticket 5501", "--second-actor", "bob", "--execute",
	}, by...)...)
	requireOK(t, wrong)
	require.Contains(t, wrong.stdout, "settleonce review show")
	list = runCommand(t, env, "review", "list", "--kind", "conflict", "-o", "json")
	requireOK(t, list)
	require.NoError(t, json.Unmarshal([]byte(list.stdout), &entries))
	require.Len(t, entries, 1)
	require.Equal(t, []string{review.Settled}, entries[0].May)
	blocked := publishOne(t, env, "--order", "order-2", "--amount", "2000")
	require.Eventually(t, func() bool { return state(blocked) == "rejected" }, 30*time.Second, 250*time.Millisecond)
	item := strconv.FormatInt(entries[0].ID, 10)
	settling := append([]string{"review", "resolve", item, "--as", "settled", "--evidence", "re_5501"}, by...)
	dry = runCommand(t, env, settling...)
	requireOK(t, dry)
	require.Contains(t, dry.stdout, "close the item")
	requireOK(t, runCommand(t, env, append(settling, "--execute")...))
	twice := runCommand(t, env, append(settling, "--execute")...)
	require.Equal(t, 1, twice.code)
	require.Contains(t, twice.stderr, "closed already: settled: INC-42, by ada")
	free := publishOne(t, env, "--order", "order-2", "--amount", "2000")
	require.Eventually(t, func() bool { return state(free) == "succeeded" }, 30*time.Second, 250*time.Millisecond)
	require.Equal(t, "declined", state(absent))

	attempt := []string{"review", "attempt", repaired.Key.String()}
	require.Eventually(t, func() bool { dry = runCommand(t, env, attempt...); return dry.code == 0 }, 30*time.Second, 250*time.Millisecond)
	require.Contains(t, dry.stdout, "open attempt 2")
	requireOK(t, runCommand(t, env, append(append(attempt, "--execute"), by...)...))
	after := runCommand(t, env, "review", "show", repaired.Key.String())
	require.Regexp(t, `attempt 1 .* by ada`, after.stdout)
	require.Regexp(t, `ada +attempt +INC-42`, after.stdout)
	settle := runCommand(t, env, append([]string{"review", "resolve", repaired.Key.String(), "--as", "settled", "--evidence", "x", "--execute"}, by...)...)
	require.Equal(t, 1, settle.code)
	require.Contains(t, settle.stderr, "no open conflict item")
	require.Zero(t, stack.stop(t), stack.stderr)
}
