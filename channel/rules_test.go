package channel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/channel"
)

// full is a channel that promises everything: memory 60, lag 5, reach 100,
// longest execution 10, send 3 ticks.
func full() channel.Capabilities {
	return channel.Capabilities{
		Identity: "acme/live", IdempotentSubmit: true, KeyMemory: 60 * tick, PinsFailures: true,
		Query: true, VisibilityLag: 5 * tick, QueryReach: 100 * tick, NotFoundIsProof: true,
		LongestExecution: 10 * tick, SubmitTimeout: 3 * tick, QueryTimeout: tick,
	}.WithDefaults()
}

// with changes a copy of a full record.
func with(change func(c *channel.Capabilities)) channel.Capabilities {
	c := full()
	change(&c)
	return c
}

func unpinned(c *channel.Capabilities) { c.PinsFailures = false }

func notIdempotent(c *channel.Capabilities) {
	c.IdempotentSubmit, c.PinsFailures, c.KeyMemory = false, false, 0
}

func sends(count, lastDeadline int) channel.Sends {
	return channel.Sends{Count: count, First: at(0), LastDeadline: at(lastDeadline)}
}

func TestConcludesDecline(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		c     channel.Capabilities
		sends channel.Sends
		now   int
		want  bool
	}{
		{"the only send was answered", with(notIdempotent), sends(1, 3), 1, true},
		{"P25: an older send may be executed", with(unpinned), sends(2, 8), 6, false},
		{"P25: an older send is dead but may have been executed since", with(unpinned), sends(2, 8), 50, false},
		{"failures are pinned", full(), sends(2, 8), 6, true},
		{"pinned, but the key is forgotten", full(), sends(2, 8), 60, false},
		{"pinned, but forgotten while a send may live", full(), sends(2, 51), 52, false},
		{"pinned without idempotence is no promise", with(func(c *channel.Capabilities) { c.IdempotentSubmit = false }), sends(2, 8), 6, false},
		{"a pinned record whose execution time nobody knows", with(func(c *channel.Capabilities) { c.LongestExecution = 0 }), sends(2, 8), 6, false},
		{"nothing was sent as far as we know", full(), channel.Sends{}, 1, false},
		{"a record without times", full(), channel.Sends{Count: 2}, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, tt.c.ConcludesDecline(tt.sends, at(tt.now)))
		})
	}
}

func TestDeclineQueryAfter(t *testing.T) {
	t.Parallel()
	require.Equal(t, at(8+10+5), full().DeclineQueryAfter(sends(2, 8)), "P30: deadline, execution, lag")
	for name, c := range map[string]channel.Capabilities{
		"no query":                  with(func(c *channel.Capabilities) { c.Query = false }),
		"lag not documented":        with(func(c *channel.Capabilities) { c.VisibilityLag = 0 }),
		"execution not documented":  with(func(c *channel.Capabilities) { c.LongestExecution = 0 }),
		"nothing at all documented": {},
	} {
		require.True(t, channel.Never(c.DeclineQueryAfter(sends(2, 8))), name)
	}
	require.True(t, channel.Never(full().DeclineQueryAfter(channel.Sends{Count: 2})), "a record without times")
	immediate := with(func(c *channel.Capabilities) { c.VisibilityLag = channel.Immediate })
	require.Equal(t, at(18).Add(time.Nanosecond), immediate.DeclineQueryAfter(sends(2, 8)))
}

func TestPermitsSend(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		c             channel.Capabilities
		sends         channel.Sends
		now, deadline int
		want          channel.Refusal
	}{
		{"the first send", with(notIdempotent), channel.Sends{}, 0, 3, ""},
		{"the first send to a channel that promises nothing", channel.Capabilities{}, channel.Sends{}, 0, 3, ""},
		{"P5: a second send without idempotence", with(notIdempotent), sends(1, 3), 30, 33, channel.RefusalNotIdempotent},
		{"a resume inside the memory", full(), sends(1, 3), 20, 23, ""},
		{"P7: the key is forgotten", full(), sends(1, 3), 61, 64, channel.RefusalKeyMemory},
		{"P29: forgotten while the send may be executed", full(), sends(1, 3), 47, 50, channel.RefusalKeyMemory},
		{"P29: the last execution just inside", full(), sends(1, 3), 46, 49, ""},
		{"an older send outlives this one", full(), sends(1, 55), 20, 23, channel.RefusalKeyMemory},
		{"memory without end", with(func(c *channel.Capabilities) { c.KeyMemory = channel.Forever }), sends(3, 3), 1e8, 1e8 + 3, ""},
		{"memory not documented", with(func(c *channel.Capabilities) { c.KeyMemory = 0 }), sends(1, 3), 4, 7, channel.RefusalKeyMemory},
		{"execution not documented", with(func(c *channel.Capabilities) { c.LongestExecution = 0 }), sends(1, 3), 4, 7, channel.RefusalKeyMemory},
		{"a record without times", full(), channel.Sends{Count: 1}, 4, 7, channel.RefusalKeyMemory},
		{"P23: the deadline is over", full(), channel.Sends{}, 3, 3, channel.RefusalDeadline},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			permitted, refusal := tt.c.PermitsSend(tt.sends, at(tt.now), at(tt.deadline))
			require.Equal(t, tt.want, refusal)
			require.Equal(t, tt.want == "", permitted)
		})
	}
}

