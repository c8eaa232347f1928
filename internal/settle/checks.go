package settle

import (
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Action is what an open payment needs when its check has come.
type Action int

// The actions of a due payment.
const (
	// ActionNone: nothing to do any more.
	ActionNone Action = iota
	// ActionQuery: ask the provider.
	ActionQuery
	// ActionPermit: ask for a permit to send.
	ActionPermit
	// ActionOrphan: its worker stopped after the permit; unknown from now on.
	ActionOrphan
	// ActionReview: nothing automatic is left.
	ActionReview
)

// Next says what a picked payment needs.
func (r *Rules) Next(l store.Locked) Action {
	switch {
	case l.Open == nil || !l.Payment.State.Unresolved():
		return ActionNone
	case l.Payment.State == payment.Pending:
		return r.nextPending(l)
	case ordered(l):
		return ActionPermit
	case l.Payment.State == payment.Unknown && l.Now.Sub(latest(l.Open.Sends.First, l.Open.OpenedAt)) > r.ReviewAfter:
		return ActionReview
	}
	caps := r.capabilities(l)
	switch {
	case r.canQuery(l) && caps.QueryCanSee(r.sends(l), l.Now):
		return ActionQuery
	case l.Payment.State == payment.Unknown && r.canAsk(l) && !caps.Query:
		return ActionPermit
	default:
		return ActionReview
	}
}

func (r *Rules) nextPending(l store.Locked) Action {
	switch {
	case l.Open.QueryFirst && r.canQuery(l):
		return ActionQuery
	case l.Open.QueryFirst:
		return ActionReview
	case l.Open.Sends.Count == 0:
		return ActionPermit
	default:
		return ActionOrphan
	}
}

func (r *Rules) canQuery(l store.Locked) bool {
	caps := r.capabilities(l)
	return caps.Query && caps.SameIdentity(l.Payment.ChannelIdentity)
}

// Orphaned decides about a payment whose worker stopped between permit and
// answer: it may have sent, so it is unknown, never sent again blindly (G3).
func (r *Rules) Orphaned(lease int64, actor string) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if !holds(l, lease) {
			return nil
		}
		return signed(r.unanswered(l, "its worker stopped before it had an answer"), actor, "")
	}
}

// Exhausted decides about a payment for which nothing automatic is left.
func (r *Rules) Exhausted(lease int64, actor string) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if !holds(l, lease) {
			return nil
		}
		if paid(l) && r.neverSent(l) {
			return signed(r.endPaid(l), actor, "")
		}
		return signed(r.review(l, *l.Open, r.whyReview(l), ""), actor, "")
	}
}

func (r *Rules) whyReview(l store.Locked) string {
	caps := r.capabilities(l)
	switch {
	case !caps.SameIdentity(l.Payment.ChannelIdentity):
		return "the channel is now another account, endpoint or mode than " + l.Payment.ChannelIdentity
	case !caps.Query && !caps.IdempotentSubmit:
		return "the channel offers neither idempotent submit nor query"
	case caps.Query && !caps.QueryCanSee(r.sends(l), l.Now):
		return "the channel's lookup no longer reaches back to this payment"
	default:
		return "no answer within " + r.ReviewAfter.String() + " of the first send"
	}
}

// PutOff delays a check that budget or breaker stopped. It is not one of the
// three (G13). The pauses grow, so that thousands that wait cost little.
func (r *Rules) PutOff(lease int64) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if !holds(l, lease) {
			return nil
		}
		return waited(l, time.Second, 10*time.Second)
	}
}

// waited is one more round of waiting, with a pause that grows.
func waited(l store.Locked, first, longest time.Duration) *store.Change {
	c := delayed(l, Backoff(l.Open.Watches, first, longest))
	c.Open.Watches++
	return c
}

func delayed(l store.Locked, pause time.Duration) *store.Change {
	c := &store.Change{Open: released(*l.Open, l.Now), Quiet: true}
	c.Open.NextCheckAt = l.Now.Add(pause)
	return c
}

