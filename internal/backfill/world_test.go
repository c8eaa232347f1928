package backfill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/backfill"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// world is a database to bring payments into.
type world struct {
	t     *testing.T
	dsn   string
	pool  *pgxpool.Pool
	store *store.Store
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dsn: pgtest.DSN(t, pgtest.Schema)}
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: w.dsn, MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	w.pool = pool
	w.store = store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()})
	return w
}

// file writes a file of its own.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "payments.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func openCSV(t *testing.T, text string) *backfill.CSV {
	t.Helper()
	source, err := backfill.OpenCSV(file(t, text), ',')
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, source.Close(context.WithoutCancel(t.Context()))) })
	return source
}

// constants are what most tests set for every row.
func constants() backfill.MappingConfig {
	return backfill.MappingConfig{Values: map[string]string{"caller": "shop", "channel": "sim", "currency": "EUR"}}
}

// ran is one run with what it wrote.
type ran struct {
	backfill.Report

	rejects []backfill.Refusal
}

func (w *world) config(source backfill.Source, mapping backfill.MappingConfig) backfill.Config {
	w.t.Helper()
	m, err := backfill.NewMapping(mapping, source.Columns())
	require.NoError(w.t, err)
	return backfill.Config{
		Source: source, Mapping: m, Store: w.store, Name: "legacy", Execute: true, Actor: "ada", Reason: "moving",
	}
}

func (w *world) run(cfg backfill.Config) (ran, error) {
	w.t.Helper()
	var rejects bytes.Buffer
	cfg.Rejects = &rejects
	report, err := backfill.Run(w.t.Context(), cfg)
	out := ran{Report: report}
	for line := range strings.Lines(rejects.String()) {
		var r backfill.Refusal
		require.NoError(w.t, json.Unmarshal([]byte(line), &r))
		out.rejects = append(out.rejects, r)
	}
	return out, err
}

func (w *world) count(query string) int {
	w.t.Helper()
	var n int
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), query).Scan(&n))
	return n
}

// payments is a file of n old payments.
func payments(n int) string {
	var text strings.Builder
	text.WriteString("id,order_id,amount,outcome,provider_reference,created_at\n")
	for i := range n {
		outcome := [...]string{"succeeded", "declined", ""}[i%3]
		fmt.Fprintf(&text, "%d,order-%d,%d,%s,ch_%d,2025-11-30 10:00:00\n", i+1, i+1, 100+i, outcome, i+1)
	}
	return text.String()
}
