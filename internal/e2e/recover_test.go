package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// askedFirst requires that the provider was asked about a command before it was sent.
func (s *stack) askedFirst(c payment.Command) {
	s.t.Helper()
	submits, queries := s.front.submits(c), s.front.queries(c)
	require.NotEmpty(s.t, queries)
	for _, submit := range submits {
		require.True(s.t, queries[0].at.Before(submit.at), "sent before its provider was asked")
	}
}

func (s *stack) suspect() string {
	s.t.Helper()
	in, err := s.check.CheckInstallation(s.ctx)
	require.NoError(s.t, err)
	return in.Suspect
}

// recovered acknowledges what happened, and waits until new commands are sent at
// once again.
func (s *stack) recovered() {
	s.t.Helper()
	_, err := s.check.Recover(s.ctx, "test", "the ledger was compared")
	require.NoError(s.t, err)
	for try := 1; ; try++ {
		require.LessOrEqual(s.t, try, 200, "still asking first")
		c := command()
		s.send(c)
		require.Eventually(s.t, func() bool {
			state := s.state(c)
			return state == payment.Succeeded || state == payment.Review
		}, waitLong, tick)
		if s.state(c) == payment.Succeeded && len(s.front.queries(c)) == 0 {
			break
		}
	}
	require.Empty(s.t, s.suspect())
}

// A database that was restored to an earlier time has forgotten what was sent.
// The stored offset tells; everything that is delivered again is asked about
// before it is sent, also what is new, until an operator acknowledges it (G1, G6).
func TestG1_RestoredDatabase(t *testing.T) {
	t.Parallel()
	s := start(t)
	batch := commands(30)
	declined := command(fault("declined"))
	s.send(batch...)
	s.send(declined)
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
	}
	s.waitState(declined, payment.Declined)
	s.offsetsAtEnd()
	stopAll(s.consumers[0], s.reconcilers[0], s.relays[0])
	for _, sql := range []string{
		`DELETE FROM settleonce.payments`, `DELETE FROM settleonce.payment_history`, `DELETE FROM settleonce.outbox`,
		`UPDATE settleonce.consumed_offsets SET next_offset = 0`,
	} {
		_, err := s.db.Exec(s.ctx, sql)
		require.NoError(t, err)
	}
	s.startRelay()
	s.startConsumer()
	s.startReconciler()
	for _, c := range batch {
		s.waitState(c, payment.Succeeded)
		require.Len(t, s.front.submits(c), 1, "charged from memory that was lost")
		require.NotEmpty(t, s.front.queries(c))
		s.once(c)
	}
	s.waitState(declined, payment.Declined)
	require.Len(t, s.front.submits(declined), 1)
	require.Contains(t, s.suspect(), "the database knows offset")
	require.NotEmpty(t, s.logs.with("commits may be lost"))
	fresh := command()
	s.send(fresh)
	s.waitState(fresh, payment.Succeeded)
	s.askedFirst(fresh)
	s.recovered()
	require.Zero(t, s.sim.Summary().DoubleCharged)
}

// A database on another timeline, or another server, may have lost commits too.
func TestG1_PromotedDatabase(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ change, reason string }{
		"timeline": {`UPDATE settleonce.installation SET timeline = timeline + 1`, "timeline"},
		"server":   {`UPDATE settleonce.installation SET system_identifier = system_identifier + 1`, "another server"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, only(1, 0, 1))
			_, err := s.db.Exec(s.ctx, tc.change)
			require.NoError(t, err)
			s.startConsumer()
			c := command()
			s.send(c)
			s.waitState(c, payment.Succeeded)
			require.Contains(t, s.suspect(), tc.reason)
			s.askedFirst(c)
			require.Len(t, s.front.submits(c), 1)
			s.recovered()
			s.once(c)
		})
	}
}

// Where the channel cannot be asked, a person decides about what is claimed while
// commits may be lost.
func TestG1_PromotedWithoutALookup(t *testing.T) {
	t.Parallel()
	s := start(t, only(1, 0, 1), behave(func(b *sim.Behaviour) { b.Query = false }))
	require.NoError(t, s.check.MarkSuspect(s.ctx, "a test says so"))
	s.startConsumer()
	c := command()
	s.send(c)
	s.waitState(c, payment.Review)
	require.Empty(t, s.front.submits(c))
	s.recovered()
	require.Equal(t, payment.Review, s.state(c))
	require.Empty(t, s.front.submits(c))
}

// A database that hangs in the middle of everything ends the worker with an error
// that says so; another one goes on where it stopped.
func TestG5_WatchdogOverAHungDatabase(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		consumer, reconciler time.Duration // stall limits
		role                 func(*stack) *role
	}{
		"consumer": {consumer: 20 * time.Second, role: func(s *stack) *role { return s.consumers[0] }},
		// Below the deadline of a connection that is opened anew: the next step begins there.
		"reconciler": {reconciler: 4 * time.Second, role: func(s *stack) *role { return s.reconcilers[0] }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, proxied, only(1, 0, 0))
			s.set.stall = tc.consumer
			s.startConsumer().owns()
			s.set.stall = tc.reconciler
			s.startReconciler().owns()
			s.set.stall = 0
			batch := commands(20, fault("lost_answer,query_error@1"))
			s.send(batch...)
			for _, c := range batch { // wake-ups are waiting in the reconciler
				s.watch.until(t, func() bool { return len(s.wakeups(c, 2)) > 0 }, "second wake-up of %s", c.IdempotencyKey)
			}
			s.proxy.hang()
			more := commands(20)
			s.send(more...)
			for _, r := range append(s.consumers, s.reconcilers...) {
				r.fails = true
			}
			require.ErrorIs(t, tc.role(s).failure(), kafka.ErrStalled)
			s.proxy.flow()
			stopAll(s.consumers[0], s.reconcilers[0])
			s.startConsumer()
			s.startReconciler()
			for _, c := range append(batch, more...) {
				s.waitState(c, payment.Succeeded)
				s.once(c)
			}
		})
	}
}