// Check is one query that was made.
type Check struct {
	Lease int64
	// Attempt is the one that was asked about. Defaults to 1.
	Attempt int
	// Started is not later than the query's start, in the database's clock.
	Started time.Time
	Actor   string
	// Grant is used when the answer means that the attempt may be sent again.
	Grant Grant
}

// Grant is what a permit is made of.
type Grant struct {
	Lease int64
	// Admitted says that the channel admits one more send now.
	Admitted bool
	Actor    string
	// Sends are those that were read under the lease, before the permit was asked for.
	// With them a permit that is stored already, by a COMMIT that nobody answered, is
	// known for what it is when it is asked for again. Nil counts it as another.
	Sends *channel.Sends
}

// stored reports whether this very permit is there: nobody else permits under its
// lease.
func (g Grant) stored(l store.Locked) bool {
	return g.Sends != nil && holds(l, g.Lease) && l.Open.Sends.Count == g.Sends.Count+1
}

// again is a permit that was stored before, and is still to be used.
func again(l store.Locked) *store.Change {
	open := *l.Open
	return &store.Change{Open: &open, Cause: Granted, Quiet: true}
}

// Queried decides what the answer to a query means.
func (r *Rules) Queried(q Check, a payment.Answer) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change { return signed(r.queryAnswer(l, q, a), q.Actor, "") }
}

func (r *Rules) queryAnswer(l store.Locked, q Check, a payment.Answer) *store.Change {
	if n := attempt(q.Attempt); n != l.Payment.Attempt {
		return r.otherAttempt(l, n, a)
	}
	switch a.Class {
	case payment.ClassSucceeded:
		return succeeded(l, a)
	case payment.ClassDeclined, payment.ClassRefused:
		return r.declined(l, a, q.Started)
	case payment.ClassMismatched:
		return r.mismatched(l, a)
	default:
	}
	if !holds(l, q.Lease) {
		return nil // G11
	}
	switch {
	case a.Class == payment.ClassNotFound && q.Grant.stored(l):
		return again(l)
	case a.Class == payment.ClassNotFound:
		return r.notFound(l, q)
	case a.Class.EndsPermit():
		// The question reached nobody: not one of the three (G13).
		return waited(l, max(a.RetryAfter, time.Second), 30*time.Second)
	default:
		return r.counted(l, "query without an answer: "+a.Cause)
	}
}

// counted spends one of the three queries.
func (r *Rules) counted(l store.Locked, cause string) *store.Change {
	if l.Payment.State != payment.Review {
		open := *l.Open
		open.Queries = min(open.Queries+1, len(payment.Tiers))
		l.Open = &open
	}
	return r.unanswered(l, cause)
}

// notFound is a query that found nothing. What that says is up to the channel.
func (r *Rules) notFound(l store.Locked, q Check) *store.Change {
	caps := r.capabilities(l)
	if l.Open.QueryFirst {
		return r.firstNotFound(l, q, caps)
	}
	switch meaning := caps.NotFound(r.sends(l), q.Started); {
	case paid(l) && (r.neverSent(l) || r.absent(l, q)):
		return r.endPaid(l)
	case l.Open.NoMoreSends && meaning != channel.NotFoundTooEarly:
		return r.review(l, *l.Open, "a decline was heard, and the provider does not know the payment", "")
	case meaning == channel.NotFoundTooEarly:
		return r.counted(l, "not found, too early to mean anything")
	case meaning == channel.NotFoundAbsent:
		return r.resume(l, q.Grant)
	case meaning == channel.NotFoundProvenAbsent:
		return r.review(l, *l.Open, "the provider proves that nothing was executed; a new send is an operator's decision", "not found")
	default:
		return r.counted(l, "not found, which proves nothing here")
	}
}

// resume is the next send of an attempt that is assumed absent, counted as the
// query that found it so.
func (r *Rules) resume(l store.Locked, g Grant) *store.Change {
	open := *l.Open
	if l.Payment.State != payment.Review {
		open.Queries = min(open.Queries+1, len(payment.Tiers))
	}
	l.Open = &open
	if l.Payment.State == payment.Review {
		return r.watch(l, open) // a person was told; nothing automatic sends behind their back
	}
	return r.permit(l, g)
}

