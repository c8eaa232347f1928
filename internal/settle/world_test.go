package settle_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// world is one payment with everything around it, in time of its own: workers
// that stop between any two steps and go on later, leases that end, commits
// whose answer is lost, a sweep, and a provider that does its worst within its
// promises. All decisions are those of settle.Rules; only what the store does
// with a change is imitated. It is the model settle.pml on the real code.
type world struct {
	provider
	odds

	rng   *rand.Rand
	rules *settle.Rules
	caps  channel.Capabilities
	now   time.Time
	queue events
	steps int
	trace []string
	wrong string

	payment    store.Payment
	open       *store.Open
	conflicted bool
	suspect    bool
	// unpermitted is the open row as it was before the last permit.
	unpermitted *store.Open
	ground      payment.Ground
	events      int
	leases      int64

	// permits is how many sends were ever permitted, wired how many of them went out.
	permits, wired int
	barred         string // why nothing may be permitted any more
}

// odds are how often things go wrong in this world, in percent.
type odds struct {
	crash, freeze, lostCommit, failover, raced, lostAnswer, neverExecuted, notSent, refused, stopped, success, mismatch, odd int
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// between is a time span, mostly near the lower end.
func (w *world) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	if w.chance(70) {
		high = low + (high-low)/20 + 1
	}
	return low + time.Duration(w.rng.Int64N(int64(high-low)))
}

func pick[T any](w *world, of ...T) T { return of[w.rng.IntN(len(of))] }

var worldBegins = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

// silent is the adapter nobody calls: the world answers itself.
type silent struct{}

func (silent) Submit(context.Context, channel.Request) payment.Answer { return payment.Answer{} }
func (silent) Query(context.Context, channel.Lookup) payment.Answer   { return payment.Answer{} }

func rulesFor(t testing.TB, caps channel.Capabilities) *settle.Rules {
	t.Helper()
	registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: silent{}, Capabilities: caps}})
	require.NoError(t, err)
	rules := settle.Rules{Channels: registry}.WithDefaults()
	require.NoError(t, rules.Validate())
	return &rules
}

// newWorld draws a world from a seed.
func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), now: worldBegins}
	w.drawProvider()
	w.odds = odds{
		crash: pick(w, 0, 5, 30), freeze: pick(w, 0, 5, 40), lostCommit: pick(w, 0, 5, 20), raced: pick(w, 0, 10),
		lostAnswer: pick(w, 0, 30, 90), neverExecuted: pick(w, 0, 20, 60), notSent: pick(w, 0, 10, 50),
		refused: pick(w, 0, 30), stopped: pick(w, 0, 30), success: pick(w, 10, 50, 90), mismatch: pick(w, 0, 0, 10), odd: pick(w, 0, 20),
	}
	if w.chance(40) {
		w.harden()
	}
	w.failover = pick(w, 0, 0, 30)
	w.caps = w.caps.WithDefaults()
	w.rules = rulesFor(t, w.caps)
	key := uuid.UUID{1}
	identity := payment.Identity{Caller: "shop", Operation: payment.OperationCharge, Key: key}
	w.payment = store.Payment{
		ID: identity.PaymentID(), Identity: identity, Namespace: "shop", Obligation: "order", OrderID: "order", Amount: 1999,
		Currency: "EUR", Channel: "sim", ChannelIdentity: w.caps.Identity, ProviderKey: identity.ProviderKey(1),
		State: payment.Pending, Attempt: 1, IssuedAt: w.now, LatestIssuedAt: w.now, CreatedAt: w.now, UpdatedAt: w.now,
	}
	w.claim()
	return w
}

