package settle

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// RefusalError says why an operator's order is not carried out. It is an error; nothing
// was changed.
type RefusalError struct {
	// Reason is one sentence.
	Reason string
	// Possible is when it will be possible; zero when waiting does not help, or
	// nobody knows.
	Possible time.Time
	// ask says that a fresh query is all that is missing.
	ask bool
}

// Error implements error.
func (f *RefusalError) Error() string {
	if f.Possible.IsZero() {
		return f.Reason
	}
	return f.Reason + "; possible from " + f.Possible.UTC().Format(time.RFC3339)
}

func refuse(reason string) *RefusalError { return &RefusalError{Reason: reason} }

// Asks reports whether a fresh query of the provider is all that is missing.
func (f *RefusalError) Asks() bool { return f.ask }

// Order is what an operator wants: who, and why.
type Order struct {
	Actor, Reason string
	// Second is the other person, where two are asked for.
	Second string
	// Evidence is what the operator puts on record beside what the provider is asked.
	Evidence string
	// Statement is the provider's, in writing: where it is kept, or what it says.
	Statement string
}

// Validate reports what the order lacks. Two persons are two names.
func (o Order) Validate(twoPersons bool) error {
	same := strings.EqualFold(strings.TrimSpace(o.Actor), strings.TrimSpace(o.Second))
	switch {
	case o.Actor == "" || o.Reason == "":
		return errOrder
	case twoPersons && o.Second == "":
		return errSecond
	case o.Second != "" && same:
		return errSamePerson
	default:
		return nil
	}
}

var (
	errOrder      = errors.New("an order needs an actor and a reason: --actor NAME --reason TEXT")
	errSecond     = errors.New("this takes two persons: name the other one with --second-actor")
	errSamePerson = errors.New("--second-actor is --actor: this takes two persons")
)

// audit is the row that the order leaves, resting on what.
func (o Order) audit(action, what string) *store.Audit {
	if o.Evidence != "" {
		what += "; " + o.Evidence
	}
	return &store.Audit{Action: action, Reason: o.Reason, Evidence: what, Second: o.Second, Statement: o.Statement}
}

// Fresh is a query that was made for an operator just now.
type Fresh struct {
	Attempt int
	// Started is not later than the query's start, in the database's clock.
	Started time.Time
	Answer  payment.Answer
}

// MayOpenAttempt says why no new attempt of the payment may be opened; nil when it
// may. A new attempt is a second provider key, which the provider does not know for
// the same charge, so everything before it must be dead, and a query that started
// afterwards must have shown that nothing came of it (G1, G11). Without a query it
// says what can be said before one.
func (r *Rules) MayOpenAttempt(l store.Locked, q *Fresh) *RefusalError {
	switch {
	case l.Open == nil:
		return refuse("the payment ended " + l.Payment.State.String() + ", which never changes; to pay again, issue a new command")
	case l.Payment.State != payment.Review:
		return refuse("the payment is " + l.Payment.State.String() + " and still settled by itself; a new attempt takes one that is in review")
	case l.Open.Sends.Count == 0 && l.Payment.Attempt > 1:
		return refuse("attempt " + strconv.Itoa(l.Payment.Attempt) + " was not sent yet; it is sent when its channel admits it")
	case l.Open.Sends.Count == 0 && !mayBeForgotten(l.Open):
		return refuse("nothing was sent, so there is nothing to repair; close it as not executed, and issue a new command")
	}
	if f := r.contradicted(l); f != nil {
		return f
	}
	if f := r.unsound(l); f != nil {
		return f
	}
	return r.undead(l, q)
}

// MayResolve says why the payment may not be closed as declined, not executed; nil
// when it may: no send was ever permitted, or all are dead and each was answered
// refused or declined, or is proven absent (G3).
func (r *Rules) MayResolve(l store.Locked, q *Fresh) *RefusalError {
	if l.Open == nil {
		return refuse("the payment ended " + l.Payment.State.String() + ", which never changes")
	}
	if f := r.contradicted(l); f != nil {
		return f
	}
	if l.Open.Sends.Count == 0 && !mayBeForgotten(l.Open) {
		return nil // nothing of this attempt was sent, and a later one is only opened when the earlier are settled
	}
	return r.undead(l, q)
}

// contradicted is evidence that stands against either order.
func (r *Rules) contradicted(l store.Locked) *RefusalError {
	if f := barred(l); f != nil {
		return f
	}
	switch {
	case l.Open.NoMoreSends && l.Open.DeclineCause == "" && l.Payment.Imported():
		return refuse("it was brought in from another system, and nobody here knows how it was sent; it takes the provider's statement, " +
			"or its outcome by settleonce backfill")
	case l.Open.NoMoreSends && l.Open.DeclineCause == "":
		return refuse("the provider's answer did not match the payment; it takes the provider's statement to close that")
	}
	return nil
}

