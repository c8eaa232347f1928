package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/payment"
)

// touch uses every metric once: a vector without a value is not there to be linted.
func touch(m *telemetry.Metrics) {
	m.Commands(telemetry.ResultFresh, 3)
	m.Rejections(payment.CodeStaleCommand, 1)
	m.DeadLetters(payment.DeadUnreadable, 1)
	m.Transitions(payment.Succeeded, 2)
	m.Batch("claim", 500, time.Millisecond)
	m.ChannelCallStarted("sim", telemetry.CallSubmit)
	m.ChannelCallDone("sim", telemetry.CallSubmit, payment.ClassSucceeded, 3*time.Millisecond)
	m.BudgetSpent("sim", 1)
	m.BudgetRefused("sim", 1)
	m.RequeryLateness("1s", time.Millisecond)
	m.Removed("payments", 5)
}

func someSnapshot(context.Context) (telemetry.Snapshot, error) {
	return telemetry.Snapshot{
		Unresolved:       []telemetry.UnresolvedCount{{State: "unknown", Age: "1m-15m", Count: 4}},
		OldestUnresolved: map[string]time.Duration{"unknown": 5 * time.Minute},
		RetryQueue:       map[string]int64{"1s": 2},
		OutboxPending:    7, OutboxParked: 1, OutboxOldest: time.Second, Suspect: true,
		ReviewItems: map[string]int64{"conflict": 1},
		Channels:    []telemetry.ChannelState{{Channel: "sim", Tokens: 2.5, BreakerOpen: true}},
	}, nil
}

