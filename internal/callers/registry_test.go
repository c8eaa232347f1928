package callers_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/store"
)

func TestAddRotateRevoke(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	d := g.directory(always)
	first := g.add("shop", callers.Change{Rate: new(2.5)})
	require.Regexp(t, `^so_[a-z2-7]{16}_[a-z2-7]{52}$`, first.Bearer)
	c, _, err := d.Authenticate(t.Context(), first.Bearer)
	require.NoError(t, err)
	require.Equal(t, callers.Caller{Name: "shop", Namespace: "shop", Rate: 2.5, Burst: 3}, c)

	cron, err := g.registry.Add(t.Context(), ada, "shop", "cron", callers.Change{})
	require.NoError(t, err)
	c, credential, err := d.Authenticate(t.Context(), cron.Bearer)
	require.NoError(t, err)
	require.Equal(t, "shop", c.Name, "several credentials are one caller")
	require.Equal(t, "cron", credential)
	_, err = g.registry.Add(t.Context(), ada, "shop", "cron", callers.Change{})
	g.refused(err, `has a credential "cron" already`)
	_, err = g.registry.Add(t.Context(), ada, "shop", "x", callers.Change{Rate: new(1.0)})
	g.refused(err, "caller shop is there already: change it with `settleonce callers set shop`")

	second, err := g.registry.Rotate(t.Context(), ada, "shop", "", time.Hour)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), *second.Until, time.Minute)
	require.True(t, g.knows(d, first.Bearer) && g.knows(d, second.Bearer), "two count at once")
	_, err = g.registry.Rotate(t.Context(), ada, "shop", "", 0)
	g.refused(err, "has 2 valid keys already: wait until "+first.ID+" expires")
	ended, err := g.registry.Revoke(t.Context(), ada, "shop", callers.What{Key: first.ID})
	require.NoError(t, err)
	require.EqualValues(t, 1, ended)
	third, err := g.registry.Rotate(t.Context(), ada, "shop", "", 0)
	require.NoError(t, err)
	require.False(t, g.knows(d, first.Bearer) || g.knows(d, second.Bearer))
	require.True(t, g.knows(d, third.Bearer) && g.knows(d, cron.Bearer), "each credential is rotated for itself")
	_, err = g.registry.Revoke(t.Context(), ada, "shop", callers.What{Key: first.ID})
	g.refused(err, "has no such valid key")
	_, err = g.registry.Revoke(t.Context(), ada, "shop", callers.What{Credential: "cron"})
	require.NoError(t, err)
	require.False(t, g.knows(d, cron.Bearer))
	_, err = g.registry.Rotate(t.Context(), ada, "shop", "cron", 0)
	g.refused(err, `no valid key of credential "cron"`)

	ended, err = g.registry.Revoke(t.Context(), ada, "shop", callers.What{All: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, ended)
	require.False(t, g.knows(d, third.Bearer))
	found, ok := d.Find("shop")
	require.True(t, ok && found.Revoked)
	again := g.add("shop", callers.Change{})
	require.True(t, g.knows(d, again.Bearer), "a caller can come back")
	require.False(t, g.knows(d, third.Bearer), "its keys cannot")

	entries, err := g.registry.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 1)
	states := map[string]int{}
	for _, k := range entries[0].Keys {
		states[k.State]++
	}
	require.Equal(t, map[string]int{"revoked": 3, "expired": 1, "valid": 1}, states)
	g.audited("callers add", 3)
	g.audited("callers rotate", 2)
	g.audited("callers revoke", 3)
	g.keepsNoSecret(first, second, third, cron, again)
}

func (g *ground) audited(action string, want int) {
	g.Helper()
	var n int
	require.NoError(g, g.pool.QueryRow(g.Context(), `SELECT count(*) FROM settleonce.audit
		WHERE action = $1 AND actor = 'ada' AND reason = 'test' AND detail->>'caller' = 'shop'`, action).Scan(&n))
	require.Equal(g, want, n, action)
}

// keepsNoSecret looks for the secrets in everything that is stored.
func (g *ground) keepsNoSecret(issued ...callers.Issued) {
	g.Helper()
	var stored string
	require.NoError(g, g.pool.QueryRow(g.Context(), `SELECT (SELECT string_agg(k::text, '') FROM settleonce.caller_keys k)
		|| (SELECT string_agg(c::text, '') FROM settleonce.callers c) || (SELECT string_agg(a::text, '') FROM settleonce.audit a)`).Scan(&stored))
	for _, i := range issued {
		_, secret, _ := strings.Cut(i.Bearer[3:], "_")
		require.Contains(g, stored, i.ID)
		require.NotContains(g, stored, secret)
	}
}

