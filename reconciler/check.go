package reconciler

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

const actor = "reconciler"

// newLease returns a fencing token that no other lease has.
func newLease() int64 { return rand.Int64N(1<<63-1) + 1 }

// check does for each picked payment what it needs. Everything is decided again
// under the payment's lock: what is read here only says what to ask. traces are
// the contexts of what announced them, as far as something did.
func (r *Reconciler) check(ctx context.Context, lease int64, ids []uuid.UUID, traces map[uuid.UUID]string) {
	if len(ids) == 0 {
		return
	}
	crashpoint.Here(crashpoint.CheckPicked)
	picked, err := r.cfg.Store.Read(ctx, ids)
	if err != nil {
		r.warn(ctx, err, "read picked payments") // their leases end, and they are picked again
		return
	}
	rules, settler := r.cfg.Settler.Rules(), r.cfg.Settler
	queries, permits := map[string][]store.Locked{}, map[string][]store.Locked{}
	for _, l := range picked {
		l.Trace = traces[l.Payment.ID]
		switch rules.Next(l) {
		case settle.ActionNone:
		case settle.ActionQuery:
			queries[l.Payment.Channel] = append(queries[l.Payment.Channel], l)
		case settle.ActionPermit:
			permits[l.Payment.Channel] = append(permits[l.Payment.Channel], l)
		case settle.ActionOrphan:
			settler.Store(store.Step{Payment: l.Payment.ID, Decide: rules.Orphaned(lease, actor), Trace: l.Trace}, nil)
		case settle.ActionReview:
			settler.Store(store.Step{Payment: l.Payment.ID, Decide: rules.Exhausted(lease, actor), Trace: l.Trace}, nil)
		}
	}
	for channel, ls := range queries {
		r.ask(ctx, channel, lease, ls)
	}
	for channel, ls := range permits {
		r.permit(channel, lease, ls)
	}
}

// ask queries as many payments as the channel's budget allows now, and puts the
// others off: a check that the budget stopped is not one of the three (G13).
func (r *Reconciler) ask(ctx context.Context, channel string, lease int64, ls []store.Locked) {
	rules := r.cfg.Settler.Rules()
	got := 0
	if gate, ok := r.cfg.Settler.Gate(channel); ok && !gate.Open() {
		var err error
		if got, err = r.cfg.Store.TakeQueries(ctx, channel, len(ls), rules.QueryPolicy(r.cfg.Budget, channel)); err != nil {
			r.warn(ctx, err, "take queries from the budget")
			return // the leases end, and the payments are picked again
		}
	}
	r.cfg.Metrics.BudgetSpent(channel, got)
	r.cfg.Metrics.BudgetRefused(channel, len(ls)-got)
	for _, l := range ls[got:] {
		r.cfg.Settler.Store(store.Step{Payment: l.Payment.ID, Decide: rules.PutOff(lease)}, nil)
	}
	for _, l := range ls[:got] {
		select {
		case r.asking <- struct{}{}:
			r.cfg.Settler.Go(func() { r.query(lease, l) })
		case <-ctx.Done():
			return
		}
	}
}

// query makes one query and stores what it means. If it means that the attempt
// may be sent again, the send is permitted in the same transaction.
func (r *Reconciler) query(lease int64, l store.Locked) {
	defer func() { <-r.asking }()
	before := time.Now()
	answer := r.cfg.Settler.Query(l.Payment, l.Trace)
	crashpoint.Here(crashpoint.QueryDone)
	gate, _ := r.cfg.Settler.Gate(l.Payment.Channel)
	slot := answer.Class == payment.ClassNotFound && gate.Reserve(1).Granted == 1
	grant := settle.Grant{Lease: lease, Admitted: slot, Actor: actor, Sends: &l.Open.Sends}
	if slot {
		before = time.Now()
	}
	check := settle.Check{Lease: lease, Attempt: l.Payment.Attempt, Started: l.Now, Actor: actor, Grant: grant}
	step := store.Step{
		Payment: l.Payment.ID, WithGround: slot, Decide: r.cfg.Settler.Rules().Queried(check, answer), Trace: l.Trace,
	}
	r.cfg.Settler.Store(step, r.sendIfGranted(gate, grant, before, l.Trace))
}

// permit asks for a send of each payment, as far as the channel admits it.
func (r *Reconciler) permit(channel string, lease int64, ls []store.Locked) {
	gate, ok := r.cfg.Settler.Gate(channel)
	slots := 0
	if ok {
		slots = gate.Reserve(len(ls)).Granted
	}
	before := time.Now()
	for i, l := range ls {
		slot := i < slots
		grant := settle.Grant{Lease: lease, Admitted: slot, Actor: actor, Sends: &l.Open.Sends}
		step := store.Step{Payment: l.Payment.ID, WithGround: true, Decide: r.cfg.Settler.Rules().Permitted(grant), Trace: l.Trace}
		r.cfg.Settler.Store(step, r.sendIfGranted(gate, grant, before, l.Trace))
	}
}

// sendIfGranted makes the one call of a permit once it is stored. before is when
// the permit may at the earliest have been stored: the send's own deadline counts
// from there, so it ends before the stored one.
func (r *Reconciler) sendIfGranted(gate *settle.Gate, grant settle.Grant, before time.Time, trace string) func(store.Applied) {
	if !grant.Admitted {
		return nil
	}
	rules := r.cfg.Settler.Rules()
	return func(a store.Applied) {
		if a.Change == nil || a.Change.Cause != settle.Granted {
			gate.Release(1, 1)
			return
		}
		crashpoint.Here(crashpoint.ResumeStored)
		entry, _ := rules.Channels.Get(a.After.Channel)
		r.cfg.Settler.Submit(settle.Permit{
			Payment: a.After, Lease: grant.Lease, Actor: actor, Earlier: grant.Sends, Trace: tracing.Carried(trace),
			Start: before.Add(rules.SendStart()), Deadline: before.Add(rules.SendWithin(entry.Capabilities)),
		})
	}
}
