package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Desk carries out what operators order. It asks the provider where an order needs
// that, within the channel's budget, and decides under the payment's lock. A success
// or decline that it hears becomes the outcome, as if anybody else had heard it.
type Desk struct {
	Store   *store.Store
	Settler *Settler
	// Budget bounds its queries together with all others (G13).
	Budget store.QueryPolicy
	// TwoPersons asks for a second person whatever the order rests on. Defaults to
	// only where it rests on a written statement.
	TwoPersons bool
}

// OpenAttempt opens the next attempt of a payment in review. The error is a
// *RefusalError where the rules forbid it, and store.ErrNotFound where there is no such
// payment.
func (d *Desk) OpenAttempt(ctx context.Context, id uuid.UUID, o Order) (store.Payment, error) {
	rules := d.Settler.Rules()
	return d.carryOut(ctx, id, o, rules.MayOpenAttempt, rules.OpenAttempt)
}

// Resolve closes a payment as declined, not executed. Errors are those of
// OpenAttempt.
func (d *Desk) Resolve(ctx context.Context, id uuid.UUID, o Order) (store.Payment, error) {
	rules := d.Settler.Rules()
	return d.carryOut(ctx, id, o, rules.MayResolve, rules.Resolve)
}

// Attest closes a payment as declined, not executed, on the provider's written
// statement, which takes two persons. Errors are those of OpenAttempt.
func (d *Desk) Attest(ctx context.Context, id uuid.UUID, o Order) (store.Payment, error) {
	if err := o.attested(); err != nil {
		return store.Payment{}, err
	}
	rules := d.Settler.Rules()
	may := func(l store.Locked, _ *Fresh) *RefusalError { return rules.MayAttest(l) }
	return d.carryOut(ctx, id, o, may, func(o Order, _ *Fresh) func(store.Locked) *store.Change { return rules.Attest(o) })
}

// Confirm ends a payment as succeeded on the provider's written statement, which
// takes two persons, where the provider cannot be asked; one that ended otherwise
// gets a conflict item. Errors are those of OpenAttempt.
func (d *Desk) Confirm(ctx context.Context, id uuid.UUID, o Order, s Success) (store.Payment, error) {
	if err := o.attested(); err != nil {
		return store.Payment{}, err
	}
	rules := d.Settler.Rules()
	may := func(l store.Locked, _ *Fresh) *RefusalError { return rules.MayConfirm(l, s) }
	return d.carryOut(ctx, id, o, may, func(o Order, _ *Fresh) func(store.Locked) *store.Change { return rules.Confirm(o, s) })
}

// Requery has the reconciler ask about an open payment now, within the budget. It
// asks nobody itself. Errors are those of OpenAttempt.
func (d *Desk) Requery(ctx context.Context, id uuid.UUID, o Order) (store.Payment, error) {
	rules := d.Settler.Rules()
	alone := *d
	alone.TwoPersons = false // it decides nothing
	may := func(l store.Locked, _ *Fresh) *RefusalError { return rules.MayRequery(l) }
	return alone.carryOut(ctx, id, o, may, func(o Order, _ *Fresh) func(store.Locked) *store.Change { return rules.Requery(o) })
}

func (d *Desk) carryOut(ctx context.Context, id uuid.UUID, o Order, may func(store.Locked, *Fresh) *RefusalError,
	do func(Order, *Fresh) func(store.Locked) *store.Change,
) (store.Payment, error) {
	if err := o.Validate(d.TwoPersons); err != nil {
		return store.Payment{}, err
	}
	l, err := d.look(ctx, id)
	if err != nil {
		return store.Payment{}, err
	}
	var fresh *Fresh
	switch refusal := may(l, nil); {
	case refusal == nil:
	case !refusal.ask:
		return l.Payment, refusal
	default:
		if fresh, err = d.ask(ctx, l); err != nil {
			return l.Payment, err
		}
	}
	if fresh != nil && fresh.Answer.Class == payment.ClassSucceeded {
		return d.heard(ctx, l, *fresh, o)
	}
	var refusal *RefusalError
	decide := do(o, fresh)
	applied, err := d.apply(ctx, id, func(l store.Locked) *store.Change {
		refusal = may(l, fresh) // the last run counts
		return decide(l)
	})
	if err != nil {
		return store.Payment{}, err
	}
	if applied.Change == nil && refusal != nil {
		return applied.After, refusal
	}
	return applied.After, nil
}

func (d *Desk) look(ctx context.Context, id uuid.UUID) (store.Locked, error) {
	found, err := d.Store.Read(ctx, []uuid.UUID{id})
	switch {
	case err != nil:
		return store.Locked{}, err
	case len(found) == 0:
		return store.Locked{}, store.ErrNotFound
	}
	return found[0], nil
}

// patience is how long an order waits for its query.
const patience = 5 * time.Second

// ask makes one query, when the budget has one.
func (d *Desk) ask(ctx context.Context, l store.Locked) (*Fresh, error) {
	policy := d.Settler.Rules().QueryPolicy(d.Budget, l.Payment.Channel)
	for until := time.Now().Add(patience); ; {
		got, err := d.Store.TakeQueries(ctx, l.Payment.Channel, 1, policy)
		switch {
		case err != nil:
			return nil, err
		case got > 0:
			return &Fresh{Attempt: l.Payment.Attempt, Started: l.Now, Answer: d.Settler.Query(l.Payment, "")}, nil
		case time.Now().After(until):
			return nil, refuse("the channel's budget of queries is spent, or its breaker is open: try again in a minute")
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the budget of queries: %w", ctx.Err())
		case <-time.After(patience / 20):
		}
	}
}

// heard stores success evidence that came of an order.
func (d *Desk) heard(ctx context.Context, l store.Locked, q Fresh, o Order) (store.Payment, error) {
	check := Check{Attempt: q.Attempt, Started: q.Started, Actor: o.Actor}
	applied, err := d.apply(ctx, l.Payment.ID, d.Settler.Rules().Queried(check, q.Answer))
	if err != nil {
		return store.Payment{}, err
	}
	return applied.After, refuse("the provider reports success: the payment is " + applied.After.State.String() + " now")
}

func (d *Desk) apply(ctx context.Context, id uuid.UUID, decide func(store.Locked) *store.Change) (store.Applied, error) {
	out, err := d.Store.Apply(ctx, []store.Step{{Payment: id, WithGround: true, Decide: decide}})
	switch {
	case err != nil:
		return store.Applied{}, err
	case !out[0].Found:
		return store.Applied{}, store.ErrNotFound
	case out[0].Err != nil:
		return store.Applied{}, fmt.Errorf("store what an operator ordered: %w", out[0].Err)
	}
	return out[0], nil
}
