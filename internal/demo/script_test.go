package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

var begin = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// The same seed is the same run; another seed has other keys.
func TestScript_FollowsFromItsSeed(t *testing.T) {
	t.Parallel()
	values := func(seed uint64) []string {
		var out []string
		for _, d := range write(size{records: 800}, 0, seed, begin, one).deliveries {
			m := d.message("t")
			out = append(out, string(m.Key)+string(m.Value))
		}
		return out
	}
	five := values(5)
	require.Equal(t, five, values(5))
	require.NotEqual(t, five, values(6))
}

// Every story is in every script, its deliveries lie inside the time, and about
// as many records are published as asked for.
func TestScript_HasEveryStory(t *testing.T) {
	t.Parallel()
	for _, records := range []int{100, 4000} {
		s := write(size{records: records}, 0, 3, begin, one)
		told := map[string]bool{}
		for _, p := range s.payments {
			told[p.story] = true
		}
		for _, story := range stories {
			if story.name != "unreadable" {
				require.True(t, told[story.name], story.name)
			}
		}
		require.GreaterOrEqual(t, s.records, records)
		require.Less(t, s.records, records+90)
		for _, d := range s.deliveries {
			require.GreaterOrEqual(t, d.at, time.Duration(0))
			require.LessOrEqual(t, d.at, s.length+5*time.Second)
		}
	}
}

// A script of so many payments has them all, and about as many records as is said. A
// larger one tells all that a smaller one of the same length does, so that what a seed
// shows in a small run is in a large one too.
func TestScript_HasThePayments(t *testing.T) {
	t.Parallel()
	told := func(n int) (s *script, keys []string) {
		s = write(size{payments: n}, time.Minute, 3, begin, one)
		for _, p := range s.payments {
			keys = append(keys, p.command.IdempotencyKey.String())
		}
		return s, keys
	}
	small, keys := told(500)
	require.Equal(t, 500, small.sought)
	large, more := told(3000)
	require.Equal(t, 3000, large.sought)
	known := map[string]bool{}
	for _, key := range more {
		known[key] = true
	}
	for _, key := range keys {
		require.True(t, known[key], "a larger script lacks a payment of the smaller one")
	}
	require.InEpsilon(t, Records(3000), large.records, 0.1)
	payments := map[string]bool{}
	for _, d := range large.deliveries {
		if d.command != nil {
			payments[d.command.IdempotencyKey.String()] = true
		}
	}
	require.Greater(t, len(payments), large.sought-120, "they come by themselves, but for those in transactions")
}

// What the stories say about a payment is what a consumer makes of it: faults are
// ones that the channel knows, and only invalid commands are invalid.
func TestScript_SaysWhatItMeans(t *testing.T) {
	t.Parallel()
	for _, p := range write(size{records: 4000}, 0, 4, begin, one).payments {
		if fault := p.command.Metadata["sim"]; fault != "" {
			_, err := sim.ParseFaults(fault, 1)
			require.NoError(t, err, p.story)
		}
		_, err := payment.DecodeCommand(p.command.AppendJSON(nil))
		if p.story == "invalid" {
			require.Error(t, err, p.story)
		} else {
			require.NoError(t, err, p.story)
		}
	}
}

// Records for the dead-letter topic name no payment, or not the one of their key.
func TestScript_GarbageCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, junk := range garbage {
		key, value := junk("8e03978e-40d5-43e8-bc93-6894a57f9324")
		decoded := payment.Decode(value)
		require.False(t, decoded.Identified && decoded.KeyMatches([]byte(key)), "%s", value)
	}
}

// one channel is enough to write a script.
var one = []Channel{{Channel: fleet.Channel{Name: "sim"}}}

