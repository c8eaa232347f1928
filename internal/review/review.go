// Package review is what a person needs to know of the payments that wait for one:
// the open items, and for one payment every send, what was asked and said, what it
// blocks, and what may be done now, or when. It only reads; settle.Desk and
// store.SettleItem act.
package review

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Reader reads what waits for a person.
type Reader struct {
	Store *store.Store
	// Rules say what may be done. Required.
	Rules *settle.Rules
}

// Entry is one line of a list of items.
type Entry struct {
	store.ReviewItem

	Caller   string `json:"caller,omitempty"`
	Key      string `json:"idempotencyKey,omitempty"`
	OrderID  string `json:"orderId,omitempty"`
	Amount   int64  `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
	Channel  string `json:"channel,omitempty"`
	State    string `json:"state,omitempty"`
	// May are the actions that are possible now.
	May []string `json:"may"`
}

// List returns the items of the filter, the oldest first.
func (r *Reader) List(ctx context.Context, f store.ReviewFilter) ([]Entry, error) {
	items, err := r.Store.ReviewItems(ctx, f)
	if err != nil {
		return nil, err
	}
	ids := make([]uuid.UUID, len(items))
	for i := range items {
		ids[i] = items[i].Payment
	}
	found, err := r.Store.Read(ctx, ids)
	if err != nil {
		return nil, err
	}
	known := make(map[uuid.UUID]store.Locked, len(found))
	for _, l := range found {
		known[l.Payment.ID] = l
	}
	entries := make([]Entry, len(items))
	for i := range items {
		l, ok := known[items[i].Payment]
		entries[i] = r.entry(items[i], l, ok)
	}
	return entries, nil
}

// entry fills in what the payment says; or, for a callback without one, the callback.
func (r *Reader) entry(item store.ReviewItem, l store.Locked, known bool) Entry {
	e := Entry{ReviewItem: item, May: []string{}}
	if p := &l.Payment; known {
		e.Caller, e.Key, e.OrderID, e.State = p.Identity.Caller, p.Identity.Key.String(), p.OrderID, p.State.String()
		e.Amount, e.Currency, e.Channel = p.Amount, p.Currency, p.Channel
	} else {
		var said struct {
			Channel  string `json:"channel"`
			Currency string `json:"currency"`
			Amount   int64  `json:"amount"`
		}
		_ = json.Unmarshal(item.Evidence, &said) // what is not said stays empty
		e.Amount, e.Currency, e.Channel = said.Amount, said.Currency, said.Channel
	}
	for _, a := range r.actions(item, l, known) {
		if a.Possible {
			e.May = append(e.May, a.Name)
		}
	}
	return e
}

// actions are those of an item: a payment's, or to settle it.
func (r *Reader) actions(item store.ReviewItem, l store.Locked, known bool) []Action {
	switch {
	case item.ClosedAt != nil:
		return nil
	case item.Kind == store.ReviewConflict || item.Kind == store.ReviewCallback:
		return []Action{settled(item)}
	case known:
		return Actions(r.Rules, l)
	default:
		return nil
	}
}

// Case is one payment with all that a person decides on.
type Case struct {
	Status store.Status
	Items  []store.ReviewItem
	// Sends are those that were permitted and not proven not sent, of every attempt.
	Sends []Send
	// Past are the attempts before the current one.
	Past []store.PastAttempt
	// Orders are what operators did before.
	Orders     []store.Ordered
	Obligation Obligation
	// Actions say what may be done, or why not, or when.
	Actions []Action
	// Now is the database's clock.
	Now time.Time
}

// Obligation is what stands on what is being paid.
type Obligation struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// HeldBy is the unresolved payment that owns it.
	HeldBy *uuid.UUID `json:"heldBy,omitempty"`
	// BlockedBy is a payment with an open item that blocks.
	BlockedBy *uuid.UUID `json:"blockedBy,omitempty"`
	// PaidBy is the latest success.
	PaidBy *uuid.UUID `json:"paidBy,omitempty"`
	// Meaning says in a sentence what becomes of a new key for it.
	Meaning string `json:"meaning"`
}

// Show returns one payment's case, or store.ErrNotFound.
func (r *Reader) Show(ctx context.Context, id uuid.UUID) (Case, error) {
	var c Case
	found, err := r.Store.Read(ctx, []uuid.UUID{id})
	if err != nil {
		return c, err
	}
	if len(found) == 0 {
		return c, store.ErrNotFound
	}
	if c.Status, err = r.Store.Status(ctx, id); err != nil {
		return c, err
	}
	if c.Items, err = r.Store.ReviewItems(ctx, store.ReviewFilter{Payment: id}); err != nil {
		return c, err
	}
	if c.Past, err = r.Store.PastAttempts(ctx, id); err != nil {
		return c, err
	}
	if c.Orders, err = r.Store.Orders(ctx, id); err != nil {
		return c, err
	}
	l := found[0]
	c.Now, c.Obligation = l.Now.UTC(), obligation(l)
	c.Sends = r.sends(l, c.Status.History)
	c.Actions = Actions(r.Rules, l)
	for _, item := range c.Items {
		if item.ClosedAt == nil && item.Kind == store.ReviewConflict {
			c.Actions = append(c.Actions, settled(item))
		}
	}
	return c, nil
}

func obligation(l store.Locked) Obligation {
	g, p := l.Ground, l.Payment
	o := Obligation{Namespace: p.Namespace, Name: p.Obligation, HeldBy: g.Holder, BlockedBy: g.OpenConflict, PaidBy: g.LatestSuccess}
	switch {
	case o.HeldBy != nil && *o.HeldBy == p.ID:
		o.Meaning = "this payment holds it: a new key for it is rejected as " + string(payment.CodePriorAttemptUnresolved)
	case o.HeldBy != nil:
		o.Meaning = "payment " + o.HeldBy.String() + " holds it: a new key for it is rejected as " + string(payment.CodePriorAttemptUnresolved)
	case o.BlockedBy != nil:
		o.Meaning = "an open review item of payment " + o.BlockedBy.String() + " blocks it: a new key for it is rejected as " + string(payment.CodePriorAttemptUnresolved)
	case o.PaidBy != nil:
		o.Meaning = "paid by " + o.PaidBy.String() + ": only a command issued after that is charged, or one that names it"
	default:
		o.Meaning = "free: a new key for it is charged"
	}
	return o
}

// Send is one permitted send.
type Send struct {
	Attempt int `json:"attempt"`
	// Number counts from 1 within its attempt.
	Number int `json:"number"`
	// ProviderKey is what the provider knows it by.
	ProviderKey uuid.UUID `json:"providerKey"`
	PermittedAt time.Time `json:"permittedAt"`
	// Deadline is when its request is cut at the latest.
	Deadline time.Time `json:"deadline"`
	// DeadAfter is when the provider cannot execute it any more; nil: nobody knows.
	DeadAfter *time.Time `json:"deadAfter,omitempty"`
	// Dead says that this is over.
	Dead bool `json:"dead"`
}

// sends reads the permits from the history: the count of its attempt rises by one
// with each, and falls when its own worker proved it not sent.
func (r *Reader) sends(l store.Locked, history []store.Transition) []Send {
	var out []Send
	entry, _ := r.Rules.Channels.Get(l.Payment.Channel)
	within := r.Rules.SendWithin(entry.Capabilities)
	count := map[int]int{}
	for _, h := range history {
		switch {
		case h.State.Terminal():
			continue // it ended by whichever attempt; nothing was sent
		case h.Send > count[h.Attempt]:
			s := Send{
				Attempt: h.Attempt, Number: h.Send, ProviderKey: l.Payment.Identity.ProviderKey(h.Attempt), PermittedAt: h.At.UTC(),
				Deadline: h.At.Add(within).UTC(),
			}
			if h.Attempt == l.Payment.Attempt {
				s.ProviderKey = l.Payment.ProviderKey
			}
			out = append(out, s)
		case h.Send < count[h.Attempt] && len(out) > 0:
			out = out[:len(out)-1]
		}
		count[h.Attempt] = h.Send
	}
	for i := range out {
		s := &out[i]
		if l.Open != nil && s.Attempt == l.Payment.Attempt && l.Open.Sends.LastDeadline.Before(s.Deadline) && !l.Open.Sends.LastDeadline.IsZero() {
			s.Deadline = l.Open.Sends.LastDeadline.UTC()
		}
		if longest := entry.Capabilities.LongestExecution; longest > 0 {
			dead := s.Deadline.Add(longest)
			s.DeadAfter, s.Dead = &dead, l.Now.After(dead)
		}
	}
	return out
}
