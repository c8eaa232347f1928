package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func (w *world) caller(name, namespace string) {
	w.t.Helper()
	_, err := w.look.Exec(w.t.Context(), `INSERT INTO settleonce.callers (name, namespace, rate, burst) VALUES ($1, $2, 0, 0)
		ON CONFLICT (name) DO UPDATE SET namespace = $2`, name, namespace)
	require.NoError(w.t, err)
}

// compared is a batch that compares with the table of callers.
func compared(arrivals ...store.Arrival) store.Batch {
	b := batch(arrivals...)
	b.CheckCallers = true
	return b
}

// G12, G15: a claim goes by what the table says at that moment, whatever the worker
// believes; where they differ nothing of the batch is claimed.
func TestG15_ClaimComparesCallersWithTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.caller("shop", "family")
	w.caller("kiosk", "family")
	w.caller("gone", "gone")
	_, err := w.look.Exec(t.Context(), `UPDATE settleonce.callers SET revoked_at = now() WHERE name = 'gone'`)
	require.NoError(t, err)
	by := func(caller, namespace string) store.Arrival {
		c := command()
		c.Caller = caller
		a := w.arrive(c)
		a.Namespace = namespace
		return a
	}
	good := func() store.Arrival { return by("shop", "family") }
	for name, stale := range map[string]store.Arrival{
		"another namespace": by("shop", "shop"), "shut out": by("gone", "gone"), "not there": by("stranger", "stranger"),
	} {
		_, err := w.store.Claim(t.Context(), compared(good(), stale, good()))
		require.ErrorIs(t, err, store.ErrCallersChanged, name)
		refused := stale
		refused.Refusal = &store.Refusal{Code: payment.CodeInvalidCommand}
		_, err = w.store.Claim(t.Context(), compared(refused))
		require.ErrorIs(t, err, store.ErrCallersChanged, "a stranger leaves no rejection behind: %s", name)
	}
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.payments`))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.obligation_holds`))
	dead := by("stranger", "stranger")
	dead.Dead = &store.Dead{Reason: payment.DeadForeignCaller, Error: "foreign"}
	b := compared(good(), by("kiosk", "family"), dead)
	out, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []string{"fresh", "fresh", "dead_lettered"}, verdicts(out))

	// Judged anew, the same batch goes on where it stopped.
	first, second := good(), by("kiosk", "kiosk")
	second.Command.OrderID = first.Command.OrderID
	b = compared(first, second)
	_, err = w.store.Claim(t.Context(), b)
	require.ErrorIs(t, err, store.ErrCallersChanged)
	b.Arrivals[1].Namespace, b.Again = "family", true
	out, err = w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []string{"fresh", "rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(out), "callers of one namespace see each other's payments")
	w.consistent()
}

// G15: a claim and a change of its caller's namespace, at once: when the change went
// through, no payment is left in the old namespace.
func TestG15_NamespaceChangeMeetsClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	changed, claimed := 0, 0
	for round := range 40 {
		name := fmt.Sprintf("caller-%d", round)
		w.caller(name, "old")
		c := command()
		c.Caller = name
		a := w.arrive(c)
		a.Namespace = "old"
		var claimErr, changeErr error
		var wg sync.WaitGroup
		wg.Go(func() { _, claimErr = w.store.Claim(t.Context(), compared(a)) })
		wg.Go(func() {
			changeErr = w.store.InNamespace(t.Context(), name, "new", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `UPDATE settleonce.callers SET namespace = 'new' WHERE name = $1`, name)
				return err
			})
		})
		wg.Wait()
		stayed := w.count(`SELECT count(*) FROM settleonce.payments WHERE namespace = 'old' AND caller = $1`, name)
		var elsewhere *store.NamespaceError
		switch {
		case changeErr == nil:
			require.ErrorIs(t, claimErr, store.ErrCallersChanged)
			require.Zero(t, stayed)
			changed++
		case errors.As(changeErr, &elsewhere):
			require.NoError(t, claimErr)
			require.Equal(t, 1, stayed)
			require.Equal(t, idOf(c), elsewhere.Payment)
			claimed++
		default:
			require.NoError(t, changeErr)
		}
	}
	t.Logf("%d changes went through, %d claims came first", changed, claimed)
}

func TestOpenPaymentsOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	for _, same := range []map[string]string{nil, {"shop": "shop"}, {"other": "x"}} {
		require.NoError(t, w.store.OpenElsewhere(t.Context(), same, true))
	}
	require.NoError(t, w.store.OpenElsewhere(t.Context(), map[string]string{"other": "x"}, false), "nothing new is taken from the caller")
	err := w.store.OpenElsewhere(t.Context(), map[string]string{"shop": "family"}, false)
	var elsewhere *store.NamespaceError
	require.ErrorAs(t, err, &elsewhere)
	require.ErrorContains(t, err, "caller shop has payments in namespace shop (one is "+idOf(c).String())
	w.reach(idOf(c), payment.Succeeded)
	require.NoError(t, w.store.OpenElsewhere(t.Context(), map[string]string{"shop": "family"}, false))
}
