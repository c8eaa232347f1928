package channel

import (
	"time"
)

// Sends is what was permitted for one attempt so far. A permit that its own
// worker proved not sent is not counted; a permit nobody reported on is.
type Sends struct {
	// Count is the number of permitted sends.
	Count int
	// First is when the first of them was permitted.
	First time.Time
	// LastDeadline is the latest deadline of them all.
	LastDeadline time.Time
}

// never stands for a time that does not come; it fits every database.
var never = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)

// Never reports whether a time returned by these rules does not come.
func Never(t time.Time) bool { return !t.Before(never) }

// ConcludesDecline is the first half of the decline rule ◆ (G3): a decline or
// refusal counts at once only if no other permitted send of the attempt can
// still be executed, or the provider pins failures under the key and remembers
// it until the last of them is dead. Otherwise the decline is stored, forbids
// every further permit, and waits for a query (see DeclineQueryAfter).
//
// "No other send" means that there was one. Two sends that are dead by now are
// not enough: the older one may have been executed between this answer and now.
// With no counted send our own record is incomplete, and nothing is concluded.
func (c Capabilities) ConcludesDecline(s Sends, now time.Time) bool {
	if s.Count == 1 {
		return true
	}
	if s.Count < 1 || !c.IdempotentSubmit || !c.PinsFailures {
		return false
	}
	return c.remembersUntil(s, now) && c.remembersUntil(s, c.allDead(s))
}

// DeclineQueryAfter is the second half of the decline rule ◆ (G3): a query that
// starts after this time and answers "declined" concludes it, since every send
// is dead and the lookup has caught up with the last execution. Never when the
// channel has no query, or its lag or longest execution is not documented.
func (c Capabilities) DeclineQueryAfter(s Sends) time.Time {
	dead := c.allDead(s)
	if !c.Query || c.VisibilityLag <= 0 || Never(dead) {
		return never
	}
	return dead.Add(c.VisibilityLag)
}

// Refusal says why a send is not permitted; empty when it is.
type Refusal string

// The reasons not to send.
const (
	// RefusalDeadline: the deadline of the send is not in the future.
	RefusalDeadline Refusal = "deadline_passed"
	// RefusalNotIdempotent: something was sent, and the channel may execute a repeat.
	RefusalNotIdempotent Refusal = "not_idempotent"
	// RefusalKeyMemory: the provider may have forgotten the key when the send is executed.
	RefusalKeyMemory Refusal = "key_memory"
)

// PermitsSend is the memory rule ◆ (G1): a further send is permitted only to a
// channel with idempotent submit, and only if its latest possible execution
// (deadline plus longest execution) lies inside the provider's memory of the
// key, counted from the attempt's first permit. Without idempotent submit an
// attempt is sent once, ever: a stopped worker may wake up and send late.
//
// The caller checks beside it what is not in the counts: a stored decline or a
// mismatch (no further permit), the channel's identity, G14 and G15.
func (c Capabilities) PermitsSend(s Sends, now, deadline time.Time) (bool, Refusal) {
	if !deadline.After(now) {
		return false, RefusalDeadline
	}
	if s.Count == 0 {
		return true, ""
	}
	if !c.IdempotentSubmit {
		return false, RefusalNotIdempotent
	}
	with := Sends{Count: s.Count + 1, First: s.First, LastDeadline: later(s.LastDeadline, deadline)}
	if !c.remembersUntil(s, now) || !c.remembersUntil(s, c.allDead(with)) {
		return false, RefusalKeyMemory
	}
	return true, ""
}

// QueryCanSee reports whether a query that starts now can see all of the
// attempt: the channel has a lookup, and it still reaches back to the first
// permit when the query is answered at the latest.
func (c Capabilities) QueryCanSee(s Sends, now time.Time) bool {
	if !c.Query || c.QueryReach <= 0 {
		return false
	}
	return s.Count == 0 || now.Add(c.QueryTimeout).Before(s.First.Add(c.QueryReach))
}

// NotFoundMeaning is what a query's "not found" says about an attempt.
type NotFoundMeaning int

// The meanings of "not found".
const (
	// NotFoundMeansNothing: as if there had been no answer. Review in the end.
	NotFoundMeansNothing NotFoundMeaning = iota
	// NotFoundTooEarly: the lookup may lag, or a send may be alive. Ask again later.
	NotFoundTooEarly
	// NotFoundAbsent: assumed absent; the attempt may be resumed with the same
	// provider key, if PermitsSend agrees at the permit.
	NotFoundAbsent
	// NotFoundProvenAbsent: nothing was and will be executed. Nothing automatic
	// sends again; an operator may close or open a new attempt on this evidence.
	NotFoundProvenAbsent
)

// String returns the meaning's name for logs and audit rows.
func (m NotFoundMeaning) String() string {
	switch m {
	case NotFoundMeansNothing:
		return "nothing"
	case NotFoundTooEarly:
		return "too_early"
	case NotFoundAbsent:
		return "absent"
	case NotFoundProvenAbsent:
		return "proven_absent"
	}
	return "invalid"
}

// NotFound says what "not found" means for a query that started at the given
// time. To a channel with idempotent submit a resume is harmless even while an
// older send is alive, so past deadline and lag it means absent, as long as the
// memory rule lets something be sent. Elsewhere it counts only as proof, which
// takes the channel's word, no send alive and a lookup that has caught up.
func (c Capabilities) NotFound(s Sends, queryStarted time.Time) NotFoundMeaning {
	if !c.QueryCanSee(s, queryStarted) || c.VisibilityLag <= 0 {
		return NotFoundMeansNothing
	}
	if c.IdempotentSubmit {
		if permitted, _ := c.PermitsSend(s, queryStarted, queryStarted.Add(c.SubmitTimeout)); permitted {
			return c.resumable(s, queryStarted)
		}
	}
	if !c.NotFoundIsProof || s.Count == 0 {
		return NotFoundMeansNothing
	}
	after := c.DeclineQueryAfter(s)
	switch {
	case Never(after):
		return NotFoundMeansNothing
	case queryStarted.After(after):
		return NotFoundProvenAbsent
	default:
		return NotFoundTooEarly
	}
}

// resumable tells absent from too early on a channel that may be sent to again.
func (c Capabilities) resumable(s Sends, queryStarted time.Time) NotFoundMeaning {
	if s.Count > 0 && !queryStarted.After(s.LastDeadline.Add(c.VisibilityLag)) {
		return NotFoundTooEarly
	}
	return NotFoundAbsent
}

// allDead is when the last permitted send can no longer be executed; never when
// that is not documented, or the record of sends has no deadline.
func (c Capabilities) allDead(s Sends) time.Time {
	if c.LongestExecution <= 0 || s.LastDeadline.IsZero() {
		return never
	}
	return s.LastDeadline.Add(c.LongestExecution)
}

// remembersUntil reports whether the provider still knows the key at a time.
func (c Capabilities) remembersUntil(s Sends, at time.Time) bool {
	return !s.First.IsZero() && at.Before(s.First.Add(c.KeyMemory))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
