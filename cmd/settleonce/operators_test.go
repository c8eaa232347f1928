package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// publishRaw puts bytes into the command topic of a development stack.
func publishRaw(t *testing.T, env []string, key, value string) {
	t.Helper()
	l, err := config.Load(config.Input{Env: env})
	require.NoError(t, err)
	client, err := kafka.NewClient(kafka.Config{Brokers: l.Config.Kafka.Brokers})
	require.NoError(t, err)
	defer client.Close()
	p, err := client.NewPublisher(kafka.PublisherConfig{Timeout: 30 * time.Second})
	require.NoError(t, err)
	topic := payment.NewTopics(l.Config.Topics.Prefix).Commands
	require.NoError(t, p.Publish(t.Context(), kafka.Message{Topic: topic, Key: []byte(key), Value: []byte(value)}))
	require.NoError(t, p.Close(t.Context()))
}

// TestOperatorsNight is the way of an operator over a stack that runs: look,
// replay, redrive, discard.
func TestOperatorsNight(t *testing.T) {
	t.Parallel()
	r, env := startDev(t, openFolder(t), nil)
	c := publishOne(t, env, "--order", "order-1001", "--amount", "1999")
	publishRaw(t, env, "k", "not JSON")
	require.Eventually(t, func() bool {
		views := statusOf(t, env, c.Key.String(), "--caller", "shop")
		return len(views) == 1 && views[0]["state"] == "succeeded"
	}, patience, 100*time.Millisecond)
	act := []string{"--execute", "--actor", "ada", "--reason", "INC-42"}
	with := func(args []string, more ...string) []string { return append(append([]string{}, args...), more...) }

	var found []diagnosis
	require.Eventually(t, func() bool {
		doctor := runCommand(t, env, "doctor", "--replication", "1", "-o", "json")
		return doctor.code == 0 && json.Unmarshal([]byte(doctor.stdout), &found) == nil
	}, patience, 200*time.Millisecond, found)
	require.Contains(t, found, diagnosis{Severity: isFine, Area: "clocks", Finding: "this machine's and the database's agree"})
	lag := runCommand(t, env, "lag", "--partitions", "--group", "nobody=payment.events")
	requireOK(t, lag)
	require.Contains(t, lag.stdout, "settleonce-consumer")
	require.Contains(t, lag.stdout, "Dead")

	commands := []string{"replay", "--topic", "payment.commands", "--since", "1h"}
	dry := runCommand(t, env, commands...)
	requireOK(t, dry)
	require.Regexp(t, `replayed +1`, dry.stdout)
	require.Regexp(t, `dead +1`, dry.stdout)
	require.Contains(t, dry.stdout, "nothing was changed")
	done := runCommand(t, env, with(commands, act...)...)
	requireOK(t, done)
	require.Regexp(t, `published +2 +done`, done.stdout)
	running := runCommand(t, env, with([]string{"replay", "--topic", "payment.commands", "--group", "settleonce-consumer"}, act...)...)
	require.Equal(t, 1, running.code)
	require.Contains(t, running.stderr, "stop its members first, nothing was changed")

	var list letterList
	require.Eventually(t, func() bool {
		out := runCommand(t, env, "deadletter", "list", "--dl-reason", "unreadable", "-o", "json")
		return out.code == 0 && json.Unmarshal([]byte(out.stdout), &list) == nil &&
			len(list.Letters) == 2 // the replay sent it again
	}, patience, 100*time.Millisecond)
	id := list.Letters[0].ID.String()
	shown := runCommand(t, env, "deadletter", "show", id)
	requireOK(t, shown)
	require.Contains(t, shown.stdout, "not JSON")
	dry = runCommand(t, env, "deadletter", "redrive", id)
	requireOK(t, dry)
	require.Contains(t, dry.stdout, "nothing was changed")
	requireOK(t, runCommand(t, env, with([]string{"deadletter", "redrive", id}, act...)...))
	again := runCommand(t, env, with([]string{"deadletter", "redrive", id}, act...)...)
	require.Equal(t, 1, again.code)
	require.Contains(t, again.stderr, "dealt with before")
	requireOK(t, runCommand(t, env, with([]string{"deadletter", "discard", list.Letters[1].ID.String()}, act...)...))
	require.Contains(t, runCommand(t, env, "deadletter", "show", list.Letters[1].ID.String()).stdout, "discarded")
	require.Zero(t, r.stop(t), r.stderr)

	broken := runCommand(t, env, "doctor", "-o", "json")
	require.Equal(t, 1, broken.code)
	require.Contains(t, broken.stdout, `"severity": "fault"`)
}

// What cannot be meant is one sentence, exit code 2, and needs no server.
func TestOperatorsToolsRefuse(t *testing.T) {
	t.Parallel()
	body := filepath.Join(t.TempDir(), "empty.json")
	require.NoError(t, os.WriteFile(body, nil, 0o600))
	for want, args := range map[string][]string{
		"--actor NAME --reason TEXT":     {"replay", "--topic", "payment.commands", "--execute"},
		"say --matching with filters":    {"deadletter", "redrive"},
		"not both":                       {"deadletter", "redrive", "1-2", "--matching"},
		"name exactly one":               {"deadletter", "redrive", "1-2", "1-3", "--value", body},
		"who does it and why":            {"deadletter", "discard", "1-2", "--execute"},
		"-o yaml is not known":           {"doctor", "-o", "yaml"},
		"requires at least 1":            {"deadletter", "discard"},
		"accepts 1 arg":                  {"deadletter", "show"},
		"unknown command \"rewind\" for": {"rewind"},
	} {
		r := runCommand(t, nil, args...)
		if want == "unknown command \"rewind\" for" {
			require.Equal(t, 2, r.code)
			continue
		}
		require.Equal(t, 2, r.code, args)
		require.Contains(t, r.stderr, want, args)
		require.LessOrEqual(t, strings.Count(r.stderr, "\n"), 3, r.stderr)
	}
}

func TestPointInTimeAndSpans(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at, err := pointInTime("--since", "90m", now)
	require.NoError(t, err)
	require.Equal(t, now.Add(-90*time.Minute), at)
	at, err = pointInTime("--since", "2026-11-30T10:00:00Z", now)
	require.NoError(t, err)
	require.Equal(t, now.Add(-2*time.Hour), at)
	for _, text := range []string{"yesterday", "-2h", "10:00"} {
		_, err = pointInTime("--since", text, now)
		require.ErrorContains(t, err, "neither a time", text)
	}
	for _, text := range []string{"3", "3:1", "a:1-2", "3:2-b"} {
		_, _, err = parseSpan(text)
		require.ErrorContains(t, err, "PARTITION:FROM-TO", text)
	}
}
