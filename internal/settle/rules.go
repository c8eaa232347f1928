// Package settle carries a permitted send to its outcome: it calls the channel,
// decides under the payment's lock what the answer means, and stores that in
// group commits. Consumer and reconciler share it, so that there is one
// finalizer whichever way an answer comes in.
//
// Rules decides and has no effects; Gates say what a channel admits now; Settler
// does the work.
package settle

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// Rules turn evidence into changes. Every method returns a function to run under
// the payment's lock; it may run again and has no effects.
type Rules struct {
	// Channels are the configured channels.
	Channels *channel.Registry
	// RepayNamed reports whether a namespace is set to "repay: named" (G15).
	// Defaults to none.
	RepayNamed func(namespace string) bool
	// Freshness is judged again at every permit (G14).
	Freshness payment.Freshness
	// ParkedLimit is how long a payment that was never sent may wait for its
	// channel before it is rejected. Defaults to 2 hours.
	ParkedLimit time.Duration
	// ReviewAfter is how long after its first send a payment without an answer
	// goes to review even if its queries could not be made. Defaults to 15 minutes.
	ReviewAfter time.Duration
	// WatchEvery and WatchAtMost bound the pauses of the slow watch over payments
	// in review, which double. Default to 1 and 30 minutes.
	WatchEvery, WatchAtMost time.Duration
	// Lease is how long a worker owns what it claimed or picked. Defaults to 30 s.
	Lease time.Duration
}

// WithDefaults returns a copy with unset fields set.
func (r Rules) WithDefaults() Rules {
	if r.RepayNamed == nil {
		r.RepayNamed = func(string) bool { return false }
	}
	r.Freshness = r.Freshness.WithDefaults()
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&r.ParkedLimit, 2 * time.Hour},
		{&r.ReviewAfter, 15 * time.Minute},
		{&r.WatchEvery, time.Minute},
		{&r.WatchAtMost, 30 * time.Minute},
		{&r.Lease, 30 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return r
}

// Validate reports the first setting that must be changed.
func (r Rules) Validate() error {
	switch {
	case r.Channels == nil:
		return errors.New("configure at least one channel")
	case r.ParkedLimit < 0 || r.ReviewAfter < 0 || r.WatchEvery <= 0 || r.WatchAtMost < r.WatchEvery:
		return errors.New("set the parked limit, the review age and the pauses of the slow watch to positive durations, the longest pause not below the first")
	case r.Lease < time.Second:
		return errors.New("set the lease to at least 1s")
	}
	for _, name := range r.Channels.Names() {
		if entry, _ := r.Channels.Get(name); entry.Capabilities.SubmitTimeout > r.Lease/2 {
			return errors.New("set the lease to at least twice the submit timeout of channel " + name + ", so that no call outlives its lease")
		}
	}
	return r.Freshness.Validate()
}

// SendStart and SendWithin are, counted from a permit, the latest start of its
// send and its deadline: a third of the lease to get going, then one timeout.
// Both lie inside the lease (G11).
func (r *Rules) SendStart() time.Duration { return r.Lease / 3 }

// SendWithin is the deadline of a send, counted from its permit.
func (r *Rules) SendWithin(c channel.Capabilities) time.Duration {
	return r.SendStart() + c.SubmitTimeout
}

// QueryPolicy is the budget of a channel's queries, within the channel's own limit of
// requests (G13).
func (r *Rules) QueryPolicy(budget store.QueryPolicy, channel string) store.QueryPolicy {
	entry, _ := r.Channels.Get(channel)
	budget.RateLimit = entry.Capabilities.RateLimit
	return budget
}

// Permit is one permitted send: exactly one request may go out for it, before
// its deadline. Start and Deadline are of this process's clock and were taken
// before the permit was stored, so they end before the stored ones.
type Permit struct {
	Payment  store.Payment
	Lease    int64
	Start    time.Time
	Deadline time.Time
	Actor    string
	// Earlier are the sends before this permit, where there may be some: a permit
	// that proves not sent leaves no trace, its deadline included. Nil takes one
	// send back and keeps the latest deadline.
	Earlier *channel.Sends
	// Trace is the step that the send belongs to. Submit ends it when what the send
	// came to is stored.
	Trace tracing.Span
}

// Answered decides what the answer to a permitted send means.
func (r *Rules) Answered(p Permit, a payment.Answer) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		c := r.submitAnswer(l, p, a)
		return signed(c, p.Actor, a.RequestHash)
	}
}

func signed(c *store.Change, actor, requestHash string) *store.Change {
	if c != nil {
		c.Actor, c.RequestHash = actor, requestHash
	}
	return c
}