// claim begins the payment: sent at once, parked, or claimed anew after commits
// were lost, with a forgotten send somewhere.
func (w *world) claim() {
	lease := w.newLease()
	w.open = &store.Open{Lease: lease, LeaseUntil: w.now, NextCheckAt: w.now.Add(200 * time.Millisecond), OpenedAt: w.now}
	switch w.rng.IntN(6) {
	case 0:
		w.notef("claimed and parked")
	case 5:
		w.notef("parked, and a permit since was lost in a failover")
		w.suspect = true
		w.deliver(w.now.Add(w.rules.SendWithin(w.caps)), func(payment.Answer) {})
	case 1:
		w.notef("claimed anew: commits may be lost")
		w.open.QueryFirst = true
		forgotten := w.now.Add(-w.between(0, 2*time.Minute)) // the permit that was lost
		w.deliver(forgotten.Add(w.rules.SendWithin(w.caps)), func(payment.Answer) {})
	default:
		w.notef("claimed with a permit")
		w.open.LeaseUntil = w.now.Add(w.rules.Lease)
		w.open.NextCheckAt = w.open.LeaseUntil
		w.open.Sends = channel.Sends{Count: 1, First: w.now, LastDeadline: w.now.Add(w.rules.SendWithin(w.caps))}
		w.payment.Sends = 1
		w.permits++
		w.send(w.permit(lease))
	}
	w.look()
	if w.chance(20) {
		w.after(w.between(0, 20*time.Minute), func() { w.bar("another payment of the order has an open conflict") })
	}
}

func (w *world) bar(why string) {
	w.notef("%s", why)
	other := uuid.UUID{9}
	w.ground.OpenConflict, w.barred = &other, why
}

func (w *world) newLease() int64 { w.leases++; return w.leases }

func (w *world) permit(lease int64) settle.Permit {
	return settle.Permit{
		Payment: w.payment, Lease: lease, Start: w.now.Add(w.rules.SendStart()),
		Deadline: w.now.Add(w.rules.SendWithin(w.caps)), Actor: "worker",
	}
}

// pause is how long a worker takes between two steps: usually nothing, at times
// longer than its lease.
func (w *world) pause() time.Duration {
	if w.chance(w.freeze) {
		return w.between(time.Second, 5*time.Minute)
	}
	return w.between(0, 100*time.Millisecond)
}

// then goes on after a pause, unless the worker crashes.
func (w *world) then(what string, do func()) {
	if w.chance(w.crash) {
		w.notef("crash before: %s", what)
		return
	}
	w.after(w.pause(), func() { w.notef("%s", what); do() })
}

// send is a worker with a permit.
func (w *world) send(p settle.Permit) {
	w.then("start of a send", func() {
		switch {
		case w.now.After(p.Start):
			w.answered(p, payment.Answer{Class: payment.ClassNotSent, Cause: "too late to start"})
		case w.chance(w.notSent):
			w.answered(p, payment.Answer{Class: pick(w, payment.ClassNotSent, payment.ClassThrottled, payment.ClassAccountRefused)})
		default:
			// The check and the request are two steps: it may leave as late as the deadline.
			at := w.now.Add(min(w.pause(), p.Deadline.Sub(w.now)))
			w.after(at.Sub(w.now), func() {
				w.wired++
				w.notef("request %d on the wire", w.wired)
				w.check(w.wired <= w.permits, "more requests than permits")
				w.check(w.caps.IdempotentSubmit || w.wired <= 1, "a second request to a channel without idempotence")
				w.deliver(p.Deadline, func(a payment.Answer) { w.answered(p, a) })
			})
		}
	})
}

func (w *world) answered(p settle.Permit, a payment.Answer) {
	w.then("store the answer "+a.Class.String(), func() {
		w.apply(w.rules.Answered(p, a))
		w.heard(a)
	})
}

// heard bars further permits once there was evidence against them.
func (w *world) heard(a payment.Answer) {
	switch a.Class {
	case payment.ClassDeclined, payment.ClassRefused:
		w.barred = "a decline was heard"
	case payment.ClassMismatched:
		w.barred = "a mismatch was heard"
	case payment.ClassUnknown, payment.ClassSucceeded, payment.ClassNotSent, payment.ClassThrottled,
		payment.ClassAccountRefused, payment.ClassNotFound:
	}
}

