package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// One call may take several transactions (payments that share an obligation, a
// row that the database refuses). All run under one lease, and a payment that an
// earlier one opened must not be permitted again by a later one (G1).

// TestG1_RepeatBehindAnotherKeyOfItsOrder: K1, K2 of the same order, K1 again.
func TestG1_RepeatBehindAnotherKeyOfItsOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := command()
	changed := first
	changed.Amount = 1
	refused := w.arrive(first)
	refused.Refusal = &store.Refusal{Code: payment.CodeUnknownChannel}
	other := sameOrder(first)
	arrivals := append(w.arriveAll(first, other, first, changed), refused)
	require.Equal(t, []string{
		"fresh", "rejected PRIOR_ATTEMPT_UNRESOLVED", "pending", "conflict IDEMPOTENCY_CONFLICT", "pending",
	}, verdicts(w.claim(arrivals...)))
	w.consistent()
}

// bad is an arrival that passes every check of ours and that only Postgres
// refuses.
func (w *world) bad(how string) store.Arrival {
	a := w.arrive(command())
	switch how {
	case "NUL":
		a.Command.CustomerID = "a\x00b"
	case "surrogate":
		a.Command.PaymentMethod = "\xed\xa0\x80"
	case "check":
		a.Command.Amount = 0
	case "index entry too long":
		a.Command.Obligation = random(9000)
	}
	return a
}

// random is text that does not compress.
func random(n int) string {
	var b []byte
	for len(b) < n {
		b = append(b, command().OrderID...)
	}
	return string(b[:n])
}

// TestB21_OneBadRowAmongMany: it is dead-lettered, the others go on, and repeats
// across the halves are still repeats.
func TestB21_OneBadRowAmongMany(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"NUL", "surrogate", "check", "index entry too long"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			twice, bad := command(), w.bad(how)
			b := batch()
			for len(b.Arrivals) < 498 {
				b.Arrivals = append(b.Arrivals, w.arrive(command()))
			}
			b.Arrivals[0], b.Arrivals[317] = w.arrive(twice), bad
			b.Arrivals = append(b.Arrivals, w.arrive(twice), w.arrive(command()))
			b.Next = map[store.Partition]int64{{Topic: "payment.commands"}: 500}
			out, err := w.store.Claim(t.Context(), b)
			require.NoError(t, err)
			counts := make(map[store.Verdict]int)
			for i := range out {
				counts[out[i].Verdict]++
			}
			require.Equal(t, map[store.Verdict]int{store.Claimed: 498, store.DeadLettered: 1, store.Pending: 1}, counts)
			require.Equal(t, store.DeadLettered, out[317].Verdict)
			require.Equal(t, store.Pending, out[498].Verdict)
			letters := w.letters()
			require.Len(t, letters, 1)
			require.Equal(t, bad.Raw.Value, letters[0].Payload)
			require.Equal(t, string(payment.DeadUnstorable), letters[0].Headers["dl_reason"])
			require.Equal(t, 500, w.count(`SELECT next_offset FROM settleonce.consumed_offsets`))
			w.consistent()
		})
	}
}

// TestB21_OnlyBadRows ends as well, with every one of them a dead letter.
func TestB21_OnlyBadRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		out := w.claim(w.bad("NUL"), w.bad("check"), w.bad("surrogate"), w.bad("NUL"), w.bad("check"))
		for i := range out {
			require.Equal(t, store.DeadLettered, out[i].Verdict)
		}
	}
	require.Len(t, w.letters(), 15)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.payments`))
}

// TestB17_ConstraintBehindTheDecoder: even if a nil key passed every check of
// ours, two payments would not become one.
func TestB17_ConstraintBehindTheDecoder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := command(), command()
	a.IdempotencyKey, b.IdempotencyKey = [16]byte{}, [16]byte{}
	noCaller := command()
	noCaller.Caller = ""
	require.Equal(t, []string{"dead_lettered", "dead_lettered", "dead_lettered", "fresh"},
		verdicts(w.claim(w.arriveAll(a, b, noCaller, command())...)))
	w.consistent()
}

// TestG11_NoLease: 0 is what released payments carry.
func TestG11_NoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	w.reach(idOf(c), payment.Unknown)
	b := batch(w.arrive(c))
	b.Lease = 0
	_, err := w.store.Claim(t.Context(), b)
	require.ErrorContains(t, err, "lease")
}

// TestClaimAgain: the same batch under the same lease gives the same verdicts,
// whatever the first call did of it.
func TestClaimAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	known := w.claimed(command())
	first, parked := command(), w.arrive(command())
	parked.Admit = false
	changed := first
	changed.Amount = 7
	old := command()
	old.IssuedAt = old.IssuedAt.Add(-20 * 24 * time.Hour)
	b := batch(append(w.arriveAll(first, sameOrder(first), known, changed, old, first), parked)...)
	want := []string{
		"fresh", "rejected PRIOR_ATTEMPT_UNRESOLVED", "pending", "conflict IDEMPOTENCY_CONFLICT",
		"rejected STALE_COMMAND", "pending", "parked",
	}
	out, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, want, verdicts(out))
	again, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	want[1], want[4] = "replayed PRIOR_ATTEMPT_UNRESOLVED", "replayed STALE_COMMAND"
	require.Equal(t, want, verdicts(again))
	require.Equal(t, out[0].Payment.ProviderKey, again[0].Payment.ProviderKey)
	require.Equal(t, 1, w.status(idOf(first)).Open.Sends.Count, "one permit, not two")
	w.consistent()

	// A permit is what is stored, not what the batch asks for now.
	b.Arrivals[6].Admit = true
	again, err = w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, "parked", again[6].Verdict.String())

	// Once another worker has taken it over, the first has nothing left.
	w.exec(`UPDATE settleonce.open_payments SET lease = 5 WHERE payment = $1`, idOf(first))
	again, err = w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, "pending", again[0].Verdict.String())
	require.Nil(t, again[0].Payment)
}