// A trigger fires once, at its own event, and its repeats come later.
func TestPlayer_PublishesAfterEvents(t *testing.T) {
	t.Parallel()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	first := w.payment(endsCharged, "")
	w.when(first, payment.EventSucceeded, w.sameOrder(first, endsSecond), time.Hour)
	require.Equal(t, 2, w.script.count())
	p := newPlayer(w.script, nil, "t", nil)
	p.begun = time.Now()
	p.heard(first.id(), payment.EventUnknown, time.Time{})
	batch, left := p.take(time.Second)
	require.Empty(t, batch)
	require.True(t, left)
	p.heard(first.id(), payment.EventSucceeded, time.Time{})
	p.heard(first.id(), payment.EventSucceeded, time.Time{})
	batch, left = p.take(30 * time.Minute)
	require.Len(t, batch, 1)
	require.True(t, left)
	batch, left = p.take(2 * time.Hour)
	require.Len(t, batch, 1)
	require.False(t, left)
}

func TestParseKill(t *testing.T) {
	t.Parallel()
	kill, err := ParseKill("outbox@7.5")
	require.NoError(t, err)
	require.Equal(t, Kill{Role: RoleOutbox, At: 7500 * time.Millisecond}, kill)
	for _, text := range []string{"", "outbox", "outbox@", "outbox@-1", "outbox@soon", "postgres@1", "outbox@NaN", "outbox@1e300"} {
		_, err := ParseKill(text)
		require.ErrorContains(t, err, "ROLE@SECONDS", text)
	}
}

// Without a wish one worker of each role is killed, in the middle; kills at random
// moments follow from the seed and go over all roles.
func TestPlanKills(t *testing.T) {
	t.Parallel()
	length := 12 * time.Second
	plan := func(cfg Config) []Kill { return planKills(&cfg, length) }
	middle := plan(Config{Seed: 1})
	require.Len(t, middle, 3)
	for _, k := range middle {
		require.Greater(t, k.At, length/4)
		require.Less(t, k.At, length)
	}
	require.Empty(t, plan(Config{Kills: -1}))
	require.Len(t, plan(Config{Kill: []Kill{{Role: RoleSim}}}), 1)
	require.Len(t, plan(Config{KillSim: true}), 4)
	many := plan(Config{Seed: 1, Kills: 8, KillSim: true})
	require.Equal(t, many, plan(Config{Seed: 1, Kills: 8, KillSim: true}))
	require.NotEqual(t, many, plan(Config{Seed: 2, Kills: 8, KillSim: true}))
	roles := map[string]int{}
	for i, k := range many {
		roles[k.Role]++
		if i > 0 {
			require.GreaterOrEqual(t, k.At, many[i-1].At)
		}
	}
	require.Equal(t, map[string]int{RoleConsumer: 2, RoleOutbox: 2, RoleReconciler: 2, RoleSim: 2}, roles)
}

// What waits for a payment that is never published is not published either, nor
// waited for.
func TestPlayer_DropsWhatWaitsForTheDropped(t *testing.T) {
	t.Parallel()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	first := w.payment(endsCharged, "")
	second := w.following(first)
	w.when(first, payment.EventSucceeded, second)
	w.wellAfter(second, w.following(second))
	w.script.records = w.script.count()
	p := newPlayer(w.script, nil, "t", nil)
	p.begun = time.Now()
	p.heard(first.id(), payment.EventReviewRequired, time.Time{})
	_, left := p.take(time.Second)
	require.False(t, left)
	require.Len(t, w.script.expectations(), 1)
	require.Zero(t, p.records(), "nobody is told that they are to come")
}

// A payment that is issued once another one has succeeded bears the time at which
// it is published.
func TestPlayer_IssuesLate(t *testing.T) {
	t.Parallel()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	first := w.payment(endsCharged, "")
	second := w.sameOrder(first, endsCharged)
	w.wellAfter(first, second)
	p := newPlayer(w.script, nil, "t", nil)
	const after = 3 * time.Second
	p.begun = time.Now()
	p.heard(first.id(), payment.EventSucceeded, time.Time{})
	heard := time.Now()
	batch, left := p.take(after - time.Second)
	require.Empty(t, batch)
	require.True(t, left)
	batch, left = p.take(heard.Sub(p.begun) + after)
	require.Len(t, batch, 1)
	require.False(t, left)
	require.WithinRange(t, second.command.IssuedAt, p.begun.Add(after-time.Second), heard.Add(after))
}