func TestMetricNamesFollowTheRules(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("v1")
	touch(m)
	m.CollectSnapshot(someSnapshot, zerolog.Nop())
	m.CollectLag(someLag)
	m.CollectRelay(someRelay)
	m.CollectPool(func() telemetry.PoolStats {
		return telemetry.PoolStats{InUse: 3, Idle: 1, Max: 24, Waits: 1, WaitTime: time.Second}
	})
	problems, err := testutil.GatherAndLint(m.Registry())
	require.NoError(t, err)
	require.Empty(t, problems)
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	ours := 0
	for _, f := range families {
		name := f.GetName()
		if strings.HasPrefix(name, "settleonce_") {
			ours++
			continue
		}
		require.True(t, strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_"), name)
	}
	require.GreaterOrEqual(t, ours, 30)
}

func TestSuspectInstallationIsOne(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("v1")
	m.CollectSnapshot(someSnapshot, zerolog.Nop())
	require.NoError(t, testutil.GatherAndCompare(m.Registry(), strings.NewReader(`
# HELP settleonce_installation_suspect 1 while commits may have been lost and nobody has acknowledged it (settleonce recover).
# TYPE settleonce_installation_suspect gauge
settleonce_installation_suspect 1
`), "settleonce_installation_suspect"))
}

func TestNilMetricsDoNothing(t *testing.T) {
	t.Parallel()
	touch(nil)
}

func someLag() []telemetry.PartitionLag {
	return []telemetry.PartitionLag{
		{Topic: "payment.commands", Partition: 3, Messages: 17, Age: 2 * time.Second},
		{Topic: "payment.commands", Partition: 4, Messages: -1},
	}
}

func someRelay() telemetry.RelayStats {
	return telemetry.RelayStats{Published: 9, PublishErrors: 1, Fenced: 1, Shards: 16}
}

func TestPartitionsOfUnknownLagAreAbsent(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("v1")
	m.CollectLag(someLag)
	n, err := testutil.GatherAndCount(m.Registry(), "settleonce_consumer_lag_messages")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// A database that does not answer is asked once, and its gauges are absent: zero would be a lie.
func TestSnapshotFailureIsAbsence(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics("v1")
	asked := 0
	m.CollectSnapshot(func(context.Context) (telemetry.Snapshot, error) {
		asked++
		return telemetry.Snapshot{}, errors.New("away")
	}, zerolog.Nop())
	n, err := testutil.GatherAndCount(m.Registry(), "settleonce_outbox_pending_messages")
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = testutil.GatherAndCount(m.Registry(), "settleonce_snapshot_errors_total")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, asked)
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, telemetry.LogConfig{})
	require.NoError(t, err)
	log = log.With().Str("component", "test").Logger()
	log.Debug().Msg("not shown")
	log.Info().Str("card", `4111 1111 1111 1111`).Str("method", "tok_visa_4242").Int64("offset", 4111111111111111).
		Str("key", "41111111-1111-4111-8111-111111111111").Str("quoted", `say "4111111111111111" \`).Msg("paid with 4111111111111111")

	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, "****1111", line["card"])
	require.Equal(t, "tok_****", line["method"])
	require.Equal(t, `say "****1111" \`, line["quoted"])
	require.Equal(t, "paid with ****1111", line["message"])
	require.Equal(t, "41111111-1111-4111-8111-111111111111", line["key"], "ids must stay whole")
	require.Contains(t, out.String(), `"offset":4111111111111111`, "numbers must stay numbers")
	text, ok := line["time"].(string)
	require.True(t, ok)
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	require.Equal(t, time.UTC, at.Location())
}

func TestConsoleLogIsMaskedToo(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := telemetry.NewLogger(&out, telemetry.LogConfig{Format: "console", Level: "warn"})
	require.NoError(t, err)
	log.Info().Msg("not shown")
	log.Warn().Str("caller", "shop").Int("send", 1).Msg("card 4111111111111111")
	require.Contains(t, out.String(), "WRN card ****1111 caller=shop send=1")
	require.NotContains(t, out.String(), "not shown")
	_, err = telemetry.NewLogger(&out, telemetry.LogConfig{Level: "loud"})
	require.ErrorContains(t, err, "use debug, info, warn or error")
}

type adminBundle struct {
	admin *telemetry.Admin
	url   string
}

func startAdmin(t *testing.T, pprof bool) adminBundle {
	t.Helper()
	m := telemetry.NewMetrics("v1")
	touch(m)
	a, err := telemetry.NewAdmin(telemetry.AdminConfig{Address: "127.0.0.1:0", PProf: pprof, Metrics: m})
	require.NoError(t, err)
	require.NoError(t, a.Listen(t.Context()))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return adminBundle{admin: a, url: "http://" + a.Address()}
}

func (b adminBundle) get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

func TestAdminEndpoints(t *testing.T) {
	t.Parallel()
	b := startAdmin(t, false)
	status, body := b.get(t, "/healthz")
	require.Equal(t, http.StatusOK, status, body)
	status, body = b.get(t, "/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `settleonce_commands_total{result="fresh"} 3`)
	status, _ = b.get(t, "/debug/pprof/")
	require.Equal(t, http.StatusNotFound, status, "profiles are behind a flag")
	status, _ = b.get(t, "/")
	require.Equal(t, http.StatusNotFound, status)
}

func TestReadinessNamesWhatFails(t *testing.T) {
	t.Parallel()
	b := startAdmin(t, true)
	b.admin.Ready("kafka", func(context.Context) error { return nil })
	b.admin.Ready("postgres", func(context.Context) error { return errors.New("connection refused") })
	b.admin.Live("watchdog", func(context.Context) error { return nil })
	status, body := b.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"status":"failing","checks":{"kafka":"ok","postgres":"connection refused"}}`, body)
	status, body = b.get(t, "/healthz")
	require.Equal(t, http.StatusOK, status, "not being ready is no reason to be started again")
	require.JSONEq(t, `{"status":"ok","checks":{"watchdog":"ok"}}`, body)
	status, _ = b.get(t, "/debug/pprof/cmdline")
	require.Equal(t, http.StatusOK, status)
}

func TestDrainingIsNotReady(t *testing.T) {
	t.Parallel()
	b := startAdmin(t, false)
	status, _ := b.get(t, "/readyz")
	require.Equal(t, http.StatusOK, status)
	b.admin.Drain()
	status, _ = b.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
}