func TestQueryCanSee(t *testing.T) {
	t.Parallel()
	require.True(t, full().QueryCanSee(sends(1, 3), at(98)))
	require.False(t, full().QueryCanSee(sends(1, 3), at(99)), "answered when it no longer reaches back")
	require.True(t, full().QueryCanSee(channel.Sends{}, at(500)), "nothing was sent yet")
	require.False(t, with(func(c *channel.Capabilities) { c.Query = false }).QueryCanSee(sends(1, 3), at(1)))
	require.False(t, channel.Capabilities{Query: true}.QueryCanSee(sends(1, 3), at(1)), "reach not documented")
}

func TestNotFound(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		c     channel.Capabilities
		sends channel.Sends
		query int
		want  channel.NotFoundMeaning
	}{
		{"P13: right after the send", full(), sends(1, 3), 4, channel.NotFoundTooEarly},
		{"P13: the lag just over", full(), sends(1, 3), 8, channel.NotFoundTooEarly},
		{"past the lag, may be sent again", full(), sends(1, 3), 9, channel.NotFoundAbsent},
		{"claimed, never sent", full(), channel.Sends{}, 9, channel.NotFoundAbsent},
		{"P7: past the memory, proof", full(), sends(1, 3), 70, channel.NotFoundProvenAbsent},
		{"past the memory, no proof", with(func(c *channel.Capabilities) { c.NotFoundIsProof = false }), sends(1, 3), 70, channel.NotFoundMeansNothing},
		{"past the memory, a send may live", full(), sends(2, 48), 59, channel.NotFoundTooEarly},
		{"P5: not idempotent, a send may live", with(notIdempotent), sends(1, 3), 18, channel.NotFoundTooEarly},
		{"P5: not idempotent, proof", with(notIdempotent), sends(1, 3), 19, channel.NotFoundProvenAbsent},
		{"not idempotent, no proof", with(func(c *channel.Capabilities) { notIdempotent(c); c.NotFoundIsProof = false }), sends(1, 3), 50, channel.NotFoundMeansNothing},
		{"not idempotent, nothing sent as far as we know", with(notIdempotent), channel.Sends{}, 50, channel.NotFoundMeansNothing},
		{"beyond the reach", full(), sends(1, 3), 99, channel.NotFoundMeansNothing},
		{"lag not documented", with(func(c *channel.Capabilities) { c.VisibilityLag = 0 }), sends(1, 3), 50, channel.NotFoundMeansNothing},
		{"execution not documented", with(func(c *channel.Capabilities) { notIdempotent(c); c.LongestExecution = 0 }), sends(1, 3), 50, channel.NotFoundMeansNothing},
		{"no query", with(func(c *channel.Capabilities) { c.Query = false }), sends(1, 3), 50, channel.NotFoundMeansNothing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want.String(), tt.c.NotFound(tt.sends, at(tt.query)).String())
		})
	}
}

// TestNothingDocumentedPromisesNothing: the zero record permits one send, and
// neither declines by query nor takes "not found" for anything.
func TestNothingDocumentedPromisesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := sends(rapid.IntRange(2, 5).Draw(t, "sends"), rapid.IntRange(1, 50).Draw(t, "deadline"))
		now := at(rapid.IntRange(0, 1e6).Draw(t, "now"))
		var none channel.Capabilities
		permitted, _ := none.PermitsSend(s, now, now.Add(time.Second))
		if permitted || none.ConcludesDecline(s, now) || !channel.Never(none.DeclineQueryAfter(s)) ||
			none.QueryCanSee(s, now) || none.NotFound(s, now) != channel.NotFoundMeansNothing {
			t.Fatal("a record without promises promised something")
		}
	})
}
