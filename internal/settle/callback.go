package settle

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Hearing is what a callback asks for. Where its channel has a query, a callback
// never sets an outcome by itself: it accelerates, it does not decide (G3, G9).
type Hearing int

// The hearings.
const (
	// HearForeign: it names no attempt of this payment, or another channel.
	HearForeign Hearing = iota
	// HearRecord: a refund, a dispute or another kind without an outcome.
	HearRecord
	// HearAgreed: it says what the outcome says.
	HearAgreed
	// HearWait: somebody acts under a live lease; an answer may be on its way.
	HearWait
	// HearAsk: the payment is open, and its provider can be asked now.
	HearAsk
	// HearCheck: it is open and cannot be asked about; it gets its next check now.
	HearCheck
	// HearEvidence: the channel has no query, so a verified callback with equal
	// provider key, amount and currency is what there is.
	HearEvidence
	// HearTooLittle: the channel has no query, and the callback says too little.
	HearTooLittle
	// HearDispute: it contradicts the outcome, or reports success of another attempt
	// than the current one, and the provider can be asked about that.
	HearDispute
)

// Hear says what a verified callback asks for. l is the payment that it names.
func (r *Rules) Hear(l store.Locked, on string, c channel.Callback) Hearing {
	attempt := AttemptOf(l.Payment, c.ProviderKey)
	switch {
	case l.Payment.Channel != on || attempt < 0:
		return HearForeign
	case !c.Kind.Outcome():
		return HearRecord
	case l.Open == nil:
		return r.hearEnded(l, attempt, c)
	case attempt > 0 && attempt != l.Payment.Attempt:
		return r.hearOther(l, c)
	}
	return r.hearOpen(l, c)
}

// hearOther is a callback about another attempt of an open payment than the
// current one.
func (r *Rules) hearOther(l store.Locked, c channel.Callback) Hearing {
	caps := r.capabilities(l)
	switch {
	case c.Kind == channel.CallbackDeclined:
		return HearAgreed // that it was declined is why there is a later one
	case caps.SameIdentity(l.Payment.ChannelIdentity) && caps.QueryCanSee(sinceClaim(l.Payment), l.Now):
		return HearDispute
	case c.Amount > 0:
		return HearEvidence
	default:
		return HearTooLittle
	}
}

// laterAttempts is how many attempts after the one that a payment ended by are
// known: an earlier one that succeeded ends it too.
const laterAttempts = 8

// AttemptOf is the attempt of a provider key: 0 for the nil UUID, -1 for a key
// that is none of this payment's.
func AttemptOf(p store.Payment, key uuid.UUID) int {
	switch key {
	case uuid.Nil:
		return 0
	case p.ProviderKey:
		return p.Attempt
	}
	for n := p.Attempt + laterAttempts; n >= 1; n-- {
		if p.Identity.ProviderKey(n) == key {
			return n
		}
	}
	return -1
}

func (r *Rules) hearOpen(l store.Locked, c channel.Callback) Hearing {
	caps := r.capabilities(l)
	same := caps.SameIdentity(l.Payment.ChannelIdentity)
	switch {
	case same && !caps.Query && isEvidence(l.Payment, c):
		return HearEvidence // true whoever acts (G11)
	case l.Open.Lease != 0 && l.Open.LeaseUntil.After(l.Now):
		return HearWait
	case same && caps.QueryCanSee(r.sends(l), l.Now):
		return HearAsk
	case same && !caps.Query && !caps.IdempotentSubmit:
		return HearTooLittle
	default:
		return HearCheck
	}
}

func (r *Rules) hearEnded(l store.Locked, attempt int, c channel.Callback) Hearing {
	caps := r.capabilities(l)
	switch {
	case agrees(l.Payment, attempt, c):
		return HearAgreed
	case caps.SameIdentity(l.Payment.ChannelIdentity) && caps.QueryCanSee(sinceClaim(l.Payment), l.Now):
		return HearDispute
	default:
		return HearEvidence
	}
}

// sinceClaim is what a query about an ended payment must reach back to.
func sinceClaim(p store.Payment) channel.Sends { return channel.Sends{Count: 1, First: p.CreatedAt} }

