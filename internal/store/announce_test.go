package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
)

// With the setting on, a claim is an event: it raises the version by one, and a
// rejection in the same batch publishes none.
func TestAnnounceRaisesTheVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := command()
	rival := sameOrder(first)
	b := batch(w.arrive(first))
	b.Announce = true
	outcomes, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, store.Claimed, outcomes[0].Verdict)
	require.Equal(t, 1, w.count(`SELECT version FROM settleonce.payments`))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.outbox WHERE type = 'payment.accepted'`))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.outbox WHERE type = 'payment.reply.accepted'`))
	b = batch(w.arrive(rival))
	b.Announce = true
	outcomes, err = w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, store.Rejected, outcomes[0].Verdict)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.outbox WHERE type = 'payment.accepted'`))
}
