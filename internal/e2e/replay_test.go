package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/replay"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

var ada = store.Operator{Actor: "ada", Reason: "INC-42"}

func (s *stack) player(progress func(looked, all int64)) *replay.Player {
	return replay.New(replay.Config{
		Kafka: s.kafka, Store: s.check, Commands: []string{s.topics.Commands}, Freshness: payment.Freshness{}.WithDefaults(), Progress: progress,
	})
}

// records counts what a topic holds, and how much of it a replay published.
func (s *stack) records(topic string) (all, replayed int64) {
	s.t.Helper()
	require.NoError(s.t, s.kafka.ReadAll(s.ctx, topic, func(r kafka.Record) error {
		all++
		for _, h := range r.Headers {
			if h.Key == replay.Header {
				replayed++
			}
		}
		return nil
	}))
	return all, replayed
}

// The whole command topic is replayed three times in a row: what it would do is
// said before, and nobody is charged.
func TestReplay_WholeTopicChargesNobody(t *testing.T) {
	t.Parallel()
	s := start(t)
	var commands []payment.Command
	for range 20 {
		commands = append(commands, command())
	}
	conflict := commands[0]
	conflict.Amount++
	s.send(append(commands, conflict)...)
	for _, c := range commands {
		s.waitState(c, payment.Succeeded)
	}
	s.waitReply(conflict.IdempotencyKey, payment.ReplyConflict)
	s.consumers[0].stop()
	stale, fresh := command(issued(-15*24*time.Hour)), command()
	s.send(stale, fresh)

	player := s.player(nil)
	all := &replay.Selection{Topic: s.topics.Commands}
	preview, err := player.Look(s.ctx, all)
	require.NoError(t, err)
	require.EqualValues(t, 23, preview.Matching)
	require.Equal(t, map[store.Foreseen]int64{
		store.ForeseenReplayed: 20, store.ForeseenConflict: 1, store.ForeseenStale: 1, store.ForeseenFresh: 1,
	}, preview.Commands)

	for range 3 {
		r, err := player.Begin(s.ctx, all, ada)
		require.NoError(t, err)
		r, err = player.Run(s.ctx, r, 0)
		require.NoError(t, err)
		require.Equal(t, store.ReplayDone, r.State)
		_, err = player.Run(s.ctx, r, 0)
		require.ErrorIs(t, err, replay.ErrDone)
	}
	records, replayed := s.records(s.topics.Commands)
	require.EqualValues(t, 23*8, records) // each replay publishes what is there, and so doubles it
	require.EqualValues(t, 23*7, replayed)

	s.startConsumer()
	s.waitState(fresh, payment.Succeeded)
	s.waitReply(stale.IdempotencyKey, payment.ReplyRejected)
	s.offsetsAtEnd()
	for _, c := range append(commands, fresh) {
		require.Equal(t, 1, s.settled(c))
	}
	require.Zero(t, s.settled(stale))
	require.Equal(t, 3, s.count("SELECT count(*) FROM settleonce.audit WHERE action = 'replay' AND actor = 'ada' AND reason = 'INC-42'"))
}

func (s *stack) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRow(s.ctx, sql).Scan(&n))
	return n
}

// Records are chosen by key, caller, order, offsets and time; what cannot be meant
// is refused, and nothing is changed.
func TestReplay_ChoosesRecords(t *testing.T) {
	t.Parallel()
	s := start(t, only(0, 0, 0))
	shop, cron := command(), command(func(c *payment.Command) { c.Caller = "cron" })
	s.send(shop, cron, command())
	player := s.player(nil)
	matching := func(sel replay.Selection) int64 {
		sel.Topic = s.topics.Commands
		preview, err := player.Look(s.ctx, &sel)
		require.NoError(t, err)
		return preview.Matching
	}
	require.EqualValues(t, 3, matching(replay.Selection{}))
	require.EqualValues(t, 1, matching(replay.Selection{Key: shop.IdempotencyKey.String()}))
	require.EqualValues(t, 1, matching(replay.Selection{Caller: "cron"}))
	require.EqualValues(t, 1, matching(replay.Selection{Order: shop.OrderID, Caller: "shop"}))
	require.Zero(t, matching(replay.Selection{Order: shop.OrderID, Caller: "cron"}))
	require.EqualValues(t, 3, matching(replay.Selection{Since: time.Now().Add(-time.Hour)}))
	require.Zero(t, matching(replay.Selection{Since: time.Now().Add(time.Hour)}))
	require.Zero(t, matching(replay.Selection{Until: time.Now().Add(-time.Hour)}))
	partition := kafka.Partition([]byte(shop.IdempotencyKey.String()), 16)
	require.Positive(t, matching(replay.Selection{Offsets: map[int]store.Span{partition: {From: 0, To: 10}}}))

	for want, sel := range map[string]replay.Selection{
		"ends before it starts": {Topic: s.topics.Commands, Since: time.Now(), Until: time.Now().Add(-time.Hour)},
		"end before they start": {Topic: s.topics.Commands, Offsets: map[int]store.Span{0: {From: 5, To: 5}}},
		"no partition 99":       {Topic: s.topics.Commands, Offsets: map[int]store.Span{99: {From: 0, To: 5}}},
		"not by both":           {Topic: s.topics.Commands, Offsets: map[int]store.Span{0: {From: 0, To: 5}}, Since: time.Now()},
		"name the --topic":      {},
		"no such topic":         {Topic: "nowhere"},
	} {
		_, err := player.Begin(s.ctx, &sel, ada)
		require.Error(t, err, want)
		if want != "no such topic" {
			require.ErrorContains(t, err, want)
		}
	}
	_, err := player.Begin(s.ctx, &replay.Selection{Topic: s.topics.Commands}, store.Operator{Actor: "ada"})
	require.ErrorContains(t, err, "--reason")
	require.Zero(t, s.count("SELECT count(*) FROM settleonce.replays"))
}

