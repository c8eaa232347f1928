package settle

import (
	"errors"
	"strconv"
	"time"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Success is what a provider's written statement says was executed.
type Success struct {
	// Attempt is the one that was executed. Defaults to the current one.
	Attempt int
	// Reference is the provider's. Required: a later success is told from it.
	Reference string
}

// attested reports what an order lacks that rests on a written statement.
func (o Order) attested() error {
	if o.Statement == "" {
		return errStatement
	}
	return o.Validate(true)
}

var errStatement = errors.New("say where the provider's written statement is: --statement FILE, or a reference")

// MayAttest says why the payment may not be closed as declined, not executed, on the
// provider's written statement; nil when it may. A statement takes the place of the
// query, and of nothing else: a send that may still be executed afterwards makes it
// wrong (G3).
func (r *Rules) MayAttest(l store.Locked) *RefusalError {
	if l.Open == nil {
		return refuse("the payment ended " + l.Payment.State.String() + ", which never changes")
	}
	if f := barred(l); f != nil {
		return f
	}
	if l.Open.Sends.Count == 0 && !mayBeForgotten(l.Open) {
		return nil // not needed, and true
	}
	dead := r.DeadAfter(l)
	switch {
	case !r.capabilities(l).SameIdentity(l.Payment.ChannelIdentity) && !l.Payment.Imported():
		// How long a send may live is another channel's word, or that of settings which are not the roles'.
		return refuse("channel " + l.Payment.Channel + " is configured here as another account, endpoint or mode than " + l.Payment.ChannelIdentity +
			": run this with the settings it was sent under, or declare both equal (channel-equivalent-identities)")
	case dead.IsZero():
		return refuse("nobody knows how long a send may still be executed: ask the provider, and set channel-longest-execution of channel " + l.Payment.Channel)
	case !l.Now.After(dead):
		return &RefusalError{Reason: "an earlier send may still be executed", Possible: dead}
	default:
		return nil
	}
}

// DeadAfter is when no send of the current attempt can be executed any more; zero
// when that is not known. A payment of which nothing was sent has no such time.
func (r *Rules) DeadAfter(l store.Locked) time.Time {
	caps := r.capabilities(l)
	if l.Open == nil || caps.LongestExecution <= 0 {
		return time.Time{}
	}
	if sends := r.sends(l); !sends.LastDeadline.IsZero() {
		return sends.LastDeadline.Add(caps.LongestExecution)
	}
	return time.Time{}
}

// Attest closes the payment as declined, not executed, if MayAttest does not refuse.
// A success that shows up later opens a conflict item (G9).
func (r *Rules) Attest(o Order) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if r.MayAttest(l) != nil {
			return nil
		}
		return &store.Change{
			To: payment.Declined, Cause: NotExecuted, Detail: o.Reason, Event: payment.EventDeclined, Reply: payment.ReplyOutcome,
			CloseReviews: closing(l, "closed as not executed, by the provider's statement: "+o.Reason), Actor: o.Actor,
			Audit: o.audit("resolve", "the provider's written statement"),
		}
	}
}

// MayConfirm says why a written statement of success is not taken; nil when it is.
// Where the provider can be asked, its answer is the evidence.
func (r *Rules) MayConfirm(l store.Locked, s Success) *RefusalError {
	n := attempt(max(s.Attempt, 0))
	if s.Attempt == 0 {
		n = l.Payment.Attempt
	}
	switch {
	case s.Reference == "":
		return refuse("the provider's reference of the charge is missing: --evidence REFERENCE")
	case n > l.Payment.Attempt:
		return refuse("there is no attempt " + strconv.Itoa(n))
	case l.Payment.State == payment.Succeeded:
		return refuse("the payment succeeded already")
	case l.Open == nil:
		return mayContradict(l, s.Reference)
	case n == l.Payment.Attempt && r.neverSent(l):
		return refuse("nothing was sent, so nothing can have been executed")
	case n == l.Payment.Attempt && r.canQuery(l) && r.capabilities(l).QueryCanSee(r.sends(l), l.Now):
		return refuse("the provider can be asked, and its answer ends the payment: settleonce review requery")
	default:
		return nil
	}
}

// mayContradict says why a success opens no conflict item of a payment that ended without
// one; nil when it does.
func mayContradict(l store.Locked, reference string) *RefusalError {
	switch {
	case l.Conflicted:
		return refuse("the payment has an open conflict item already; settle that")
	case settledBefore(l, reference):
		return refuse("the success " + reference + " was settled before")
	default:
		return nil
	}
}

// Confirm is success evidence on a written statement, if MayConfirm does not refuse:
// it does what every other success does (G9, G11).
func (r *Rules) Confirm(o Order, s Success) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if r.MayConfirm(l, s) != nil {
			return nil
		}
		a := payment.Answer{Class: payment.ClassSucceeded, Reference: s.Reference, Detail: "statement: " + o.Statement}
		c := r.evident(l, s.Attempt, a)
		if c != nil {
			c.Actor, c.Audit = o.Actor, o.audit("confirm", evidence(a))
		}
		return c
	}
}

// MayRequery says why asking about the payment now is of no use; nil when it is of some.
func (r *Rules) MayRequery(l store.Locked) *RefusalError {
	switch {
	case l.Open == nil:
		return refuse("the payment ended " + l.Payment.State.String() + ", which never changes")
	case l.Open.Lease != 0 && l.Open.LeaseUntil.After(l.Now):
		return &RefusalError{Reason: "a worker is at it now", Possible: l.Open.LeaseUntil}
	case l.Open.Sends.Count == 0 && !mayBeForgotten(l.Open) && !l.Suspect:
		return refuse("nothing was sent, so there is nothing to ask about; it is sent when its channel admits it")
	case !r.canQuery(l) && r.capabilities(l).Query:
		return refuse(r.whyReview(l))
	case !r.canQuery(l):
		return refuse("the channel offers no query")
	case !r.capabilities(l).QueryCanSee(r.sends(l), l.Now):
		return refuse(r.whyReview(l))
	default:
		return nil
	}
}

// Requery makes the payment due now. The reconciler asks, within the budget (G13).
func (r *Rules) Requery(o Order) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if r.MayRequery(l) != nil {
			return nil
		}
		open := *l.Open
		open.NextCheckAt = l.Now
		return &store.Change{Open: &open, Actor: o.Actor, Quiet: true, Audit: o.audit("requery", "asked for by hand")}
	}
}