// Permitted decides about a permit for a parked payment, or for the next send of
// an attempt where sending again is how the channel is asked. Every permit
// judges age and obligation again (G14, G15).
func (r *Rules) Permitted(g Grant) func(store.Locked) *store.Change {
	return func(l store.Locked) *store.Change {
		if !holds(l, g.Lease) {
			return nil // G11
		}
		switch {
		case g.stored(l):
			return signed(again(l), g.Actor, "")
		case l.Payment.State == payment.Review && !ordered(l):
			return r.watch(l, *l.Open) // nothing automatic sends behind a person's back
		case l.Open.QueryFirst:
			return delayed(l, 0) // ask, then send
		}
		if l.Open.Sends.Count > 0 && g.Admitted { // else it is not one of the three (G13)
			open := *l.Open
			open.Queries = min(open.Queries+1, len(payment.Tiers))
			l.Open = &open
		}
		return signed(r.permit(l, g), g.Actor, "")
	}
}

func (r *Rules) permit(l store.Locked, g Grant) *store.Change {
	if unasked(l) {
		return r.askFirst(l) // before a refusal as well: "never sent" may be wrong (G2)
	}
	if code, c := r.forbidden(l); code != "" {
		return c
	}
	caps := r.capabilities(l)
	if !g.Admitted {
		return waited(l, 250*time.Millisecond, 5*time.Second)
	}
	deadline := l.Now.Add(r.SendWithin(caps))
	if ok, why := caps.PermitsSend(r.sends(l), l.Now, deadline); !ok {
		return r.review(l, *l.Open, "no further send: "+string(why), "")
	}
	open := *l.Open
	if open.Sends.Count++; open.Sends.First.IsZero() {
		open.Sends.First = l.Now
	}
	open.Sends.LastDeadline = latest(open.Sends.LastDeadline, deadline)
	open.Lease, open.LeaseUntil = g.Lease, l.Now.Add(r.Lease)
	open.NextCheckAt = open.LeaseUntil
	return &store.Change{Open: &open, Cause: Granted}
}

// Granted is the cause of a change that permits a send.
const Granted = "send permitted"

// forbidden judges whether the payment may be sent at all. The code is empty
// when it may.
func (r *Rules) forbidden(l store.Locked) (payment.Code, *store.Change) {
	caps := r.capabilities(l)
	never := r.sends(l).Count == 0 && l.Payment.Attempt == 1
	l.Ground.RepayNamed = r.RepayNamed(l.Payment.Namespace)
	code, by := l.Ground.Verdict(l.Payment.ID, l.Payment.IssuedAt, l.Payment.Follows)
	detail := "the obligation is taken or paid by another payment"
	switch {
	case r.Freshness.Judge(l.Payment.IssuedAt, l.Now) == payment.CodeStaleCommand:
		code, by, detail = payment.CodeStaleCommand, nil, "too old by the time its channel could be used"
	case code != "":
	case never && l.Now.Sub(l.Open.OpenedAt) > r.ParkedLimit:
		code, detail = payment.CodeChannelUnavailable, "its channel was not available for "+r.ParkedLimit.String()
	case !caps.SameIdentity(l.Payment.ChannelIdentity):
		if _, configured := r.Channels.Get(l.Payment.Channel); !configured && never {
			return payment.CodeChannelUnavailable, waited(l, time.Second, time.Minute)
		}
		return payment.CodeChannelUnavailable, r.review(l, *l.Open, r.whyReview(l), "")
	case l.Open.NoMoreSends:
		return payment.CodeChannelUnavailable, r.review(l, *l.Open, "no further send is allowed", "")
	default:
		return "", nil
	}
	if !never || !l.Payment.State.CanBecome(payment.Rejected) {
		return code, r.review(l, *l.Open, "no further send: "+string(code), "")
	}
	return code, &store.Change{
		To: payment.Rejected, Cause: string(code), Detail: detail, BlockedBy: by, Code: code,
		Event: payment.EventRejected, Reply: payment.ReplyRejected,
	}
}
