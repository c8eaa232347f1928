package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/payment"
)

// nobody is an address where no broker answers.
const nobody = "SETTLEONCE_KAFKA_BROKERS=127.0.0.1:1"

func commandBroker(t *testing.T) (cluster *kfake.Cluster, env []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "payment.commands"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster, []string{"SETTLEONCE_KAFKA_BROKERS=" + cluster.ListenAddrs()[0]}
}

// publishedKeys reads the topic until it has seen n records, and counts them by key.
func publishedKeys(t *testing.T, cluster *kfake.Cluster, n int) map[string]int {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("payment.commands"))
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	keys := make(map[string]int)
	for seen := 0; seen < n; {
		fetches := c.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) { keys[string(r.Key)]++; seen++ })
	}
	return keys
}

func publishLines(t *testing.T, env []string, lines string, args ...string) result {
	t.Helper()
	return runInput(t, env, lines, append([]string{"publish", "-"}, args...)...)
}

func intentLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"caller":"shop","orderId":"order-%d","amount":1999,"currency":"EUR","customerId":"cust-7",`+
			`"paymentMethod":"tok_visa","channel":"sim"}`+"\r\n", i)
	}
	return b.String()
}

// A key is made once: what was saved is published again under the same keys.
func TestPublishLinesAndAgain(t *testing.T) {
	t.Parallel()
	cluster, env := commandBroker(t)
	saved := filepath.Join(t.TempDir(), "commands.jsonl")
	r := publishLines(t, env, intentLines(30), "--save", saved, "-o", "json")
	requireOK(t, r)
	var report published
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, 30, report.Published)

	requireOK(t, runCommand(t, env, "publish", saved))
	keys := publishedKeys(t, cluster, 60)
	require.Len(t, keys, 30)
	text, err := os.ReadFile(saved)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		command, err := payment.DecodeStrict([]byte(line))
		require.NoError(t, err)
		require.Equal(t, 2, keys[command.IdempotencyKey.String()])
	}

	r = publishLines(t, env, intentLines(1), "--save", saved)
	require.Equal(t, exitFailed, r.code, "what was saved is never overwritten")
}

func TestPublishIntentsAsksForSave(t *testing.T) {
	t.Parallel()
	r := publishLines(t, []string{nobody}, intentLines(2))
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "--save")
}

// Mistakes are told with their lines, before anything is sent or even reached.
func TestPublishTellsMistakesWithTheirLines(t *testing.T) {
	t.Parallel()
	lines := intentLines(1) + "\n" + strings.Replace(intentLines(1), "1999", "0", 1)
	r := publishLines(t, []string{nobody}, lines)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "line 3: amount must be between 1 and 9007199254740991 minor units")
	require.Contains(t, r.stderr, "--skip-invalid")
	require.NotContains(t, r.stderr, "127.0.0.1")

	cluster, env := commandBroker(t)
	r = publishLines(t, env, lines, "--skip-invalid", "--save", filepath.Join(t.TempDir(), "c.jsonl"))
	require.Equal(t, exitFailed, r.code, "a line is still to be published")
	require.Contains(t, r.stdout, "line 3")
	require.Len(t, publishedKeys(t, cluster, 1), 1)
}

func TestPublishWithoutInput(t *testing.T) {
	t.Parallel()
	r := publishLines(t, []string{nobody}, "\n\r\n")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "holds no command")
	r = runCommand(t, []string{nobody}, "publish", filepath.Join(t.TempDir(), "missing.jsonl"))
	require.Equal(t, exitUsage, r.code)
	r = runCommand(t, []string{nobody}, "publish")
	require.Equal(t, exitUsage, r.code)
}

func TestPublishWithoutBroker(t *testing.T) {
	t.Parallel()
	r := runCommand(t, []string{nobody}, "publish", "--order", "order-1", "--amount", "1999")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "127.0.0.1:1")
}
