package demo

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/payment"
)

// callerPlay is what callers do that must be kept apart, and what is done to them.
// It is drawn from random streams of its own, and what the others of a seed do stays
// as it is.
type callerPlay struct {
	roster     *roster
	script     *script // of its own, for the length and what channels can do
	deliveries []delivery
	forged     []check.Forgery
	poses      []pose

	// In the middle of the run: the orders that the chain has paid by then, payments of
	// the one who is shut out, of the one who moves, and of the one who comes.
	at       time.Duration
	paid     map[uuid.UUID]*planned // the key that the kiosk has for an order, by the chain's payment
	leavers  []*planned
	arriving map[string][]*planned

	mu        sync.Mutex
	succeeded map[uuid.UUID]bool
	published []*planned
	shutOut   map[string]time.Time
}

const (
	// fewest records that a signing caller and the one with its own topics publish each,
	// and one of so many in a larger run.
	fewestApart, shareApart = 20, 25
	// burst is how many payments meet a change of the callers, at once.
	burst = 12
)

// stage writes what the callers do, beside a script of the run.
func (r *roster) stage(s *script, cfg *Config, start time.Time) {
	if !cfg.Apart {
		return
	}
	w := &writer{
		script: &script{length: s.length, anyReview: s.anyReview}, random: rand.New(rand.NewPCG(cfg.Seed, 12)), seed: cfg.Seed,
		channels: common(cfg.Channels), start: start.UTC().Truncate(time.Millisecond),
		orders: 1_000_000, // names of their own
	}
	p := &callerPlay{
		roster: r, script: w.script, paid: map[uuid.UUID]*planned{}, arriving: map[string][]*planned{}, succeeded: map[uuid.UUID]bool{},
		shutOut: map[string]time.Time{},
	}
	r.play = p
	for _, caller := range []string{notary, partner} {
		w.caller = caller
		for first := w.script.count(); w.script.count() < first+max(fewestApart, s.records/shareApart); {
			w.tell(w.choose())
		}
	}
	p.forge(w, max(fewestForged, s.records/shareForged))
	if r.table {
		p.drill(w)
	}
	p.impersonate(w, s)
	own := w.script
	s.payments, s.triggers, s.later = append(s.payments, own.payments...), append(s.triggers, own.triggers...), s.later+own.later
	p.deliveries = own.deliveries
	s.records += own.count()
}

// drill plans what is done to the callers of the table in the middle.
func (p *callerPlay) drill(w *writer) {
	p.at = w.script.length*2/5 + time.Duration(w.random.Int64N(int64(w.script.length/5)))
	w.story, w.caller = "shut out in the middle", leaver
	until := endsCharged
	until.Buried = true
	for range 2 * burst { // some before, some after, some while it happens
		early := w.payment(until, "")
		w.first(early)
		w.repeat(early, w.random.IntN(2))
	}
	for range burst {
		p.leavers = append(p.leavers, w.unplanned(w.payment(check.Ends{Guarantee: "G12"}, "")))
	}
	w.story, w.caller = "another namespace in the middle", chain
	for range burst {
		order := w.payment(endsCharged, "")
		w.firstAt(time.Duration(w.random.Int64N(int64(w.script.length/5))), order)
		second := w.unplanned(w.sameOrder(order, endsSecond)) // it may never be published
		second.command.Caller = kiosk
		p.paid[order.id()] = second
	}
	for _, caller := range []string{kiosk, newcomer} {
		w.story, w.caller = "just arrived", caller
		for range burst / 3 {
			p.arriving[caller] = append(p.arriving[caller], w.unplanned(w.payment(endsCharged, "")))
		}
	}
	w.caller = ""
}

// unplanned takes the payment that was just made out of the script: its time is known
// only then.
func (w *writer) unplanned(p *planned) *planned {
	w.script.payments = w.script.payments[:len(w.script.payments)-1]
	return p
}

// expectations are about what was published beside the script.
func (p *callerPlay) expectations() []check.Expectation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return (&script{payments: p.published, anyReview: p.script.anyReview}).expectations()
}

// heard notes that a payment succeeded.
func (r *roster) heard(id uuid.UUID, kind payment.EventType) {
	if r.play == nil || kind != payment.EventSucceeded {
		return
	}
	r.play.mu.Lock()
	defer r.play.mu.Unlock()
	r.play.succeeded[id] = true
}
