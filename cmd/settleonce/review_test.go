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

// night is an operator over a stack that runs.
type night struct {
	t     *testing.T
	stack *running
	env   []string
}

var byAda = []string{"--actor", "ada", "--reason", "INC-42"}

// review runs a sub-command.
func (n *night) review(args ...string) result {
	n.t.Helper()
	return runCommand(n.t, n.env, append([]string{"review"}, args...)...)
}

// act runs one that changes something.
func (n *night) act(args ...string) result {
	n.t.Helper()
	return n.review(append(append([]string{}, args...), byAda...)...)
}

func (n *night) state(c publishedCommand) any {
	n.t.Helper()
	views := statusOf(n.t, n.env, c.Key.String(), "--caller", "shop")
	if len(views) != 1 {
		return nil
	}
	return views[0]["state"]
}

func (n *night) waitState(c publishedCommand, want string) {
	n.t.Helper()
	require.Eventually(n.t, func() bool { return n.state(c) == want }, patience, 250*time.Millisecond, n.stack.stderr)
}

// waitPossible waits until a dry run is not refused any more.
func (n *night) waitPossible(args ...string) result {
	n.t.Helper()
	var dry result
	require.Eventually(n.t, func() bool { dry = n.review(args...); return dry.code == 0 }, patience, 250*time.Millisecond)
	require.Contains(n.t, dry.stdout, "nothing was changed")
	return dry
}

// entries lists items.
func (n *night) entries(args ...string) (entries []review.Entry) {
	n.t.Helper()
	list := n.review(append([]string{"list", "-o", "json"}, args...)...)
	requireOK(n.t, list)
	require.NoError(n.t, json.Unmarshal([]byte(list.stdout), &entries))
	return entries
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
	n := &night{t: t, stack: stack, env: append(env, channel...)}
	lost := publishOne(t, n.env, "--order", "order-1", "--amount", "1999", "--metadata", `"sim=lost_answer,query_error@1,query_error@2,query_error@3"`)
	absent := publishOne(t, n.env, "--order", "order-2", "--amount", "2000", "--metadata", "sim=error_before@*")
	repaired := publishOne(t, n.env, "--order", "order-3", "--amount", "2001", "--metadata", "sim=error_before@*")
	for _, c := range []publishedCommand{lost, absent, repaired} {
		n.waitState(c, "review")
	}
	require.Len(t, n.entries("--kind", "unresolved", "--channel", "sim", "--caller", "shop"), 3)
	require.Contains(t, n.review("list").stdout, "order-1")
	require.Contains(t, n.review("list", "--older-than", "1h").stdout, "nothing waits")
	require.Contains(t, n.review("show", "4711").stderr, "no review item")
	n.shows(lost)
	n.asksAgain(lost)
	n.closes(absent)
	n.contradicts(absent)
	n.repairs(repaired)
	require.Zero(t, stack.stop(t), stack.stderr)
}

func (n *night) shows(c publishedCommand) {
	var shown caseView
	out := n.review("show", c.Key.String(), "--caller", "shop", "-o", "json")
	requireOK(n.t, out)
	require.NotContains(n.t, out.stdout, "tok_visa")
	require.NoError(n.t, json.Unmarshal([]byte(out.stdout), &shown))
	require.Len(n.t, shown.Sends, 1)
	require.Contains(n.t, shown.Obligation.Meaning, "this payment holds it")
	text := n.review("show", c.Key.String())
	for _, word := range []string{"PROVIDER KEY", "CAN STILL BE EXECUTED", "no answer after three queries", "MAY BE DONE", "next: settleonce review requery"} {
		require.Contains(n.t, text.stdout, word)
	}
}

func (n *night) asksAgain(c publishedCommand) {
	asked := n.act("requery", c.Key.String(), "--wait", "60s")
	requireOK(n.t, asked)
	require.Regexp(n.t, `state +succeeded`, asked.stdout)
	again := n.act("requery", c.Key.String())
	require.Equal(n.t, 1, again.code)
	require.Contains(n.t, again.stdout, "refused, nothing was changed: the payment ended succeeded")
}

func (n *night) closes(c publishedCommand) {
	closing := []string{"resolve", c.Key.String(), "--as", "declined", "--evidence", "not in their books"}
	require.Contains(n.t, n.waitPossible(closing...).stdout, "ask the provider")
	require.Equal(n.t, "review", n.state(c))
	closing = append(closing, "--execute")
	strict := *n
	strict.env = append([]string{"SETTLEONCE_REVIEW_SECOND_PERSON=true"}, n.env...)
	alone := strict.act(closing...)
	require.Equal(n.t, 2, alone.code, alone.stdout)
	require.Contains(n.t, alone.stderr, "--second-actor")
	requireOK(n.t, n.act(closing...))
	require.Equal(n.t, "declined", n.state(c))
	refused := n.act(append(closing, "-o", "json")...)
	require.Equal(n.t, 1, refused.code)
	require.Contains(n.t, refused.stdout, `"refused": "the payment ended declined`)
}

// contradicts is a provider that was wrong, as it says in writing: a conflict, which
// holds the order until it is settled.
func (n *night) contradicts(c publishedCommand) {
	t := n.t
	wrong := n.act("resolve", c.Key.String(), "--as", "succeeded", "--evidence", "ch_9", "--statement", "ticket 5501", "--second-actor", "bob", "--execute")
	requireOK(t, wrong)
	require.Contains(t, wrong.stdout, "settleonce review show")
	entries := n.entries("--kind", "conflict")
	require.Len(t, entries, 1)
	require.Equal(t, []string{review.Settled}, entries[0].May)
	n.waitState(publishOne(t, n.env, "--order", "order-2", "--amount", "2000"), "rejected")
	settling := []string{"resolve", strconv.FormatInt(entries[0].ID, 10), "--as", "settled", "--evidence", "re_5501"}
	require.Contains(t, n.waitPossible(settling...).stdout, "close the item")
	settling = append(settling, "--execute")
	requireOK(t, n.act(settling...))
	twice := n.act(settling...)
	require.Equal(t, 1, twice.code)
	require.Contains(t, twice.stderr, "closed already: settled: INC-42, by ada")
	n.waitState(publishOne(t, n.env, "--order", "order-2", "--amount", "2000"), "succeeded")
	require.Equal(t, "declined", n.state(c))
}

func (n *night) repairs(c publishedCommand) {
	attempt := []string{"attempt", c.Key.String()}
	require.Contains(n.t, n.waitPossible(attempt...).stdout, "open attempt 2")
	requireOK(n.t, n.act(append(attempt, "--execute")...))
	after := n.review("show", c.Key.String())
	require.Regexp(n.t, `attempt 1 .* by ada`, after.stdout)
	require.Regexp(n.t, `ada +attempt +INC-42`, after.stdout)
	settle := n.act("resolve", c.Key.String(), "--as", "settled", "--evidence", "x", "--execute")
	require.Equal(n.t, 1, settle.code)
	require.Contains(n.t, settle.stderr, "no open conflict item")
}
