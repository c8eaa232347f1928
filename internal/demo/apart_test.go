package demo

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
)

// staged is a script with what the callers do beside it, as if all had credentials.
func staged(seed uint64, records int) (*script, *callerPlay) {
	cfg := Config{Seed: seed, Apart: true, Registered: true, Channels: one}
	who := rosterOf(&cfg)
	for _, name := range who.names {
		who.tokens[name] = tokenOf(name)
	}
	s := write(size{records: records}, 0, seed, begin, one)
	who.stage(s, &cfg, begin)
	return s, who.play
}

// What the callers do follows from the seed, and leaves the others of a seed as they
// are: the stories, and what is replayed of them.
func TestApart_FollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	plain := write(size{records: 800}, 0, 5, begin, one)
	s, play := staged(5, 800)
	require.Equal(t, plain.deliveries, s.deliveries)
	require.Equal(t, plain.payments, s.payments[:len(plain.payments)])
	_, again := staged(5, 800)
	require.Equal(t, play.forged, again.forged)
	require.Equal(t, play.poses, again.poses)
	require.Equal(t, play.deliveries, again.deliveries)
	_, other := staged(6, 800)
	require.NotEqual(t, play.forged, other.forged)
}

// Every way to forge and every guess is there, in each size, and all in time.
func TestApart_HasEveryAttack(t *testing.T) {
	t.Parallel()
	for _, records := range []int{100, 4000} {
		s, play := staged(3, records)
		ways, kinds := map[string]int{}, map[string]int{}
		for _, f := range play.forged {
			ways[f.How]++
		}
		require.Len(t, ways, len(waysToForge))
		require.GreaterOrEqual(t, len(play.forged), records/shareForged)
		for _, p := range play.poses {
			kinds[p.request.posed]++
			require.Less(t, p.at, s.length)
			require.NotEqual(t, tokenOf(p.request.command.Caller), p.request.token)
		}
		require.Len(t, kinds, len(guesses))
		callers := map[string]int{}
		for _, d := range play.deliveries {
			require.LessOrEqual(t, d.at, s.length+5*time.Second)
			if d.command != nil {
				callers[d.command.Caller]++
			}
		}
		for _, caller := range []string{notary, partner, leaver, chain} {
			require.GreaterOrEqual(t, callers[caller], burst, caller)
		}
		require.Zero(t, callers[kiosk]+callers[newcomer], "their time has not come")
		require.Len(t, play.paid, burst)
	}
}

// A signature is that of its caller, and the forgers' is another one.
func TestSigned(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 1, Apart: true, Channels: one}
	who := rosterOf(&cfg)
	s, _ := staged(1, 100)
	c := s.payments[0].command
	c.Caller = notary
	p := &player{topic: "t", keys: who.keys}
	genuine := p.signed(&delivery{command: &c})
	require.Len(t, genuine.Headers, 1)
	signature := string(genuine.Headers[0].Value)
	require.NotEqual(t, signature, damaged(signature))
	require.Equal(t, []byte("v1:x"), p.signed(&delivery{command: &c, signature: "v1:x"}).Headers[0].Value)
	c.Caller = partner
	require.Empty(t, p.signed(&delivery{command: &c}).Headers)
}

// Callers that sign, that have topics of their own, that forge, guess, are shut out,
// move and come: the verdict is the same.
func TestApart_EndsInTheSameVerdict(t *testing.T) {
	t.Parallel()
	report := runDemo(t, Config{Commands: 300, Seed: 15, Kills: -1, EdgeShare: 20, Apart: true, Registered: true})
	require.True(t, report.Passed())
	require.GreaterOrEqual(t, report.Counts.Forged, fewestForged)
	require.GreaterOrEqual(t, report.Counts.ShutOut, burst)
	require.GreaterOrEqual(t, report.Counts.Posed, impostors)
}

// Workers that do not want the notary's signature: the verdict of a real run must say
// so.
func TestVerdict_SeesARealForgeryOfACommand(t *testing.T) {
	t.Parallel()
	report := runDemo(t, Config{
		Commands: 100, Seed: 16, Kills: -1, Apart: true,
		Workers: func(*fleet.Fleet) ([]string, error) { return []string{"SETTLEONCE_REQUIRE_SIGNATURE="}, nil },
	})
	require.False(t, report.Passed())
	require.True(t, slices.ContainsFunc(report.Violations, func(v check.Violation) bool {
		return v.Guarantee == "G12" && strings.Contains(v.Text, "not signed")
	}))
	require.NoError(t, os.RemoveAll(report.Kept))
}

func tokenOf(caller string) string { return "so_" + caller + "_secret-of-" + caller }
