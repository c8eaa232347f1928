package callers_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// ground is a database with a registry and what reads it.
type ground struct {
	*testing.T

	pool     *pgxpool.Pool
	store    *store.Store
	registry *callers.Registry
}

var ada = callers.By{Actor: "ada", Reason: "test"}

func newGround(t *testing.T) *ground {
	t.Helper()
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: pgtest.DSN(t, pgtest.Schema), MaxConns: 4})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := store.New(store.Config{Pool: pool, Topics: payment.NewTopics("")})
	return &ground{T: t, pool: pool, store: s, registry: callers.NewRegistry(pool, s)}
}

func (g *ground) directory(change func(*callers.DirectoryConfig)) *callers.Directory {
	g.Helper()
	cfg := callers.DirectoryConfig{Pool: g.pool, Timeout: time.Minute} // a pause of the machine is no missing database
	if change != nil {
		change(&cfg)
	}
	d, err := callers.NewDirectory(cfg)
	require.NoError(g, err)
	return d
}

func (g *ground) add(name string, set callers.Change) callers.Issued {
	g.Helper()
	issued, err := g.registry.Add(g.Context(), ada, name, "", set)
	require.NoError(g, err)
	return issued
}

func (g *ground) refused(err error, want string) {
	g.Helper()
	require.ErrorIs(g, err, callers.ErrRefused)
	require.ErrorContains(g, err, want)
}

func (g *ground) knows(d *callers.Directory, bearer string) bool {
	g.Helper()
	_, _, err := d.Authenticate(g.Context(), bearer)
	if err != nil {
		require.ErrorIs(g, err, callers.ErrUnknownKey)
	}
	return err == nil
}

// always reads the table anew for each question.
func always(c *callers.DirectoryConfig) { c.Fresh, c.Again = time.Nanosecond, time.Nanosecond }
