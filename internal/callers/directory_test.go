package callers_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
)

// G12: a key is its caller's, and nothing that looks like it is.
func TestG12_Authenticate(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(nil)
	shop, partner := g.add("shop", callers.Change{Namespace: new("family")}), g.add("partner", callers.Change{})
	c, credential, err := d.Authenticate(t.Context(), shop.Bearer)
	require.NoError(t, err)
	require.Equal(t, "shop", c.Name)
	require.Equal(t, "family", c.Namespace)
	require.Equal(t, callers.DefaultCredential, credential)
	c, _, err = d.Authenticate(t.Context(), partner.Bearer)
	require.NoError(t, err)
	require.Equal(t, "partner", c.Name)

	_, secret, _ := strings.Cut(shop.Bearer[3:], "_")
	last := "a"
	if strings.HasSuffix(shop.Bearer, last) {
		last = "b"
	}
	for name, wrong := range map[string]string{
		"nothing": "", "only the prefix": "so_", "no secret": "so_" + shop.ID + "_", "no id": "so__" + secret,
		"another's id": "so_" + partner.ID + "_" + secret, "one character": shop.Bearer[:len(shop.Bearer)-1] + last,
		"a piece": shop.Bearer[:len(shop.Bearer)-1], "and more": shop.Bearer + "a", "without prefix": shop.Bearer[3:],
		"capitals": strings.ToUpper(shop.Bearer), "long": "so_" + strings.Repeat("a", 1<<20), "the stored hash": "so_" + shop.ID + "_" + g.hash(shop.ID),
	} {
		require.False(t, g.knows(d, wrong), name)
	}
}

func (g *ground) hash(id string) string {
	g.Helper()
	var hash string
	require.NoError(g, g.pool.QueryRow(g.Context(), `SELECT encode(hash, 'hex') FROM settleonce.caller_keys WHERE id = $1`, id).Scan(&hash))
	return hash
}

// A revoked key is refused once the copy is old, a new one is known at once.
func TestG12_RevocationTakesEffect(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(func(c *callers.DirectoryConfig) { c.Fresh, c.Again = 300*time.Millisecond, time.Nanosecond })
	old := g.add("shop", callers.Change{})
	require.True(t, g.knows(d, old.Bearer))
	next, err := g.registry.Rotate(t.Context(), ada, "shop", "", time.Hour)
	require.NoError(t, err)
	require.True(t, g.knows(d, next.Bearer), "a new key is looked for at once")
	require.True(t, g.knows(d, old.Bearer), "both count")
	_, err = g.registry.Revoke(t.Context(), ada, "shop", callers.What{Key: old.ID})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !g.knows(d, old.Bearer) }, time.Minute, 10*time.Millisecond)
	require.True(t, g.knows(d, next.Bearer))
	_, err = g.registry.Revoke(t.Context(), ada, "shop", callers.What{All: true})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !g.knows(d, next.Bearer) }, time.Minute, 10*time.Millisecond)
}

// A key that expires inside the life of a copy is refused all the same.
func TestG12_ExpiryWithoutReading(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(func(c *callers.DirectoryConfig) { c.Fresh, c.Again = time.Hour, time.Hour })
	old := g.add("shop", callers.Change{})
	_, err := g.registry.Rotate(t.Context(), ada, "shop", "", 20*time.Second)
	require.NoError(t, err)
	require.True(t, g.knows(d, old.Bearer))
	require.Eventually(t, func() bool { return !g.knows(d, old.Bearer) }, time.Minute, 10*time.Millisecond)
}

// Strangers cannot make the database work: however many keys they try, it is read
// once per second.
func TestG12_StrangersDoNotReachTheDatabase(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(func(c *callers.DirectoryConfig) { c.Fresh, c.Again = time.Hour, time.Hour })
	shop := g.add("shop", callers.Change{})
	require.True(t, g.knows(d, shop.Bearer))
	before := g.pool.Stat().AcquireCount()
	for range 1000 {
		require.False(t, g.knows(d, "so_aaaaaaaaaaaaaaaa_"+strings.Repeat("a", 52)))
	}
	require.True(t, g.knows(d, shop.Bearer))
	require.Equal(t, before, g.pool.Stat().AcquireCount())
}

// P22: without the database nobody is let in once the copy is old, and nobody is
// told that the key is wrong.
func TestP22_DirectoryWithoutDatabase(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(always)
	shop := g.add("shop", callers.Change{})
	require.True(t, g.knows(d, shop.Bearer))
	g.pool.Close()
	for _, bearer := range []string{shop.Bearer, "so_a_b"} {
		_, _, err := d.Authenticate(t.Context(), bearer)
		require.Error(t, err)
		require.NotErrorIs(t, err, callers.ErrUnknownKey)
	}
	require.False(t, g.knows(d, "rubbish"), "what is no key at all needs no database")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := d.Authenticate(ctx, shop.Bearer)
	require.Error(t, err)
	_, ok := d.Find("shop")
	require.True(t, ok, "the consumer's copy is still there")
}

// Many requests at once share one reading.
func TestDirectoryReadsOnceForMany(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	shop := g.add("shop", callers.Change{})
	d := g.directory(func(c *callers.DirectoryConfig) { c.Fresh = time.Hour })
	before := g.pool.Stat().AcquireCount()
	var known atomic.Int64
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, _, err := d.Authenticate(t.Context(), shop.Bearer); err == nil {
				known.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, known.Load())
	require.Equal(t, before+1, g.pool.Stat().AcquireCount())
}

func TestAllow(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(nil)
	free, slow, other := callers.Caller{Name: "free"}, callers.Caller{Name: "slow", Rate: 0.001, Burst: 3}, callers.Caller{Name: "other", Rate: 0.001, Burst: 1}
	for range 100 {
		ok, _ := d.Allow(free)
		require.True(t, ok)
	}
	for range 3 {
		ok, _ := d.Allow(slow)
		require.True(t, ok)
	}
	for range 5 {
		ok, wait := d.Allow(slow)
		require.False(t, ok)
		require.Greater(t, wait, 10*time.Minute)
		require.LessOrEqual(t, wait, 1000*time.Second, "who is refused takes nothing")
	}
	ok, _ := d.Allow(other)
	require.True(t, ok, "each caller has a limit of its own")
	slow.Rate = 1e6
	require.Eventually(t, func() bool { ok, _ := d.Allow(slow); return ok }, time.Minute, time.Millisecond, "a raised limit counts")
}

func TestDirectoryNeedsAPool(t *testing.T) {
	t.Parallel()
	_, err := callers.NewDirectory(callers.DirectoryConfig{})
	require.ErrorContains(t, err, "needs a pool")
	g := newGround(t)
	_, err = callers.NewDirectory(callers.DirectoryConfig{Pool: g.pool, Fresh: -1})
	require.ErrorContains(t, err, "negative")
}
