package main

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/settleonce/settleonce/internal/telemetry"
)

var (
	metricName = regexp.MustCompile(`settleonce_[a-z_]+`)
	// seriesOf are the endings that a histogram's series have.
	seriesOf = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// exported are the metrics that the binary exports.
func exported() (known []string) {
	m := telemetry.NewMetrics("test")
	m.CollectSnapshot(nil, zerolog.Nop())
	m.CollectLag(nil)
	m.CollectRelay(nil)
	m.CollectPool(nil)
	descs := make(chan *prometheus.Desc, 1000)
	m.Registry().Describe(descs)
	close(descs)
	for d := range descs {
		known = append(known, metricName.FindString(d.String()))
	}
	return known
}

// requireExported refuses a query about a metric that does not exist: it would
// show nothing and never fire.
func requireExported(t *testing.T, known []string, where, query string) {
	t.Helper()
	used := metricName.FindAllString(query, -1)
	require.NotEmpty(t, used, where)
	for _, name := range used {
		require.True(t, slices.Contains(known, name) || slices.Contains(known, seriesOf.ReplaceAllString(name, "")), "%s uses %s", where, name)
	}
}

// alert is one rule of alerts.yml.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []alert } }
	require.NoError(t, yaml.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Groups[0].Rules)
	return file.Groups[0].Rules
}

// Every alert asks for what exists, has a section of its own in the runbook, and is
// tried by `make alerts` both ways.
func TestAlerts(t *testing.T) {
	t.Parallel()
	known := exported()
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	tried, err := os.ReadFile("../../deploy/prometheus/alerts_test.yml")
	require.NoError(t, err)
	for _, a := range alerts(t) {
		requireExported(t, known, a.Alert, a.Expr)
		require.Contains(t, []string{"page", "ticket"}, a.Labels["severity"], a.Alert)
		require.True(t, strings.HasSuffix(a.Annotations["runbook_url"], "/docs/runbook.md#"+strings.ToLower(a.Alert)), a.Alert)
		require.Contains(t, string(page), "\n### "+a.Alert+"\n")
		require.Contains(t, string(tried), "name: "+a.Alert+" fires\n")
		require.Contains(t, string(tried), "name: "+a.Alert+" stays silent\n")
	}
}

// Every query of the dashboard names metrics that exist.
func TestDashboard(t *testing.T) {
	t.Parallel()
	known := exported()
	raw, err := os.ReadFile("../../deploy/grafana/settleonce.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &board))
	require.NotEmpty(t, board.Panels)
	for _, panel := range board.Panels {
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			requireExported(t, known, panel.Title, target.Expr)
		}
	}
}