// barred is what stands against closing an open payment, whatever shows that it was
// not executed.
func barred(l store.Locked) *RefusalError {
	switch {
	case l.Suspect:
		return refuse("commits may be lost, and with them sends; acknowledge that first with settleonce recover")
	case l.Conflicted:
		return refuse("the payment has an open conflict item; settle that first")
	case paid(l):
		return refuse("attempt " + strconv.Itoa(l.Open.PaidAttempt) + " succeeded; the payment ends succeeded when attempt " +
			strconv.Itoa(l.Payment.Attempt) + " is resolved")
	}
	return nil
}

// unsound is what forbids a further send at any permit (G14, G15), and a channel
// that is not the one that was sent to.
func (r *Rules) unsound(l store.Locked) *RefusalError {
	l.Ground.RepayNamed = r.RepayNamed(l.Payment.Namespace)
	code, by := l.Ground.Verdict(l.Payment.ID, l.Payment.IssuedAt, l.Payment.Follows)
	switch {
	case r.Freshness.Judge(l.Payment.IssuedAt, l.Now) == payment.CodeStaleCommand:
		return refuse("the command is too old to be sent; close the payment, and issue a new command")
	case code != "" && by != nil:
		return refuse(string(code) + ": payment " + by.String() + " stands in the way")
	case code != "":
		return refuse(string(code))
	default:
		return nil
	}
}

// undead is what keeps the sends of the current attempt from being dead for certain.
func (r *Rules) undead(l store.Locked, q *Fresh) *RefusalError {
	caps, sends := r.capabilities(l), r.sends(l)
	after := caps.DeclineQueryAfter(sends)
	switch {
	case !caps.SameIdentity(l.Payment.ChannelIdentity):
		return refuse(r.whyReview(l))
	case channel.Never(after):
		return refuse("the channel cannot show that nothing was executed: it has no query, or its lag or longest execution is not documented; " +
			"it takes the provider's statement")
	case !l.Now.After(after):
		return &RefusalError{Reason: "an earlier send may still be executed, or not be seen yet", Possible: after}
	case !caps.QueryCanSee(sends, l.Now):
		return refuse("the channel's lookup no longer reaches back to this payment; it takes the provider's statement")
	case q == nil:
		return &RefusalError{Reason: "the provider must be asked first", ask: true}
	case attempt(q.Attempt) != l.Payment.Attempt || !q.Started.After(after):
		return &RefusalError{Reason: "the provider was asked too early", Possible: after, ask: true}
	default:
		return shows(caps, q.Answer)
	}
}

// shows is what an answer lacks that came when everything was dead.
func shows(caps channel.Capabilities, a payment.Answer) *RefusalError {
	switch a.Class {
	case payment.ClassDeclined, payment.ClassRefused:
		return nil
	case payment.ClassNotFound:
		if caps.NotFoundIsProof {
			return nil
		}
		return refuse("the provider does not find the payment, which proves nothing at this channel")
	case payment.ClassSucceeded:
		return refuse("the provider reports success")
	case payment.ClassMismatched:
		return refuse("the provider reports something else than what is to be paid: " + a.Cause)
	case payment.ClassUnknown, payment.ClassNotSent, payment.ClassThrottled, payment.ClassAccountRefused:
	}
	return refuse("the provider gave no definite answer (" + a.Class.String() + "): try again")
}

// OpenAttempt opens the next attempt, if it may be: it is sent with a provider key
// of its own when the channel admits it. The payment stays in review. The function
// changes nothing where MayOpenAttempt refuses.
func (r *Rules) OpenAttempt(o Order, q *Fresh) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if r.MayOpenAttempt(l, q) != nil {
			return nil
		}
		next := l.Payment.Attempt + 1
		open := *l.Open
		open.Sends, open.NoMoreSends, open.QueryFirst = channel.Sends{}, false, false
		open.DeclineCause, open.DeclineReference = "", ""
		open.Queries, open.Watches = 0, 0
		c := &store.Change{
			Attempt: next, Open: released(open, l.Now), Cause: "attempt " + strconv.Itoa(next) + " opened: " + o.Reason, Actor: o.Actor,
			Audit: o.audit("attempt", shown(q)),
		}
		c.Open.NextCheckAt = l.Now
		return c
	}
}

// NotExecuted is the cause of a payment that an operator closed.
const NotExecuted = "not_executed"

// Resolve closes the payment as declined, not executed, if it may be. The function
// changes nothing where MayResolve refuses. A success that shows up later opens a
// conflict item (G9).
func (r *Rules) Resolve(o Order, q *Fresh) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if r.MayResolve(l, q) != nil {
			return nil
		}
		return &store.Change{
			To: payment.Declined, Cause: NotExecuted, Detail: o.Reason, Event: payment.EventDeclined, Reply: payment.ReplyOutcome,
			CloseReviews: closing(l, "closed as not executed: "+o.Reason), Actor: o.Actor,
			Audit: o.audit("resolve", shown(q)),
		}
	}
}

// shown is what an order rests on, for people.
func shown(q *Fresh) string {
	if q == nil {
		return "nothing was sent"
	}
	return "asked at " + q.Started.UTC().Format(time.RFC3339) + ": " + evidence(q.Answer)
}