// look has somebody pick the payment when it is due.
func (w *world) look() {
	if w.open == nil {
		return
	}
	due := w.open.NextCheckAt
	if w.open.LeaseUntil.After(due) {
		due = w.open.LeaseUntil
	}
	w.after(due.Sub(w.now)+w.between(0, 3*time.Second), w.pickDue)
}

func (w *world) pickDue() {
	if w.open == nil || w.open.NextCheckAt.After(w.now) || w.open.LeaseUntil.After(w.now) {
		return
	}
	lease := w.newLease()
	w.open.Lease, w.open.LeaseUntil = lease, w.now.Add(w.rules.Lease)
	w.open.NextCheckAt = w.open.LeaseUntil
	l := w.locked()
	w.look()
	w.then("check", func() { w.examine(lease, l) })
}

// examine does what reconciler.check does, step by step.
func (w *world) examine(lease int64, l store.Locked) {
	action := w.rules.Next(l)
	w.notef("action %d in state %s, %d sends", action, l.Payment.State, l.Open.Sends.Count)
	grant := settle.Grant{Lease: lease, Admitted: !w.chance(w.stopped), Actor: "reconciler"}
	if l.Open != nil {
		grant.Sends = &l.Open.Sends
	}
	switch action {
	case settle.ActionNone:
	case settle.ActionOrphan:
		w.apply(w.rules.Orphaned(lease, "reconciler"))
	case settle.ActionReview:
		w.apply(w.rules.Exhausted(lease, "reconciler"))
	case settle.ActionPermit:
		w.granted(w.apply(w.rules.Permitted(grant)), lease)
	case settle.ActionQuery:
		if w.chance(w.stopped) {
			w.apply(w.rules.PutOff(lease))
			return
		}
		w.then("query", func() {
			a := w.query()
			w.notef("the query says %s", a.Class)
			check := settle.Check{Lease: lease, Started: l.Now, Actor: "reconciler", Grant: grant}
			w.then("store the query", func() {
				c := w.apply(w.rules.Queried(check, a))
				w.heard(a)
				w.granted(c, lease)
			})
		})
	}
}

func (w *world) granted(c *store.Change, lease int64) {
	if c == nil || c.Cause != settle.Granted {
		return
	}
	w.send(w.permit(lease))
	if !w.suspect && w.chance(w.failover) && w.lostWithAFailover() {
		w.notef("a failover loses this permit")
		open := *w.unpermitted
		open.Lease, open.LeaseUntil, open.NextCheckAt = 0, w.now, w.now
		w.open, w.payment.Sends, w.suspect = &open, open.Sends.Count, true
		w.look()
	}
}

// lostWithAFailover reports whether the last permit was a resume, and the row can
// still be what it was before. A lost first permit is drawn at the claim.
func (w *world) lostWithAFailover() bool {
	return w.open != nil && w.unpermitted != nil && w.unpermitted.Sends.Count > 0 && w.open.Sends.Count == w.unpermitted.Sends.Count+1
}

func (w *world) locked() store.Locked {
	l := store.Locked{Payment: w.payment, Ground: w.ground, Conflicted: w.conflicted, Suspect: w.suspect, Now: w.now}
	if w.open != nil {
		open := *w.open
		l.Open = &open
	}
	return l
}

// apply is store.Apply: at times the answer to its COMMIT is lost and it decides
// again, at times a pick slips in between its read and its write.
func (w *world) apply(decide func(store.Locked) *store.Change) *store.Change {
	c := decide(w.locked())
	if w.chance(w.raced) {
		w.pickDue()
	}
	w.store(c)
	if c != nil && w.chance(w.lostCommit) {
		w.notef("the answer to the COMMIT was lost")
		c = decide(w.locked())
		w.store(c)
	}
	return c
}

