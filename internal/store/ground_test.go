package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// paid is an order whose payment has just succeeded.
func (w *world) paid() payment.Command {
	w.t.Helper()
	c := w.claimed(command())
	w.reach(idOf(c), payment.Succeeded)
	return c
}

// named is an arrival in a namespace that is set to "repay: named".
func (w *world) named(c payment.Command) store.Arrival {
	a := w.arrive(c)
	a.RepayNamed = true
	return a
}

// TestP26a_ConsumedInTheOtherOrder: K1 was issued before K2's success and is
// consumed after it.
func TestP26a_ConsumedInTheOtherOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k2 := w.paid()
	k1 := sameOrder(k2)
	k1.IssuedAt = k2.IssuedAt.Add(-time.Minute)
	a := w.arrive(k1)
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID"}, verdicts(w.claim(a)))
	r := w.replyTo(a)
	require.Equal(t, idOf(k2), *r.BlockedBy)
	require.Equal(t, payment.Rejected, r.State)
	require.NotEmpty(t, r.Detail)
	require.Zero(t, w.holder("shop", k1.OrderID), "the loser gives the hold back")

	later := sameOrder(k2)
	later.IssuedAt = w.status(idOf(k2)).Payment.EndedAt.Add(payment.SuccessTolerance + time.Second)
	within := sameOrder(k2)
	within.IssuedAt = later.IssuedAt.Add(-2 * time.Second)
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID", "fresh"}, verdicts(w.claim(w.arriveAll(within, later)...)),
		"inside the tolerance it may have been made without knowing; later it is paid again on purpose")
	w.consistent()
}

// TestP26c_RepayNamed: where the namespace is set so, only a command that names
// the latest success is charged.
func TestP26c_RepayNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k1 := w.paid()
	ended := w.status(idOf(k1)).Payment.EndedAt
	pressed := sameOrder(k1) // the reply to K1 is late, the shopper presses again
	pressed.IssuedAt = ended.Add(time.Minute)
	a := w.named(pressed)
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID"}, verdicts(w.claim(a)))
	require.Equal(t, idOf(k1), *w.replyTo(a).BlockedBy)

	k2 := sameOrder(k1)
	follows := idOf(k1)
	k2.Follows = &follows
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(w.named(k2))))
	w.reach(idOf(k2), payment.Succeeded)
	k3 := sameOrder(k1)
	k3.Follows = &follows
	a = w.named(k3)
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID"}, verdicts(w.claim(a)), "it names an older success")
	require.Equal(t, idOf(k2), *w.replyTo(a).BlockedBy)

	declined := w.claimed(command())
	w.reach(idOf(declined), payment.Declined)
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(w.named(sameOrder(declined)))), "nothing was paid yet")
	w.consistent()
}

// TestG15_OtherOrdersAreFree: other namespace, other obligation of the order.
func TestG15_OtherOrdersAreFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, paid := w.claimed(command()), w.paid()
	part, same, other := sameOrder(held), sameOrder(held), sameOrder(paid)
	part.Obligation = "part-2"
	other.IssuedAt = other.IssuedAt.Add(-time.Hour)
	elsewhere, elsewhereToo := w.arrive(same), w.arrive(other)
	elsewhere.Namespace, elsewhereToo.Namespace = "job", "job"
	require.Equal(t, []string{"fresh", "fresh", "fresh"}, verdicts(w.claim(w.arrive(part), elsewhere, elsewhereToo)))
	job := sameOrder(held)
	job.Caller = "nightly"
	a := w.arrive(job)
	a.Namespace = "shop" // configuration gives both callers one namespace
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(a)))
	w.consistent()
}

// TestG15_OpenReviewBlocks: an open conflict or imported review stands in the
// way until it is closed.
func TestG15_OpenReviewBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k1 := w.claimed(command())
	w.reach(idOf(k1), payment.Declined)
	w.apply(idOf(k1), always(store.Change{
		Event: payment.EventEvidenceConflict, Actor: "test",
		Review: &store.Review{Kind: store.ReviewConflict, Blocks: true, Reason: "success after all"},
	}))
	a := w.arrive(sameOrder(k1))
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(a)))
	require.Equal(t, idOf(k1), *w.replyTo(a).BlockedBy)
	w.exec(`UPDATE settleonce.review_items SET closed_at = clock_timestamp()`)
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(w.arrive(sameOrder(k1)))))
	w.consistent()
}

