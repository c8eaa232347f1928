package e2e_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// formerly is a charge that an older system made, under a key of its own.
func (s *stack) formerly() (payment.Command, uuid.UUID, payment.Answer) {
	s.t.Helper()
	c, key := command(), uuid.New()
	ctx, cancel := context.WithTimeout(s.ctx, waitFor)
	defer cancel()
	answer := s.direct(ctx, channel.Request{
		ProviderKey: key, PaymentID: uuid.New(), Amount: c.Amount, Currency: c.Currency, OrderID: c.OrderID, CustomerID: c.CustomerID,
		PaymentMethod: c.PaymentMethod,
	})
	require.Equal(s.t, payment.ClassSucceeded, answer.Class)
	return c, key, answer
}

// imported brings old payments in.
func (s *stack) imported(rows ...store.Imported) {
	s.t.Helper()
	progress, end, err := s.store.BeginBackfill(s.ctx, "legacy", "test", "ada", "test")
	require.NoError(s.t, err)
	defer end()
	for i := range rows {
		rows[i].Namespace = rows[i].Command.Caller
		rows[i].Fingerprint, err = rows[i].Command.ImportedFingerprint()
		require.NoError(s.t, err)
	}
	taken, err := s.store.Import(s.ctx, rows, &progress)
	require.NoError(s.t, err)
	for _, what := range taken {
		require.Equal(s.t, store.TakenNew, what)
	}
}

// G3: an old payment without an outcome is asked about under the key that its provider knows, and gets
// the provider's outcome; nothing is sent.
func TestG3_ImportedPaymentIsAskedAbout(t *testing.T) {
	t.Parallel()
	s := start(t, patient)
	s.warm()
	c, key, answer := s.formerly()
	s.imported(store.Imported{Command: c, State: payment.Review, ProviderKey: key, ChannelIdentity: "sim:test", Ask: true})
	s.send(c)
	require.Equal(t, payment.Review, s.waitReply(c.IdempotencyKey, payment.ReplyPending).State)

	_, err := s.db.Exec(s.ctx, `UPDATE settleonce.open_payments SET next_check_at = now()`)
	require.NoError(t, err)
	st := s.waitState(c, payment.Succeeded)
	require.Equal(t, answer.Reference, st.Payment.ProviderReference)
	require.Equal(t, []payment.State{payment.Succeeded}, s.waitEvents(c, 1))
	require.Equal(t, payment.Succeeded, s.waitReply(c.IdempotencyKey, payment.ReplyOutcome).State)
	var resolution string
	require.NoError(t, s.db.QueryRow(s.ctx, `SELECT coalesce(resolution, '') FROM settleonce.review_items`).Scan(&resolution))
	require.Equal(t, "the provider reports success", resolution)
	require.Equal(t, 1, s.ledger()[key].Settled)
	require.Zero(t, s.ledger()[c.Identity().ProviderKey(1)].Settled)
}

// A callback about an old payment is recognised by the names that its provider has for it, and changes nothing.
func TestG9_CallbackOfImportedPayment(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.warm()
	d := s.takeCallbacks(false)
	c, key, answer := s.formerly()
	s.imported(store.Imported{
		Command: c, State: payment.Succeeded, ProviderKey: key, ChannelIdentity: "sim:test", ProviderReference: answer.Reference,
	})
	n := news(c, func(n *sim.Callback) {
		n.Charge.PaymentID, n.Charge.ProviderKey, n.Charge.ID = "", key.String(), answer.Reference
	})
	d.tell(n)
	s.waitResult(n, store.CallbackAgreed)
	require.Empty(t, s.events(c))
	require.Zero(t, s.reviews())
}
