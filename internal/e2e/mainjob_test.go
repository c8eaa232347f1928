package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// One command, one charge, one outcome; a repeat gets the first outcome; other
// content under the key conflicts (G1, G2, G8).
func TestG2_RepeatGetsFirstOutcome(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command()
	s.send(c)
	reply := s.waitReply(c.IdempotencyKey, payment.ReplyOutcome)
	require.Equal(t, payment.Succeeded, reply.Outcome.State)
	require.NotEmpty(t, reply.Outcome.ProviderReference)
	s.send(c)
	again := s.waitReply(c.IdempotencyKey, payment.ReplyReplayed)
	require.True(t, again.Replayed)
	require.Equal(t, reply.Outcome.ProviderReference, again.Outcome.ProviderReference)
	other := c
	other.Amount++
	s.send(other)
	require.Equal(t, payment.CodeIdempotencyConflict, s.waitReply(c.IdempotencyKey, payment.ReplyConflict).Code)
	require.Equal(t, 1, s.settled(c))
}

// A lost answer is unknown, then found by query (G3), never sent again.
func TestP1_LostAnswerIsQueried(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command(fault("lost_answer"))
	s.send(c)
	st := s.waitState(c, payment.Succeeded)
	require.Equal(t, 1, s.settled(c))
	states := make([]payment.State, 0, len(st.History))
	for _, h := range st.History {
		states = append(states, h.State)
	}
	require.Equal(t, []payment.State{payment.Pending, payment.Unknown, payment.Succeeded}, states)
}

// An explicit decline is terminal and answered as such (G4).
func TestG4_DeclinedIsTerminal(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := command(fault("declined"))
	s.send(c)
	require.Equal(t, payment.Declined, s.waitReply(c.IdempotencyKey, payment.ReplyOutcome).Outcome.State)
	s.send(c)
	require.Equal(t, payment.Declined, s.waitReply(c.IdempotencyKey, payment.ReplyReplayed).Outcome.State)
	require.Zero(t, s.settled(c))
}

// A second key for an unresolved order is refused, and stays refused (G15, P2).
func TestP2_SecondKeyWhileUnknown(t *testing.T) {
	t.Parallel()
	s := shared(t)
	first := command(fault("lost_answer,query_error@1,query_error@2"))
	s.send(first)
	s.waitState(first, payment.Unknown)
	s.lookAgain(first, time.Hour)
	second := command(func(c *payment.Command) { c.OrderID = first.OrderID })
	s.send(second)
	reply := s.waitReply(second.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, payment.CodePriorAttemptUnresolved, reply.Code)
	require.Equal(t, first.Identity().PaymentID(), *reply.BlockedBy)
	s.lookAgain(first, 0)
	s.waitState(first, payment.Succeeded)
	s.send(second)
	require.Eventually(t, func() bool {
		replies := s.replies(second.IdempotencyKey)
		return len(replies) == 2 && replies[1].Replayed && replies[1].Code == payment.CodePriorAttemptUnresolved
	}, waitFor, tick)
	require.Zero(t, s.settled(second))
}

// Everything that a channel can do to a thousand commands ends in one charge at
// most, and in an outcome that the ledger agrees with (G1, G3).
func TestG1_FaultMix(t *testing.T) {
	t.Parallel()
	s := start(t, brisk(6*time.Second))
	faults := []string{"", "", "", "", "declined", "lost_answer", "error_after", "error_before", "refused", "reset_before", "throttled", "garbage", "hangup"}
	commands := make([]payment.Command, 0, 390)
	for i := range 390 {
		c := command()
		if f := faults[i%len(faults)]; f != "" {
			fault(f)(&c)
		}
		commands = append(commands, c)
	}
	s.send(commands...)
	s.send(commands[:100]...)
	for _, c := range commands {
		var state payment.State
		require.Eventually(t, func() bool {
			st, err := s.store.Status(s.ctx, c.Identity().PaymentID())
			if err != nil {
				return false
			}
			state = st.Payment.State
			return state.Terminal() || state == payment.Review
		}, waitLong, tick, "%s %v", c.IdempotencyKey, c.Metadata)
		switch charged := s.settled(c); state {
		case payment.Succeeded:
			require.Equal(t, 1, charged, "%v", c.Metadata)
		case payment.Declined:
			require.Zero(t, charged, "%v", c.Metadata)
		case payment.Review, payment.Pending, payment.Unknown, payment.Rejected:
			require.LessOrEqual(t, charged, 1, "%v", c.Metadata)
		}
	}
	require.Zero(t, s.sim.Summary().DoubleCharged)
}