// TestP27_RejectedStaysRejected: told "rejected", never charged on redelivery,
// replay or redrive.
func TestP27_RejectedStaysRejected(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*world) (first, again store.Arrival, want string){
		"the prior attempt was resolved since": func(w *world) (store.Arrival, store.Arrival, string) {
			k1 := w.claimed(command())
			k2 := sameOrder(k1)
			first := w.arrive(k2)
			w.claim(first)
			w.reach(idOf(k1), payment.Declined)
			return first, w.arrive(k2), "replayed PRIOR_ATTEMPT_UNRESOLVED"
		},
		"already paid, delivered again with a later time": func(w *world) (store.Arrival, store.Arrival, string) {
			k2 := sameOrder(w.paid())
			k2.IssuedAt = k2.IssuedAt.Add(-time.Minute) // before the success, however long that took
			first := w.arrive(k2)
			k2.IssuedAt = k2.IssuedAt.Add(2 * time.Minute)
			return first, w.arrive(k2), "replayed OBLIGATION_ALREADY_PAID"
		},
		"the channel is configured by now": func(w *world) (store.Arrival, store.Arrival, string) {
			c := command()
			first := w.arrive(c)
			first.Refusal = &store.Refusal{Code: payment.CodeUnknownChannel}
			return first, w.arrive(c), "replayed UNKNOWN_CHANNEL"
		},
		"issued in the future, past by now": func(w *world) (store.Arrival, store.Arrival, string) {
			c := command()
			c.IssuedAt = c.IssuedAt.Add(time.Hour)
			stamped := c
			stamped.IssuedAt = c.IssuedAt.Add(-time.Hour)
			return w.arrive(c), w.arrive(stamped), "replayed INVALID_COMMAND"
		},
		"stale, stamped anew": func(w *world) (store.Arrival, store.Arrival, string) {
			c := command()
			old := c
			old.IssuedAt = c.IssuedAt.Add(-15 * 24 * time.Hour)
			return w.arrive(old), w.arrive(c), "replayed STALE_COMMAND"
		},
		"invalid, the same bytes": func(w *world) (store.Arrival, store.Arrival, string) {
			a := w.invalid(command())
			b := a
			b.Origin = w.origin()
			return a, b, "replayed INVALID_COMMAND"
		},
		"invalid, repaired under its key": func(w *world) (store.Arrival, store.Arrival, string) {
			c := command()
			return w.invalid(c), w.arrive(c), "conflict IDEMPOTENCY_CONFLICT"
		},
	}
	for name, arrange := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first, again, want := arrange(w)
			w.claim(first) // or a redelivery of it
			require.Equal(t, payment.Rejected, w.status(first.Identity.PaymentID()).Payment.State)
			told := w.replyTo(first)
			out := w.claim(again)
			require.Equal(t, []string{want}, verdicts(out))
			require.Nil(t, out[0].Payment)
			r := w.replyTo(again)
			if r.Kind == payment.ReplyRejected {
				require.True(t, r.Replayed)
				told.Replayed = true
				require.Equal(t, told, r, "the same rejection")
			}
			require.Equal(t, payment.Rejected, w.status(first.Identity.PaymentID()).Payment.State)
			w.consistent()
		})
	}
}

// invalid is a command whose identity can be read and that breaks a rule.
func (w *world) invalid(c payment.Command) store.Arrival {
	a := w.arrive(c)
	a.Refusal = &store.Refusal{Code: payment.CodeInvalidCommand, Detail: "amount must be above 0"}
	a.Command.Amount = -4
	a.Fingerprint = payment.RawFingerprint(a.Raw.Value)
	return a
}

// TestP27_KeyIsKeptByItsLatestCopy: whatever a delivery under the key was told,
// the key outlives it, so that its replay is not a new command (G14).
func TestP27_KeyIsKeptByItsLatestCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := command()
	later := c
	later.IssuedAt = c.IssuedAt.Add(13 * 24 * time.Hour)
	changed := later
	changed.Amount = 1
	refused := w.arrive(later)
	refused.Refusal = &store.Refusal{Code: payment.CodeUnknownChannel}
	for name, again := range map[string]store.Arrival{
		"a repeat": w.arrive(later), "a repeat that is refused": refused, "other content": w.arrive(changed),
	} {
		w.exec(`DELETE FROM settleonce.payments`)
		w.exec(`DELETE FROM settleonce.open_payments`)
		w.exec(`DELETE FROM settleonce.obligation_holds`)
		w.claim(w.arrive(c))
		between := c
		between.IssuedAt = c.IssuedAt.Add(24 * time.Hour)
		w.claim(again, w.arrive(between))
		p := w.status(idOf(c)).Payment
		require.True(t, later.IssuedAt.Equal(p.LatestIssuedAt), name)
		require.True(t, c.IssuedAt.Equal(p.IssuedAt), name)
	}
}
