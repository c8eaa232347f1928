package reconciler

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
)

const (
	// callbackSweep is how many sweeps pass between two looks for callbacks that no
	// message announced.
	callbackSweep = 4
	// parkFirst and parkLongest bound the pauses between two looks at a callback
	// that matches nothing, which double.
	parkFirst   = 500 * time.Millisecond
	parkLongest = 5 * time.Minute
	// leasedPause is the pause while somebody acts on the payment.
	leasedPause = 250 * time.Millisecond
	// disputeFirst is the first pause after a query about an ended payment that
	// could not be made, or brought nothing.
	disputeFirst = time.Second
)

// called takes announcements of callbacks. They only wake up: what is to be done
// is in the database, and a lost one costs a second.
func (r *Reconciler) called(batch []*kafka.Delivery) {
	kafka.Finish(batch)
	select {
	case r.rung <- struct{}{}:
	default:
	}
}

// hear looks after callbacks until ctx ends.
func (r *Reconciler) hear(ctx context.Context) {
	ticker := time.NewTicker(callbackSweep * r.cfg.SweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.rung:
		case <-ticker.C:
		}
		for picked := r.cfg.Batch; picked == r.cfg.Batch; {
			r.hearing.step(func() { picked = r.hearOnce(ctx) })
		}
	}
}

// hearOnce decides about a batch of callbacks. Whatever goes wrong on the way,
// they come again when their time does.
func (r *Reconciler) hearOnce(ctx context.Context) int {
	rules := r.cfg.Settler.Rules()
	picked, err := r.cfg.Store.PickCallbacks(ctx, rules.Lease, r.cfg.Batch)
	if err != nil {
		r.warn(ctx, err, "pick callbacks")
		return 0
	}
	if len(picked) == 0 {
		return 0
	}
	about, err := r.cfg.Store.MatchCallbacks(ctx, picked)
	if err != nil {
		r.warn(ctx, err, "match callbacks")
		return 0
	}
	lease := newLease()
	steps := make([]store.CallbackStep, len(picked))
	for i := range picked {
		c := picked[i]
		steps[i] = store.CallbackStep{Callback: c, Payment: about[i], Decide: func(l *store.Locked) store.CallbackVerdict {
			return r.verdict(lease, c, l)
		}}
	}
	crashpoint.Here(crashpoint.CallbackPicked)
	out, err := r.cfg.Store.ApplyCallbacks(ctx, steps)
	if err != nil {
		r.warn(ctx, err, "store what callbacks came to")
		return 0
	}
	crashpoint.Here(crashpoint.CallbackMarked)
	r.follow(ctx, lease, steps, out)
	return len(picked)
}

// verdict is what a callback comes to. It has no effects.
func (r *Reconciler) verdict(lease int64, c store.Callback, l *store.Locked) store.CallbackVerdict {
	rules := r.cfg.Settler.Rules()
	hearing := settle.HearForeign
	if l != nil {
		hearing = rules.Hear(*l, c.Channel, c.Said)
	}
	done := func(result store.CallbackResult) store.CallbackVerdict {
		return store.CallbackVerdict{Result: result, Matched: true}
	}
	v := store.CallbackVerdict{Matched: true}
	switch hearing {
	case settle.HearForeign:
		return r.unmatched(c)
	case settle.HearRecord:
		return done(store.CallbackRecorded)
	case settle.HearAgreed:
		return done(store.CallbackAgreed)
	case settle.HearTooLittle:
		return done(store.CallbackNoEvidence)
	case settle.HearWait:
		v.Result, v.Again = store.CallbackWaits, settle.Backoff(c.Tries-1, leasedPause, 8*leasedPause)
	case settle.HearAsk, settle.HearCheck:
		v.Result, v.Change = store.CallbackAsked, rules.Asked(*l, lease, c.Said, actor)
	case settle.HearEvidence:
		v.Result, v.Change = store.CallbackEvidence, rules.Evident(*l, c.Said, actor)
	case settle.HearDispute:
		v.Result, v.Again = store.CallbackDisagrees, rules.Lease
		v.Change = rules.HeldBack(*l, v.Again)
	}
	return v
}

// unmatched parks a callback whose payment is not there: the row may come yet
// (P9). After hours a person is told, and it is looked at all the same, seldom.
// What speaks of no outcome is recorded and missed by nobody.
func (r *Reconciler) unmatched(c store.Callback) store.CallbackVerdict {
	v := store.CallbackVerdict{Result: store.CallbackUnmatched, Again: settle.Backoff(c.Tries-1, parkFirst, parkLongest)}
	switch {
	case !c.Said.Kind.Outcome():
		return store.CallbackVerdict{Result: store.CallbackRecorded}
	case c.Reported:
		v.Result, v.Again = store.CallbackReported, 12*parkLongest
	case c.Age > r.cfg.UnmatchedAfter:
		v.Result, v.Again = store.CallbackReported, 12*parkLongest
		v.Report = "a verified callback reports " + string(c.Said.Kind) + " for a payment that is not here"
	}
	return v
}

// follow does what the verdicts ask for, now that they are stored.
func (r *Reconciler) follow(ctx context.Context, lease int64, steps []store.CallbackStep, out []store.CallbackApplied) {
	var checks []uuid.UUID
	asked, disputes := map[string][]store.Locked{}, map[string][]dispute{}
	rules := r.cfg.Settler.Rules()
	for i := range out {
		a, c := &out[i], steps[i].Callback
		if !a.Settled {
			continue
		}
		r.count(c.Channel, a)
		switch l := a.Applied.Before; a.Verdict.Result {
		case store.CallbackAsked:
			if rules.Hear(l, c.Channel, c.Said) == settle.HearAsk {
				asked[c.Channel] = append(asked[c.Channel], l)
			} else {
				checks = append(checks, l.Payment.ID)
			}
		case store.CallbackDisagrees:
			disputes[c.Channel] = append(disputes[c.Channel], dispute{callback: c, about: l})
		default:
		}
	}
	for channel, ls := range asked {
		r.ask(ctx, channel, lease, ls)
	}
	r.check(ctx, lease, checks, nil)
	for channel, ds := range disputes {
		r.askAgain(ctx, channel, ds)
	}
}

// count counts what a callback came to, and the transition where it was evidence.
func (r *Reconciler) count(channel string, a *store.CallbackApplied) {
	r.cfg.Metrics.CallbackHandled(channel, string(a.Verdict.Result))
	if err := a.Applied.Err; err != nil {
		r.cfg.Logger.Error().Err(err).Str("channel", channel).Msg("what a callback came to cannot be stored")
	}
	if change := a.Applied.Change; change != nil && a.Applied.After.State != a.Applied.Before.Payment.State {
		r.cfg.Metrics.Transitions(a.Applied.After.State, 1)
	}
}