// store does to the payment what the store does.
func (w *world) store(c *store.Change) {
	if c == nil {
		w.notef("nothing changes")
		return
	}
	before := w.payment.State
	w.notef("%s → %s %q %s", before, c.To, c.Cause, c.Event)
	if c.To != 0 && c.To != before {
		w.check(before.CanBecome(c.To), "the table of states forbids it")
		w.payment.State = c.To
	}
	w.check(c.Event != "" || c.To == 0 || c.To == before, "a transition without an event")
	if c.Event != "" {
		w.payment.Version++
		w.events++
	}
	if c.Reference != "" {
		w.payment.ProviderReference = c.Reference
	}
	w.conflicted = w.conflicted || c.Review != nil && c.Review.Kind == store.ReviewConflict
	if c.Open != nil {
		w.payment.Sends = c.Open.Sends.Count
	}
	switch {
	case w.payment.State.Terminal():
		w.open, w.payment.EndedAt = nil, w.now
	case c.Open != nil:
		if c.Cause == settle.Granted && !c.Quiet {
			w.permits++
			w.unpermitted = w.open
			w.check(w.barred == "", "a permit although "+w.barred)
			w.check(before != payment.Review, "a permit behind the back of a person")
		}
		open := *c.Open
		w.open = &open
		w.look()
	}
	w.verify()
}

// verify checks what must hold after every step.
func (w *world) verify() {
	w.check(w.charges <= 1, "charged twice (G1)")
	switch w.payment.State {
	case payment.Declined:
		w.check(w.charges == 0, "declined, and charged (G3)")
	case payment.Rejected:
		w.check(w.wired == 0 && len(w.books) == 0, "rejected, and sent (G2)")
	case payment.Succeeded:
		w.check(w.truth() == yes, "succeeded without a charge (G3)")
	case payment.Pending, payment.Unknown, payment.Review:
		w.check(w.open != nil, "unresolved, and nobody looks")
		if w.open != nil {
			w.check(w.open.Queries <= 3, "more than three queries")
			w.check(w.open.NextCheckAt.Sub(w.now) < 3*time.Hour, "the next look is far away")
		}
	}
}

func (w *world) check(ok bool, wrong string) {
	if !ok && w.wrong == "" {
		w.wrong = wrong
		w.notef("WRONG: %s", wrong)
	}
}

func (w *world) notef(format string, arguments ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%12s ", w.now.Sub(worldBegins))+fmt.Sprintf(format, arguments...))
}

// run plays until nothing moves any more, or for some hours.
func (w *world) run(hours int) {
	end := worldBegins.Add(time.Duration(hours) * time.Hour)
	for len(w.queue) > 0 && w.wrong == "" {
		e, ok := heap.Pop(&w.queue).(event)
		if !ok || e.at.After(end) {
			break
		}
		w.now = e.at
		w.steps++
		e.do()
		w.verify()
	}
	w.check(w.payment.State.Terminal() || w.payment.State == payment.Review, "in the end neither resolved nor in review")
	w.check(w.payment.Version == w.events, "versions have gaps")
}

func (w *world) story() string {
	return fmt.Sprintf("%s\n%+v\n%+v\n%s", w.wrong, w.caps, w.odds, strings.Join(w.trace, "\n"))
}

type event struct {
	at time.Time
	n  int
	do func()
}

type events []event

func (w *world) after(d time.Duration, do func()) {
	heap.Push(&w.queue, event{w.now.Add(d), w.steps*1000 + len(w.queue), do})
}

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at.Before(q[j].at) || q[i].at.Equal(q[j].at) && q[i].n < q[j].n
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push adds an event; heap calls it.
func (q *events) Push(x any) {
	if e, ok := x.(event); ok {
		*q = append(*q, e)
	}
}

// Pop removes the last event; heap calls it.
func (q *events) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
