package settle_test

import (
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/payment"
)

// provider is the other side of the world: what it did, what it remembers, and
// what it promised.
type provider struct {
	charges int
	books   []entry
	// known is what it remembers under the key, since when.
	known string
	since time.Time
	// lag and execution are what they really are, documented or not.
	lag, execution time.Duration
}

// entry is a line of the books: the status of the charge since a time.
type entry struct {
	since  time.Time
	status string
}

const (
	yes   = "yes"
	no    = "no"
	other = "another amount"
)

// drawProvider draws what the channel promises, and what it really does: no
// worse than promised, and anything at all where nothing is documented.
func (w *world) drawProvider() {
	c := channel.Capabilities{
		Identity: "world", SubmitTimeout: pick(w, time.Second, 10*time.Second), QueryTimeout: time.Second,
		LongestExecution: pick(w, time.Second, 20*time.Second, 3*time.Minute, 0),
		IdempotentSubmit: w.chance(65), Query: w.chance(80),
	}
	w.execution = c.LongestExecution
	if c.LongestExecution == 0 {
		w.execution, c.IdempotentSubmit = 30*time.Minute, false
	}
	if c.IdempotentSubmit {
		c.KeyMemory = pick(w, 20*time.Second, 2*time.Minute, time.Hour, channel.Forever)
		c.PinsFailures = w.chance(50)
	}
	if c.Query {
		c.VisibilityLag = pick(w, channel.Immediate, 3*time.Second, time.Minute, 0)
		w.lag = c.VisibilityLag
		if c.VisibilityLag == 0 {
			w.lag = 10 * time.Minute
		}
		c.QueryReach = pick(w, 30*time.Second, time.Hour, channel.Forever)
		c.NotFoundIsProof = c.VisibilityLag != 0 && c.LongestExecution != 0 && w.chance(50)
	}
	w.caps = c
}

// harden makes it a world in which much is sent again while earlier requests
// are still alive: idempotent, failures not pinned, slow to execute, the lookup
// behind, answers lost.
func (w *world) harden() {
	c := &w.caps
	c.IdempotentSubmit, c.PinsFailures, c.Query, c.QueryReach = true, w.chance(20), true, channel.Forever
	c.KeyMemory = pick(w, time.Minute, 3*time.Minute, 6*time.Minute, channel.Forever)
	c.LongestExecution, c.VisibilityLag = pick(w, 20*time.Second, time.Minute, 3*time.Minute), pick(w, time.Second, 20*time.Second, time.Minute)
	c.NotFoundIsProof = w.chance(20)
	w.execution, w.lag = c.LongestExecution, c.VisibilityLag
	w.odds = odds{
		crash: pick(w, 0, 5), freeze: pick(w, 0, 10, 40), lostCommit: pick(w, 0, 5), raced: pick(w, 0, 10),
		lostAnswer: pick(w, 30, 60), neverExecuted: pick(w, 0, 20), notSent: pick(w, 0, 20),
		stopped: pick(w, 0, 10), success: pick(w, 30, 60), odd: pick(w, 0, 20),
	}
}

// deliver brings a request to the provider: it is executed at some time up to
// the deadline plus the longest execution, or never. The caller gets the answer,
// or "unknown" at the deadline.
func (w *world) deliver(deadline time.Time, answer func(payment.Answer)) {
	told := false
	tell := func(a payment.Answer) {
		if !told {
			told = true
			answer(a)
		}
	}
	w.after(deadline.Sub(w.now), func() { tell(payment.Answer{Class: payment.ClassUnknown, Cause: "timeout"}) })
	if w.chance(w.neverExecuted) {
		return
	}
	lost := w.chance(w.lostAnswer)
	w.after(w.between(0, deadline.Add(w.execution).Sub(w.now)), func() {
		result := w.execute()
		w.notef("executed: %s", result)
		if w.now.Before(deadline) && !lost {
			tell(w.evidence(result))
		}
	})
}

// execute is one request at the provider.
func (w *world) execute() string {
	remembers := w.known != "" && (w.caps.KeyMemory == channel.Forever || w.now.Before(w.since.Add(w.caps.KeyMemory)))
	if w.caps.IdempotentSubmit && remembers && (w.known != no || w.caps.PinsFailures) {
		return w.known
	}
	if !remembers {
		w.since = w.now
	}
	switch {
	case w.chance(w.mismatch):
		w.known = other
	case w.chance(w.success):
		w.known = yes
		w.charges++
	default:
		w.known = no
	}
	if w.truth() != yes {
		w.books = append(w.books, entry{w.now, w.known})
	}
	w.verify()
	return w.known
}

func (w *world) truth() string { return w.shown(w.now) }

// shown is the status of the charge at a time.
func (w *world) shown(at time.Time) string {
	status := ""
	for _, e := range w.books {
		if !e.since.After(at) {
			status = e.status
		}
	}
	return status
}

// query asks the lookup, which may be as far behind as its lag.
func (w *world) query() payment.Answer {
	switch {
	case w.chance(w.odd):
		return payment.Answer{Class: payment.ClassUnknown, Cause: "5xx"}
	case w.chance(w.odd / 2):
		return payment.Answer{Class: payment.ClassNotSent, Cause: "breaker"}
	}
	behind := w.lag
	if w.chance(50) {
		behind = w.between(0, w.lag)
	}
	status := w.shown(w.now.Add(-behind))
	if reach := w.caps.QueryReach; len(w.books) > 0 && reach != channel.Forever && w.now.After(w.books[0].since.Add(reach)) {
		status = ""
	}
	if !w.caps.NotFoundIsProof && w.chance(w.odd) {
		status = ""
	}
	return w.evidence(status)
}

// evidence is how the adapter classes a status.
func (w *world) evidence(status string) payment.Answer {
	switch status {
	case yes:
		return payment.Answer{Class: payment.ClassSucceeded, Reference: "ch_1"}
	case no:
		return payment.Answer{Class: pick(w, payment.ClassDeclined, payment.ClassRefused), Cause: "card_declined"}
	case other:
		return payment.Answer{Class: payment.ClassMismatched, Cause: "amount 1998"}
	default:
		return payment.Answer{Class: payment.ClassNotFound}
	}
}