func TestRegistryRefusesNonsense(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.add("shop", callers.Change{})
	for _, name := range []string{"", "Shop", "a b", "ключ", strings.Repeat("a", 65), "*", "a+b", "-a"} {
		_, err := g.registry.Add(t.Context(), ada, name, "", callers.Change{})
		g.refused(err, "is not a name")
	}
	for _, set := range []callers.Change{
		{Namespace: new("")}, {Namespace: new("A")}, {Rate: new(-1.0)}, {Rate: new(math.NaN())}, {Rate: new(math.Inf(1))}, {Rate: new(1.0), Burst: new(0)}, {Burst: new(-1)},
	} {
		_, err := g.registry.Set(t.Context(), ada, "shop", set)
		require.ErrorIs(t, err, callers.ErrRefused)
	}
	_, err := g.registry.Set(t.Context(), ada, "shop", callers.Change{})
	g.refused(err, "nothing is to be set")
	_, err = g.registry.Set(t.Context(), ada, "stranger", callers.Change{Rate: new(1.0)})
	g.refused(err, "caller stranger is not there")
	_, err = g.registry.Rotate(t.Context(), ada, "stranger", "", 0)
	g.refused(err, "caller stranger is not there")
	_, err = g.registry.Rotate(t.Context(), ada, "shop", "", -1)
	g.refused(err, "cannot be kept for")
	_, err = g.registry.Revoke(t.Context(), ada, "stranger", callers.What{All: true})
	g.refused(err, "caller stranger is not there")
}

func TestSet(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.add("shop", callers.Change{})
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	c, err := g.registry.Set(t.Context(), ada, "shop", callers.Change{
		Namespace: new("family"), Rate: new(10.0), Burst: new(50), RequireIssuedAt: new(true), GraceUntil: &until,
	})
	require.NoError(t, err)
	require.Equal(t, "family", c.Namespace)
	c, err = g.registry.Set(t.Context(), ada, "shop", callers.Change{RequireIssuedAt: new(false)})
	require.NoError(t, err)
	require.Equal(t, 50, c.Burst, "what is not named stays")
	require.True(t, c.GraceUntil.Equal(until))
	c, err = g.registry.Set(t.Context(), ada, "shop", callers.Change{GraceUntil: &time.Time{}})
	require.NoError(t, err)
	require.True(t, c.GraceUntil.IsZero())
	g.audited("callers set", 3)
	d := g.directory(always)
	require.NoError(t, d.Refresh(t.Context()))
	found, ok := d.Find("shop")
	require.True(t, ok)
	require.Equal(t, c, found)
}

// G15: a namespace stays while a payment of the caller is open or remembered, also
// when the caller is added to the table after it has paid.
func TestG15_NamespaceStaysWithThePayments(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.add("shop", callers.Change{})
	id := uuid.New()
	g.insertPayment(id, "shop", "shop", 4)
	g.insertPayment(uuid.New(), "kiosk", "family", 1)
	var elsewhere *store.NamespaceError
	_, err := g.registry.Set(t.Context(), ada, "shop", callers.Change{Namespace: new("family")})
	g.refused(err, "caller shop has payments in namespace shop")
	require.ErrorAs(t, err, &elsewhere)
	require.Equal(t, id, elsewhere.Payment)
	_, err = g.registry.Set(t.Context(), ada, "shop", callers.Change{Rate: new(1.0)})
	require.NoError(t, err, "anything else may change")
	_, err = g.registry.Add(t.Context(), ada, "kiosk", "", callers.Change{})
	g.refused(err, "caller kiosk has payments in namespace family")
	g.add("kiosk", callers.Change{Namespace: new("family")})
	_, err = g.registry.Revoke(t.Context(), ada, "kiosk", callers.What{All: true})
	require.NoError(t, err)
	_, err = g.registry.Add(t.Context(), ada, "kiosk", "", callers.Change{Namespace: new("kiosk")})
	g.refused(err, "keep namespace family")
	_, err = g.pool.Exec(t.Context(), `DELETE FROM settleonce.payments WHERE caller = 'shop'`)
	require.NoError(t, err)
	_, err = g.registry.Set(t.Context(), ada, "shop", callers.Change{Namespace: new("family")})
	require.NoError(t, err, "forgotten payments do not count")
}

// insertPayment is a payment as a claim leaves it.
func (g *ground) insertPayment(id uuid.UUID, caller, namespace string, state int) {
	g.Helper()
	_, err := g.pool.Exec(g.Context(), `INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version,
		namespace, obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity, provider_key,
		state, version, attempt, sends, origin_topic, origin_partition, origin_offset, origin_time, issued_at, latest_issued_at, ended_at)
		VALUES ($1, $2, 'charge', $1, '\x00', 1, $3, 'o', 1, 'o', 1, 'EUR', 'c', 'm', 'sim', 'sim', $1, $4::smallint, 1, 1, 1, 't', 0, 0, $5, $5, $5,
		CASE WHEN $4::smallint = 4 THEN $5::timestamptz END)`, id, caller, namespace, state, time.Now())
	require.NoError(g, err)
}
