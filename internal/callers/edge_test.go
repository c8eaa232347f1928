package callers_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/producer/edge"
)

// The edge is told what the table says, and keeps to its limits.
func TestEdgeAsksTheTable(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	e := callers.NewEdge(g.directory(nil))
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	issued := g.add("shop", callers.Change{Namespace: new("family"), Rate: new(0.001), Burst: new(1), RequireIssuedAt: new(true), GraceUntil: &until})
	_, err := e.Authenticate(t.Context(), issued.Bearer+"x")
	require.ErrorIs(t, err, edge.ErrUnknownCredential)
	c, err := e.Authenticate(t.Context(), issued.Bearer)
	require.NoError(t, err)
	require.True(t, c.GraceUntil.Equal(until))
	c.GraceUntil = time.Time{}
	require.Equal(t, edge.Caller{Name: "shop", Namespace: "family", Credential: callers.DefaultCredential, RequireIssuedAt: true}, c)
	ok, _ := e.Allow(c)
	require.True(t, ok)
	ok, wait := e.Allow(c)
	require.False(t, ok)
	require.Positive(t, wait)
	g.pool.Close()
	always := callers.NewEdge(g.directory(always))
	_, err = always.Authenticate(t.Context(), issued.Bearer)
	require.Error(t, err)
	require.NotErrorIs(t, err, edge.ErrUnknownCredential, "the edge answers 503, not 401")
}
