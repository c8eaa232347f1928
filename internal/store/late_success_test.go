package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// TestP35_LateSuccessBesideTheNextPayment: the provider reports success for a
// declined payment while the order's next one is open. A conflict item beside
// that one's hold, nothing overwritten, no batch fails; and the next one is not
// sent any more if it was not yet.
func TestP35_LateSuccessBesideTheNextPayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	instant := sim.NewInstant()
	channels, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: instant, Capabilities: instant.Capabilities()}})
	require.NoError(t, err)
	rules := settle.Rules{Channels: channels}.WithDefaults()

	first := w.claimed(command())
	firstID := first.Identity().PaymentID()
	w.apply(firstID, always(finish(payment.Declined)))
	next := w.arrive(sameOrder(first))
	next.Admit, next.ChannelIdentity = false, instant.Capabilities().Identity
	require.Equal(t, store.Parked, w.claim(next)[0].Verdict)
	nextID := next.Identity.PaymentID()

	late := settle.Permit{Payment: w.status(firstID).Payment, Lease: 1, Actor: "test"}
	success := payment.Answer{Class: payment.ClassSucceeded, Reference: "ch_late"}
	other := w.claimed(command())
	applied, err := w.store.Apply(t.Context(), []store.Step{
		{Payment: firstID, Decide: rules.Answered(late, success)},
		{Payment: other.Identity().PaymentID(), Decide: always(finish(payment.Succeeded))},
	})
	require.NoError(t, err)
	require.NoError(t, applied[0].Err)
	require.Equal(t, payment.Succeeded, applied[1].After.State, "the rest of the batch is stored")
	require.Equal(t, payment.Declined, w.status(firstID).Payment.State, "terminal is sticky")
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.review_items WHERE kind = 'conflict' AND payment = $1`, firstID))
	require.Equal(t, nextID, w.holder(w.status(nextID).Payment.Namespace, w.status(nextID).Payment.Obligation))

	lease := w.status(nextID).Open.Lease
	refused, err := w.store.Apply(t.Context(), []store.Step{{
		Payment: nextID, WithGround: true,
		Decide: rules.Permitted(settle.Grant{Lease: lease, Admitted: true, Actor: "test"}),
	}})
	require.NoError(t, err)
	require.Equal(t, payment.Rejected, refused[0].After.State)
	require.Equal(t, string(payment.CodePriorAttemptUnresolved), refused[0].After.Cause)
}
