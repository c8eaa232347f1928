package payment_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

type groundCase struct {
	ground  payment.Ground
	self    uuid.UUID
	issued  time.Time
	follows *uuid.UUID
}

// groundCases is the whole product of what can stand on an obligation.
func groundCases() []groundCase {
	self, other, older := uuid.New(), uuid.New(), uuid.New()
	successAt := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	ids := []*uuid.UUID{nil, &self, &other}
	issues := []time.Duration{
		-time.Hour, 0, payment.SuccessTolerance - time.Microsecond,
		payment.SuccessTolerance, payment.SuccessTolerance + time.Microsecond, time.Hour,
	}
	cases := make([]groundCase, 0, 3*3*3*4*6*2)
	for _, holder := range ids {
		for _, conflict := range ids {
			for _, success := range ids {
				for _, follows := range append(ids, &older) {
					for _, after := range issues {
						for _, named := range []bool{false, true} {
							cases = append(cases, groundCase{
								ground: payment.Ground{
									Holder: holder, OpenConflict: conflict, LatestSuccess: success,
									SuccessAt: successAt, RepayNamed: named,
								},
								self: self, issued: successAt.Add(after), follows: follows,
							})
						}
					}
				}
			}
		}
	}
	return cases
}

// G15 over the whole product: the rule of the contract, written another way.
func TestGroundVerdict(t *testing.T) {
	t.Parallel()
	equal := func(a, b *uuid.UUID) bool { return a != nil && b != nil && *a == *b }
	cases := groundCases()
	require.Len(t, cases, 3*3*3*4*6*2)
	for _, c := range cases {
		code, blockedBy := c.ground.Verdict(c.self, c.issued, c.follows)
		g := c.ground

		heldByOther := g.Holder != nil && *g.Holder != c.self
		knows := g.LatestSuccess == nil || equal(c.follows, g.LatestSuccess) ||
			!g.RepayNamed && c.issued.Sub(g.SuccessAt) > 2*time.Second
		ownSuccess := equal(g.LatestSuccess, &c.self)
		allowed := !heldByOther && g.OpenConflict == nil && knows && !ownSuccess
		require.Equal(t, allowed, code == "", "%+v", c)
		require.Equal(t, allowed, blockedBy == nil, "a refusal names what is in the way: %+v", c)

		switch {
		case allowed:
		case heldByOther:
			require.Equal(t, payment.CodePriorAttemptUnresolved, code)
			require.Equal(t, *g.Holder, *blockedBy)
		case g.OpenConflict != nil:
			require.Equal(t, payment.CodePriorAttemptUnresolved, code)
			require.Equal(t, *g.OpenConflict, *blockedBy)
		default:
			require.Equal(t, payment.CodeObligationAlreadyPaid, code)
			require.Equal(t, *g.LatestSuccess, *blockedBy)
		}
	}
}

// P26: the three ways of paying one order twice with two keys.
func TestGroundRefusesTheSecondKeyOfAnOrder(t *testing.T) {
	t.Parallel()
	k1, k2 := uuid.New(), uuid.New()
	issuedK1 := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

	t.Run("consumed in the other order than issued", func(t *testing.T) {
		t.Parallel()
		ground := payment.Ground{LatestSuccess: &k2, SuccessAt: issuedK1.Add(time.Minute)}
		code, blockedBy := ground.Verdict(k1, issuedK1, nil)
		require.Equal(t, payment.CodeObligationAlreadyPaid, code)
		require.Equal(t, k2, *blockedBy)
	})
	t.Run("pressed again before the reply was heard", func(t *testing.T) {
		t.Parallel()
		ground := payment.Ground{LatestSuccess: &k1, SuccessAt: issuedK1, RepayNamed: true}
		code, _ := ground.Verdict(k2, issuedK1.Add(time.Hour), nil)
		require.Equal(t, payment.CodeObligationAlreadyPaid, code)
		code, _ = ground.Verdict(k2, issuedK1.Add(-time.Hour), &k1)
		require.Empty(t, code, "named on purpose")
	})
	t.Run("paid again on purpose, later", func(t *testing.T) {
		t.Parallel()
		ground := payment.Ground{LatestSuccess: &k1, SuccessAt: issuedK1}
		code, _ := ground.Verdict(k2, issuedK1.Add(time.Minute), nil)
		require.Empty(t, code)
	})
}

func TestFreshnessJudge(t *testing.T) {
	t.Parallel()
	f := payment.Freshness{}.WithDefaults()
	require.NoError(t, f.Validate())
	require.Equal(t, 14*24*time.Hour, f.Window)
	require.Equal(t, 5*time.Minute, f.Skew)
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for age, want := range map[time.Duration]payment.Code{
		0:                           "",
		f.Window:                    "",
		f.Window + time.Microsecond: payment.CodeStaleCommand,
		100 * f.Window:              payment.CodeStaleCommand,
		-f.Skew:                     "",
		-f.Skew - time.Microsecond:  payment.CodeInvalidCommand,
		-100 * f.Window:             payment.CodeInvalidCommand,
	} {
		require.Equal(t, want, f.Judge(now.Add(-age), now), "age %s", age)
	}
	require.Equal(t, payment.CodeStaleCommand, f.Judge(time.Time{}, now))
}

func TestFreshnessValidate(t *testing.T) {
	t.Parallel()
	for _, f := range []payment.Freshness{
		{}, {Window: -1, Skew: 1}, {Window: 1, Skew: -1}, {Window: time.Minute, Skew: time.Minute}, {Window: time.Hour},
	} {
		require.ErrorContains(t, f.Validate(), "set the ")
	}
}

// G14, P27: while a copy of a command can be judged fresh, its key is known.
func TestKeyOutlivesEveryFreshCopy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := payment.Freshness{
			Window: time.Duration(rapid.Int64Range(int64(time.Hour), int64(1000*time.Hour)).Draw(t, "window")),
			Skew:   time.Duration(rapid.Int64Range(1, int64(time.Hour)-1).Draw(t, "skew")),
		}
		require.NoError(t, f.Validate())
		start := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
		draw := func(name string) time.Time {
			return start.Add(time.Duration(rapid.Int64Range(0, int64(2000*time.Hour)).Draw(t, name)))
		}
		claimed, ended, issued := draw("claimed"), draw("ended"), draw("issued")
		until := f.KeepUntil(claimed, ended, issued)
		require.Equal(t, payment.CodeStaleCommand, f.Judge(issued, until), "a copy that meets a forgotten key is stale")
		require.True(t, until.Sub(claimed) >= f.Window && until.Sub(ended) >= f.Window)
		require.Equal(t, f.KeepUntil(claimed, time.Time{}, issued), f.KeepUntil(claimed, claimed, issued))
	})
}