func (r *Rules) submitAnswer(l store.Locked, p Permit, a payment.Answer) *store.Change {
	if n := attempt(p.Payment.Attempt); n != l.Payment.Attempt {
		return r.otherAttempt(l, n, a)
	}
	switch a.Class {
	case payment.ClassSucceeded:
		return succeeded(l, a)
	case payment.ClassDeclined, payment.ClassRefused:
		return r.declined(l, a, time.Time{})
	case payment.ClassMismatched:
		return r.mismatched(l, a)
	default:
	}
	if !holds(l, p.Lease) {
		return nil // G11: whoever lost the lease decides nothing without evidence
	}
	switch {
	case a.Class.EndsPermit():
		return r.notSent(l, p, a)
	default:
		return r.unanswered(l, a.Cause)
	}
}

// holds reports whether the payment is open and still under this lease (G11).
func holds(l store.Locked, lease int64) bool {
	return l.Open != nil && l.Open.Lease == lease && l.Payment.State.Unresolved()
}

// succeeded is success evidence. It is true whoever brings it, and beats
// everything but an outcome (G9, G11).
func succeeded(l store.Locked, a payment.Answer) *store.Change {
	switch {
	case l.Payment.State.Unresolved():
		return &store.Change{
			To: payment.Succeeded, Reference: a.Reference, Event: payment.EventSucceeded, Reply: payment.ReplyOutcome,
			CloseReviews: closing(l, "the provider reports success"), Review: secondCharge(l, a),
		}
	case l.Payment.State == payment.Succeeded && (a.Reference == "" || a.Reference == l.Payment.ProviderReference):
		return nil
	case l.Payment.State == payment.Succeeded:
		return conflict(l, "the provider reports a second success under another reference", a)
	default:
		return conflict(l, "the provider reports success for a payment that ended "+l.Payment.State.String(), a)
	}
}

// closing is the word that closes the items of a payment in review; the others
// have none.
func closing(l store.Locked, word string) string {
	if l.Payment.State == payment.Review {
		return word
	}
	return ""
}

// conflict opens one conflict item for contradicting evidence; the outcome stays
// (G9). More of the same adds nothing, also once that is settled.
func conflict(l store.Locked, reason string, a payment.Answer) *store.Change {
	if l.Conflicted {
		return nil
	}
	success := ""
	if a.Class == payment.ClassSucceeded {
		success = a.Reference
	}
	if settledBefore(l, success) {
		return nil
	}
	return &store.Change{
		Event:  payment.EventEvidenceConflict,
		Review: &store.Review{Kind: store.ReviewConflict, Blocks: true, Reason: reason, Evidence: evidence(a), Success: success},
	}
}

// settledBefore reports whether a person has dealt with this very success: hearing of it
// again must not hold the obligation again (G15).
func settledBefore(l store.Locked, reference string) bool {
	return reference != "" && slices.Contains(l.Settled, reference)
}

func evidence(a payment.Answer) string {
	return a.Class.String() + " reference=" + a.Reference + " cause=" + a.Cause + " " + a.Detail
}

// declined is the decline rule ◆ (G3, G4). queryStarted is when the query began
// that brought it, in the database's clock; zero for the answer to a send.
func (r *Rules) declined(l store.Locked, a payment.Answer, queryStarted time.Time) *store.Change {
	switch {
	case l.Payment.State.Unresolved():
	case l.Payment.State == payment.Succeeded && l.Payment.Sends <= 1:
		return conflict(l, "the provider reports a decline for a payment that succeeded", a)
	default:
		// Declined already, or a late decline of one send beside the success of another.
		return nil
	}
	caps, sends := r.capabilities(l), r.doubted(l)
	after := caps.DeclineQueryAfter(sends)
	byQuery := !queryStarted.IsZero() && queryStarted.After(after)
	switch concluded := caps.ConcludesDecline(sends, l.Now) || byQuery; {
	case concluded && paid(l):
		return r.endPaid(l)
	case concluded:
		return &store.Change{
			To: payment.Declined, Reference: a.Reference, Cause: a.Cause, Detail: a.Detail,
			Event: payment.EventDeclined, Reply: payment.ReplyOutcome, CloseReviews: closing(l, "the provider reports a decline"),
		}
	}
	return r.holdDecline(l, a, sends, after)
}

// holdDecline stores a decline that an older send may still overtake: no further
// permit, and a query once every send is dead and the lookup has caught up.
func (r *Rules) holdDecline(l store.Locked, a payment.Answer, sends channel.Sends, after time.Time) *store.Change {
	open := *l.Open
	open.Sends.LastDeadline = sends.LastDeadline
	open.NoMoreSends, open.DeclineCause, open.DeclineReference = true, cmp.Or(a.Cause, a.Class.String()), a.Reference
	if channel.Never(after) {
		return r.review(l, open, "a decline was heard while another send may still be executed, and no query can settle it", evidence(a))
	}
	c := &store.Change{Open: released(open, l.Now), Cause: "decline heard, not concluded: another send may still be executed"}
	c.Open.NextCheckAt = latest(after, l.Now).Add(jitter(time.Second))
	if l.Payment.State == payment.Pending {
		c.To, c.Event = payment.Unknown, payment.EventUnknown
	}
	return c
}

