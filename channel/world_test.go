package channel_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/channel"
)

// tick is the unit of time of the world below.
const tick = time.Second

// epoch is when the world begins.
var epoch = time.Date(2026, time.November, 30, 10, 0, 0, 0, time.UTC)

func at(ticks int) time.Time { return epoch.Add(time.Duration(ticks) * tick) }

// world is one attempt at a provider that does its worst within its promises:
// it executes late, forgets keys as early as it may, lets its lookup lag and its
// answers be lost. Our side decides by the rules only. It is the model
// settle.pml with time in it.
type world struct {
	t   *rapid.T
	c   channel.Capabilities
	now int

	sends    channel.Sends
	held     bool // a decline was heard: no further permit
	outcome  bool // terminal
	declined bool

	flights []*flight
	books   []entry // truth over time
	memory  int     // when the provider first executed the key; -1 before
	known   string  // what it answers a repeat
	charges int
}

// flight is a permitted send: executed at a time, or never, and its answer.
type flight struct {
	executes, answers int // -1: never
	result            string
	done, heard       bool
}

type entry struct {
	since  int
	status string
}

const (
	submitTicks = 3
	lastAction  = 60 // of ours; afterwards only what is in flight ends
	lastTick    = lastAction + 40
)

func drawCapabilities(t *rapid.T) channel.Capabilities {
	ticks := func(name string, low, high int) time.Duration {
		return time.Duration(rapid.IntRange(low, high).Draw(t, name)) * tick
	}
	c := channel.Capabilities{
		Identity: "world", MaxInFlight: 1, SubmitTimeout: submitTicks * tick, QueryTimeout: tick,
		LongestExecution: ticks("longest execution", 1, 12),
		IdempotentSubmit: rapid.Bool().Draw(t, "idempotent"),
		Query:            true,
		VisibilityLag:    ticks("lag", 1, 12),
		QueryReach:       channel.Forever,
		NotFoundIsProof:  rapid.Bool().Draw(t, "proof"),
	}
	if c.IdempotentSubmit {
		c.KeyMemory = ticks("memory", 1, 50)
		c.PinsFailures = rapid.Bool().Draw(t, "pinned")
	}
	return c
}

// permit sends once more if the rule allows it.
func (w *world) permit() {
	deadline := w.now + submitTicks
	permitted, _ := w.c.PermitsSend(w.sends, at(w.now), at(deadline))
	if w.outcome || w.held || !permitted {
		return
	}
	if w.sends.Count == 0 {
		w.sends.First = at(w.now)
	}
	w.sends.Count++
	w.sends.LastDeadline = at(deadline)
	f := &flight{executes: -1, answers: -1}
	if rapid.Bool().Draw(w.t, "executed") {
		f.executes = rapid.IntRange(w.now, deadline+int(w.c.LongestExecution/tick)).Draw(w.t, "executes at")
		if rapid.Bool().Draw(w.t, "answered") {
			f.answers = rapid.IntRange(f.executes, f.executes+15).Draw(w.t, "answers at")
		}
	}
	w.flights = append(w.flights, f)
}

// provide lets the provider and the network do what is due now.
func (w *world) provide() {
	for _, f := range w.flights {
		if f.executes == w.now && !f.done {
			f.done = true
			f.result = w.execute()
		}
	}
	for _, f := range w.flights {
		if f.answers == w.now && f.done && !f.heard {
			f.heard = true
			w.hear(f.result, w.c.ConcludesDecline(w.sends, at(w.now)))
		}
	}
}

func (w *world) execute() string {
	remembers := w.memory >= 0 && at(w.now).Before(at(w.memory).Add(w.c.KeyMemory))
	if w.c.IdempotentSubmit && remembers && (w.known == "yes" || w.c.PinsFailures) {
		return w.known
	}
	if !remembers {
		w.memory = w.now
	}
	w.known = rapid.SampledFrom([]string{"yes", "no"}).Draw(w.t, "result")
	if w.known == "yes" {
		w.charges++
	}
	if truth := w.seenAt(w.now); truth != "yes" {
		w.books = append(w.books, entry{since: w.now, status: w.known})
	}
	return w.known
}

// hear takes an answer as evidence; declines by the decline rule.
func (w *world) hear(result string, concludes bool) {
	switch {
	case w.outcome:
	case result == "yes":
		w.outcome = true
	case result == "no" && concludes:
		w.outcome, w.declined = true, true
	case result == "no":
		w.held = true
	}
}

// query asks, is shown a state of the books as old as the lag allows, and acts.
func (w *world) query() {
	if w.outcome || w.sends.Count == 0 || !w.c.QueryCanSee(w.sends, at(w.now)) {
		return
	}
	lag := rapid.IntRange(0, int(w.c.VisibilityLag/tick)).Draw(w.t, "shown as of")
	result := w.seenAt(w.now - lag)
	if !w.c.NotFoundIsProof && rapid.Bool().Draw(w.t, "lost by the lookup") {
		result = ""
	}
	if result != "" {
		concludes := w.c.ConcludesDecline(w.sends, at(w.now)) || at(w.now).After(w.c.DeclineQueryAfter(w.sends))
		w.hear(result, concludes)
		return
	}
	switch w.c.NotFound(w.sends, at(w.now)) {
	case channel.NotFoundAbsent:
		w.permit()
	case channel.NotFoundProvenAbsent: // an operator closes it on this evidence
		w.outcome, w.declined = true, true
	case channel.NotFoundMeansNothing, channel.NotFoundTooEarly:
	}
}

func (w *world) seenAt(tick int) string {
	status := ""
	for _, e := range w.books {
		if e.since <= tick {
			status = e.status
		}
	}
	return status
}

// TestRulesHoldInEveryWorld plays an attempt against a provider that does its
// worst: never two charges (G1), never a decline of what is or will be paid (G3).
func TestRulesHoldInEveryWorld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, c: drawCapabilities(t), memory: -1}
		if err := w.c.Validate(); err != nil {
			t.Fatal(err)
		}
		w.permit()
		for ; w.now < lastTick; w.now++ {
			w.provide()
			if w.now < lastAction {
				switch rapid.SampledFrom([]string{"wait", "wait", "query", "send"}).Draw(t, "we") {
				case "query":
					w.query()
				case "send":
					w.permit()
				}
			}
			if w.charges > 1 {
				t.Fatalf("charged %d times", w.charges)
			}
			if w.declined && w.charges > 0 {
				t.Fatal("declined, and charged")
			}
		}
	})
}