// A replay that is stopped goes on where it was: every record is published at
// least once, and none of what was kept is published again.
func TestReplay_StopsAndGoesOn(t *testing.T) {
	t.Parallel()
	s := start(t, only(0, 0, 0))
	var commands []payment.Command
	for range 1500 {
		commands = append(commands, command())
	}
	s.send(commands...)
	ctx, stop := context.WithCancel(s.ctx)
	player := s.player(func(looked, _ int64) {
		if looked > 600 {
			stop()
		}
	})
	r, err := player.Begin(ctx, &replay.Selection{Topic: s.topics.Commands}, ada)
	require.NoError(t, err)
	stopped, err := player.Run(ctx, r, 1e6)
	require.Error(t, err)
	require.Equal(t, store.ReplayStopped, stopped.State)
	require.Positive(t, stopped.Published)
	require.Less(t, stopped.Published, int64(1500))
	kept, err := s.check.FindReplay(s.ctx, r.ID)
	require.NoError(t, err)
	require.Equal(t, stopped.Published, kept.Published)

	done, err := s.player(nil).Run(s.ctx, kept, 0)
	require.NoError(t, err)
	require.Equal(t, store.ReplayDone, done.State)
	require.EqualValues(t, 1500, done.Published)
	seen := map[string]int{}
	require.NoError(t, s.kafka.ReadAll(s.ctx, s.topics.Commands, func(record kafka.Record) error {
		seen[string(record.Key)]++
		return nil
	}))
	for _, c := range commands {
		require.GreaterOrEqual(t, seen[c.IdempotencyKey.String()], 2)
	}
}

// A group is set back only while nobody is in it, and never forward.
func TestReplay_SetsAStoppedGroupBack(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := command()
	s.send(c)
	s.waitState(c, payment.Succeeded)
	s.offsetsAtEnd()
	player := s.player(nil)
	all := &replay.Selection{Topic: s.topics.Commands}
	r, err := player.LookGroup(s.ctx, all, "settleonce-consumer")
	require.NoError(t, err)
	require.EqualValues(t, 1, r.Again)
	require.Eventually(t, func() bool { // a member that was paused for long joins again
		r, err = player.LookGroup(s.ctx, all, "settleonce-consumer")
		return err == nil && len(r.Members) > 0
	}, waitFor, tick)
	require.ErrorContains(t, player.ResetGroup(s.ctx, r, ada), "is running")
	_, err = player.LookGroup(s.ctx, &replay.Selection{Topic: s.topics.Commands, Key: "k"}, "settleonce-consumer")
	require.ErrorContains(t, err, "whole partitions")
	_, err = player.LookGroup(s.ctx, all, "no-such-group")
	require.ErrorContains(t, err, "committed nothing")

	s.consumers[0].stop()
	require.Eventually(t, func() bool {
		r, err = player.LookGroup(s.ctx, all, "settleonce-consumer")
		return err == nil && len(r.Members) == 0
	}, waitFor, tick)
	require.NoError(t, player.ResetGroup(s.ctx, r, ada))
	s.startConsumer()
	require.True(t, s.waitReply(c.IdempotencyKey, payment.ReplyReplayed).Replayed)
	require.Equal(t, 1, s.settled(c))
	require.Equal(t, 1, s.count("SELECT count(*) FROM settleonce.audit WHERE action = 'reset-offsets'"))
}
