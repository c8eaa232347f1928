package settle

import (
	"strconv"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// attempt is the attempt that an answer belongs to: whoever does not say means the
// first, which is the only one unless an operator opened another.
func attempt(n int) int { return max(n, 1) }

// otherAttempt decides what an answer means that belongs to another attempt than
// the current one. Only evidence counts: success of any attempt means that the
// payment can end in no other way than succeeded (G11). That an earlier attempt was
// declined is why there is a later one.
func (r *Rules) otherAttempt(l store.Locked, n int, a payment.Answer) *store.Change {
	switch a.Class {
	case payment.ClassSucceeded:
		return r.paidBy(l, n, a)
	case payment.ClassMismatched:
		c := conflict(l, "the provider reports something else than what is to be paid for attempt "+strconv.Itoa(n), a)
		if c != nil && l.Open != nil {
			open := *l.Open
			open.NoMoreSends, c.Open = true, &open
		}
		return c
	default:
		return nil
	}
}

// paidBy is success evidence for another attempt. If the current one was never sent
// it never will be, and the payment has its end. Else nothing more is permitted, and
// the payment waits for the current attempt to be resolved.
func (r *Rules) paidBy(l store.Locked, n int, a payment.Answer) *store.Change {
	switch {
	case !l.Payment.State.Unresolved():
		return succeeded(l, a)
	case r.neverSent(l):
		c := succeeded(l, a)
		c.Attempt = n
		return c
	case l.Open.PaidAttempt == n:
		return nil // known already
	case l.Open.PaidAttempt > 0:
		return conflict(l, chargedTwice(l.Open.PaidAttempt, n), a)
	}
	open := *l.Open
	open.NoMoreSends, open.PaidAttempt, open.PaidReference = true, n, a.Reference
	return &store.Change{
		Open: &open, Cause: "attempt " + strconv.Itoa(n) + " succeeded; attempt " + strconv.Itoa(l.Payment.Attempt) + " was sent, and is asked about",
	}
}

// neverSent reports whether the current attempt certainly reached nobody.
func (r *Rules) neverSent(l store.Locked) bool { return !l.Suspect && r.sends(l).Count == 0 }

// paid reports whether an earlier attempt is known to have succeeded.
func paid(l store.Locked) bool { return l.Open != nil && l.Open.PaidAttempt > 0 }

// absent reports whether a query that found nothing proves that no send of the
// current attempt was or will be executed.
func (r *Rules) absent(l store.Locked, q Check) bool {
	caps, sends := r.capabilities(l), r.sends(l)
	after := caps.DeclineQueryAfter(sends)
	return caps.NotFoundIsProof && !l.Suspect && sends.Count > 0 && !channel.Never(after) && q.Started.After(after) && caps.QueryCanSee(sends, q.Started)
}

// endPaid ends a payment whose current attempt came to nothing by the earlier one
// that succeeded.
func (r *Rules) endPaid(l store.Locked) *store.Change {
	c := succeeded(l, payment.Answer{Class: payment.ClassSucceeded, Reference: l.Open.PaidReference})
	c.Attempt, c.Review = l.Open.PaidAttempt, nil
	return c
}

// secondCharge is the item for a success beside that of an earlier attempt; nil
// when there was none.
func secondCharge(l store.Locked, a payment.Answer) *store.Review {
	if !paid(l) {
		return nil
	}
	return &store.Review{
		Kind: store.ReviewConflict, Blocks: true, Reason: chargedTwice(l.Open.PaidAttempt, l.Payment.Attempt),
		Evidence: evidence(a) + "; attempt " + strconv.Itoa(l.Open.PaidAttempt) + ": reference=" + l.Open.PaidReference,
		Success:  l.Open.PaidReference, // the other one is the payment's own from now on
	}
}

func chargedTwice(first, second int) string {
	return "attempts " + strconv.Itoa(first) + " and " + strconv.Itoa(second) + " both succeeded: give one of them back"
}

// ordered reports whether the next send is one that an operator wants: a new
// attempt of a payment in review, which nothing automatic sends.
func ordered(l store.Locked) bool {
	return l.Payment.State == payment.Review && l.Payment.Attempt > 1 && l.Open.Sends.Count == 0 && !l.Open.NoMoreSends && !l.Open.QueryFirst
}