// agrees reports whether a callback says nothing new about a payment that ended.
func agrees(p store.Payment, attempt int, c channel.Callback) bool {
	switch p.State {
	case payment.Succeeded:
		if c.Kind == channel.CallbackDeclined {
			return attempt > 0 && attempt != p.Attempt // another attempt was declined than the one that succeeded
		}
		return sameMoney(p, c) && (c.Reference == "" || p.ProviderReference == "" || c.Reference == p.ProviderReference)
	case payment.Declined, payment.Rejected:
		return c.Kind == channel.CallbackDeclined
	case payment.Pending, payment.Unknown, payment.Review:
	}
	return false
}

// sameMoney reports whether the callback's amount, where it names one, is ours.
func sameMoney(p store.Payment, c channel.Callback) bool {
	return c.Amount == 0 || (c.Amount == p.Amount && c.Currency == p.Currency)
}

// isEvidence reports whether a callback names key and money, or declines under
// the key. Whether the money is right is a question of its own (P32).
func isEvidence(p store.Payment, c channel.Callback) bool {
	return c.ProviderKey == p.ProviderKey && (c.Amount > 0 || c.Kind == channel.CallbackDeclined)
}

// Asked leases an open payment for the query that a callback triggers. One that
// looks as if it was never sent is not sent before its provider was asked: the
// callback knows of a send that we do not (G1).
func (r *Rules) Asked(l store.Locked, lease int64, c channel.Callback, actor string) *store.Change {
	open := *l.Open
	if open.Sends.Count == 0 && r.canQuery(l) {
		open.QueryFirst = true
	}
	open.Lease, open.LeaseUntil = lease, l.Now.Add(r.Lease)
	open.NextCheckAt = open.LeaseUntil
	return signed(&store.Change{Open: &open, Cause: said(c) + ": the provider is asked"}, actor, "")
}

// HeldBack puts the send of a later attempt off while a callback says that an earlier
// one succeeded and the provider was not asked about that yet: the callback decides
// nothing, but a send that turns out to be a second charge cannot be taken back (G1,
// G11). Who is about to ask for the permit loses the lease. Nil where nothing waits to
// be sent.
func (r *Rules) HeldBack(l store.Locked, pause time.Duration) *store.Change {
	if l.Open == nil || !ordered(l) {
		return nil
	}
	return delayed(l, pause+r.Lease)
}

// Unheard is what becomes of an open payment when a callback reports success of another
// attempt than the current one, and the provider could not be asked about it for so long
// that a person must know. It is no outcome, but nothing more is sent against it (G1, G11):
// the person settles the item, or has the success on the provider's statement.
func (r *Rules) Unheard(l store.Locked, c channel.Callback, actor string) *store.Change {
	change := conflict(l, "a callback reports success of attempt "+strconv.Itoa(AttemptOf(l.Payment, c.ProviderKey))+", and the provider could not be asked about it",
		payment.Answer{Class: payment.ClassSucceeded, Reference: c.Reference, Detail: said(c)})
	if change == nil { // a person has another item of it already
		change = &store.Change{}
	}
	open := *l.Open
	open.NoMoreSends, change.Open, change.Cause = true, &open, said(c)+" of another attempt: nothing more is sent"
	return signed(change, actor, "")
}

// Evident is what a callback comes to that is evidence by itself: the rules are
// those for every other answer of the provider.
func (r *Rules) Evident(l store.Locked, c channel.Callback, actor string) *store.Change {
	a := payment.Answer{Class: payment.ClassSucceeded, Reference: c.Reference, Cause: c.Cause, Detail: said(c)}
	switch {
	case c.Kind == channel.CallbackDeclined:
		a.Class = payment.ClassDeclined
	case !sameMoney(l.Payment, c):
		a.Class, a.Cause = payment.ClassMismatched, "mismatch"
	}
	return signed(r.evident(l, AttemptOf(l.Payment, c.ProviderKey), a), actor, "")
}

func (r *Rules) evident(l store.Locked, n int, a payment.Answer) *store.Change {
	switch {
	case n > 0 && n != l.Payment.Attempt:
		return r.otherAttempt(l, n, a)
	case a.Class == payment.ClassDeclined:
		return r.declined(l, a, time.Time{})
	case a.Class == payment.ClassMismatched:
		return r.mismatched(l, a)
	default:
		return succeeded(l, a)
	}
}

// said is a callback in a few words, for the history.
func said(c channel.Callback) string { return "callback " + c.ID + " says " + string(c.Kind) }