// mismatched is evidence that is not this payment: another amount or currency,
// or merely authorised. Nothing more is sent, a person decides.
func (r *Rules) mismatched(l store.Locked, a payment.Answer) *store.Change {
	if !l.Payment.State.Unresolved() {
		return conflict(l, "the provider reports something else than what was paid", a)
	}
	open := *l.Open
	if open.NoMoreSends && l.Payment.State == payment.Review {
		return r.watch(l, open) // known already
	}
	open.NoMoreSends = true
	return r.review(l, open, "the provider's answer does not match the payment: "+a.Cause, evidence(a))
}

// notSent ends a permit that reached nobody: it was not a send. The payment
// waits, growing, for its next permit with the same provider key.
func (r *Rules) notSent(l store.Locked, p Permit, a payment.Answer) *store.Change {
	open := *l.Open
	open.Sends = withoutPermit(l.Open, p)
	pause := max(a.RetryAfter, Backoff(open.Watches, 200*time.Millisecond, 30*time.Second))
	open.Watches++
	c := &store.Change{Open: released(open, l.Now), Cause: a.Class.String() + ": " + a.Cause}
	c.Open.NextCheckAt = l.Now.Add(pause)
	return c
}

// withoutPermit are the sends as they were before the permit. Its deadline must go
// with it: a query would otherwise be too early to mean anything until a send is
// over that never was, and three of those end in review.
func withoutPermit(open *store.Open, p Permit) channel.Sends {
	sends := open.Sends
	if sends.Count--; p.Earlier != nil && p.Earlier.Count == sends.Count {
		return *p.Earlier
	}
	if sends.Count > 0 {
		return sends
	}
	if mayBeForgotten(open) {
		return channel.Sends{First: sends.First}
	}
	return channel.Sends{}
}

// unanswered is a send or query without an authoritative answer (G3): the next
// re-query, or a person. It is also what becomes of a pending payment whose
// worker stopped.
func (r *Rules) unanswered(l store.Locked, cause string) *store.Change {
	open := *l.Open
	switch {
	case l.Payment.State == payment.Review:
		return r.watch(l, open)
	case !r.canAsk(l):
		return r.review(l, open, "no answer, and the channel offers no way to ask: "+cause, "")
	case open.Queries >= len(payment.Tiers):
		return r.review(l, open, "no answer after three queries: "+cause, "")
	}
	tier := payment.Tiers[open.Queries]
	c := &store.Change{Open: released(open, l.Now), Requery: open.Queries + 1, Cause: cause}
	c.Open.NextCheckAt = l.Now.Add(tier + jitter(tier/10)).Truncate(time.Microsecond)
	c.Open.Watches = 0
	if l.Payment.State == payment.Pending {
		c.To, c.Event = payment.Unknown, payment.EventUnknown
	}
	return c
}

// canAsk reports whether the channel can be asked about this payment: by query,
// or, where submits are idempotent, by the same send again.
func (r *Rules) canAsk(l store.Locked) bool {
	caps := r.capabilities(l)
	return caps.SameIdentity(l.Payment.ChannelIdentity) && (caps.Query || (caps.IdempotentSubmit && !l.Open.NoMoreSends))
}

// review tells a person. The payment stays unresolved and is watched, slowly,
// until there is evidence.
func (r *Rules) review(l store.Locked, open store.Open, reason, answer string) *store.Change {
	if l.Payment.State == payment.Review {
		return r.watch(l, open)
	}
	open.Watches = 0
	c := &store.Change{
		To: payment.Review, Event: payment.EventReviewRequired, Cause: reason, Open: released(open, l.Now),
		Review: &store.Review{Kind: store.ReviewUnresolved, Reason: reason, Evidence: answer},
	}
	c.Open.NextCheckAt = l.Now.Add(r.WatchEvery + jitter(r.WatchEvery/4))
	return c
}

// watch plans the next look at a payment in review. It leaves no history row:
// the watch goes on for as long as there is no evidence.
func (r *Rules) watch(l store.Locked, open store.Open) *store.Change {
	pause := Backoff(open.Watches, r.WatchEvery, r.WatchAtMost)
	open.Watches++
	c := &store.Change{Open: released(open, l.Now), Quiet: true}
	c.Open.NextCheckAt = l.Now.Add(pause)
	return c
}

// capabilities of the payment's channel; the zero record, which promises
// nothing, for a channel that is no longer configured.
func (r *Rules) capabilities(l store.Locked) channel.Capabilities {
	entry, _ := r.Channels.Get(l.Payment.Channel)
	return entry.Capabilities
}

// released gives the lease back.
func released(open store.Open, now time.Time) *store.Open {
	open.Lease, open.LeaseUntil = 0, now
	return &open
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
