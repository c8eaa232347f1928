package reconciler

import (
	"context"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// dispute is a callback that contradicts an outcome, or reports success of another
// attempt than the current one. Where the provider can be asked, its answer is the
// evidence, not the callback (G9).
type dispute struct {
	callback store.Callback
	about    store.Locked
}

// attempt is the one that the callback is about.
func (d *dispute) attempt() int {
	if n := settle.AttemptOf(d.about.Payment, d.callback.Said.ProviderKey); n > 0 {
		return n
	}
	return d.about.Payment.Attempt
}

// askAgain asks the provider about what is disputed, as many as the channel's
// budget allows now (G13). The others come again a little later.
func (r *Reconciler) askAgain(ctx context.Context, channel string, ds []dispute) {
	got := 0
	if gate, ok := r.cfg.Settler.Gate(channel); ok && !gate.Open() {
		var err error
		if got, err = r.cfg.Store.TakeQueries(ctx, channel, len(ds), r.cfg.Settler.Rules().QueryPolicy(r.cfg.Budget, channel)); err != nil {
			r.warn(ctx, err, "take queries from the budget")
			return // the callbacks come again
		}
	}
	r.cfg.Metrics.BudgetSpent(channel, got)
	r.cfg.Metrics.BudgetRefused(channel, len(ds)-got)
	for _, d := range ds[got:] {
		r.settleDispute(ctx, d, nil)
	}
	for _, d := range ds[:got] {
		select {
		case r.asking <- struct{}{}:
			r.cfg.Settler.Go(func() {
				defer func() { <-r.asking }()
				p := d.about.Payment
				if d.callback.Said.ProviderKey != uuid.Nil {
					p.ProviderKey = d.callback.Said.ProviderKey // of an earlier attempt, it may be
				}
				answer := r.cfg.Settler.Query(p, "")
				r.settleDispute(context.WithoutCancel(ctx), d, &answer)
			})
		case <-ctx.Done():
			return
		}
	}
}

// settleDispute stores what the provider's answer means: nothing, a conflict item,
// or success of an earlier attempt. Without an answer it is asked again, until the callback is
// so old that a person must know of the contradiction all the same.
func (r *Reconciler) settleDispute(ctx context.Context, d dispute, answer *payment.Answer) {
	rules := r.cfg.Settler.Rules()
	c := d.callback
	decide := func(l *store.Locked) store.CallbackVerdict {
		v := store.CallbackVerdict{Result: store.CallbackDisagrees, Matched: true}
		switch {
		case l == nil:
			return r.unmatched(c) // forgotten with its key in the meantime
		case answer != nil && definite(answer.Class):
			v.Change = rules.Queried(settle.Check{Attempt: d.attempt(), Started: d.about.Now, Actor: actor}, *answer)(*l)
		case c.Age > r.cfg.UnmatchedAfter && l.Open != nil:
			v.Result, v.Change = store.CallbackEarlier, rules.Unheard(*l, c.Said, actor)
			return v
		case c.Age > r.cfg.UnmatchedAfter:
			v.Change = rules.Evident(*l, c.Said, actor)
		default:
			v.Again = settle.Backoff(c.Tries-1, disputeFirst, parkLongest)
			v.Change = rules.HeldBack(*l, v.Again)
			return v
		}
		switch {
		case v.Change == nil:
			v.Result = store.CallbackAgreed
		case l.Open != nil:
			v.Result = store.CallbackEvidence
		default:
			v.Result = store.CallbackConflict
		}
		return v
	}
	step := store.CallbackStep{Callback: c, Payment: d.about.Payment.ID, Decide: decide}
	out, err := r.cfg.Store.ApplyCallbacks(ctx, []store.CallbackStep{step})
	if err != nil {
		r.warn(ctx, err, "store what a contradicting callback came to")
		return
	}
	if out[0].Settled && out[0].Verdict.Again == 0 {
		r.count(c.Channel, &out[0])
	}
}

// definite reports whether an answer says what became of the payment.
func definite(class payment.Class) bool {
	switch class {
	case payment.ClassSucceeded, payment.ClassDeclined, payment.ClassRefused, payment.ClassMismatched:
		return true
	default:
		return false
	}
}
