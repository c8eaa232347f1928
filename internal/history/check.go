package history

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Recorder notes calls and answers in the order in which they happen. It is safe
// for concurrent use; the zero value is ready.
type Recorder struct {
	mu    sync.Mutex
	clock int64
	calls []*Call
}

// Call is one call under way.
type Call struct {
	recorder   *Recorder
	client     int
	in         Input
	out        Output
	begin, end int64
	twice      bool
}

// Begin notes a call of a client, before it is made. A call that never ends is
// one whose answer nobody saw.
func (r *Recorder) Begin(client int, in Input) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	in.call = r.clock
	c := &Call{recorder: r, client: client, in: in, begin: r.clock, end: math.MaxInt64}
	r.calls = append(r.calls, c)
	return c
}

// End notes the answer. Unseen leaves the call without an end: what was begun may
// happen at any later time.
func (c *Call) End(out Output) {
	if out.Answer == Unseen {
		return
	}
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	c.recorder.clock++
	c.out, c.end = out, c.recorder.clock
}

// MayHaveRunTwice says that a COMMIT of the call may have been answered by nobody:
// the store then runs the same transaction again, which may find what the first run
// did and answer as the repeat that it is. Both happened before the call ended.
func (c *Call) MayHaveRunTwice() {
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	c.twice = true
}

// Amend changes an answer that was noted, for what was told with it and is read
// afterwards. The call's times stay.
func (c *Call) Amend(change func(*Output)) {
	c.recorder.mu.Lock()
	defer c.recorder.mu.Unlock()
	change(&c.out)
}

// Report is the result of a check.
type Report struct {
	// Keys and Calls count what was checked, Unseen the calls without an answer, Twice
	// those that may have run twice.
	Keys, Calls, Unseen, Twice int
	// Broken are the keys whose answers no order of calls explains, with the calls.
	Broken []string
	// Undecided are the keys for which the time did not suffice: no proof of anything.
	Undecided []string
}

// Err is nil when every key was checked and is sound, and there was one.
func (r Report) Err() error {
	switch {
	case len(r.Broken) > 0:
		return fmt.Errorf("%d keys have no sequential explanation:\n%s", len(r.Broken), strings.Join(r.Broken, "\n"))
	case len(r.Undecided) > 0:
		return fmt.Errorf("%d keys were not decided in time: %s", len(r.Undecided), strings.Join(r.Undecided, ", "))
	case r.Keys == 0:
		return errors.New("the history is empty: nothing was checked")
	default:
		return nil
	}
}

// Check looks for a sequential explanation of every key's calls, for at most the
// given time per key. Nothing may be recorded meanwhile.
func (r *Recorder) Check(within time.Duration) Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	report := Report{Calls: len(r.calls)}
	perKey := map[string][]porcupine.Operation{}
	for _, c := range r.calls {
		if c.out.Answer == Unseen {
			report.Unseen++
		}
		perKey[c.in.Key] = append(perKey[c.in.Key], porcupine.Operation{
			ClientId: c.client, Input: c.in, Call: c.begin, Output: c.out, Return: c.end,
		})
		if c.twice && c.out.Answer != Unseen { // an unseen call may have happened at any time anyway
			report.Twice++
			perKey[c.in.Key] = append(perKey[c.in.Key], porcupine.Operation{
				ClientId: c.client, Input: c.in, Call: c.begin, Output: Output{}, Return: c.end,
			})
		}
	}
	report.Keys = len(perKey)
	for _, key := range slices.Sorted(maps.Keys(perKey)) {
		switch porcupine.CheckOperationsTimeout(model(), perKey[key], within) {
		case porcupine.Illegal:
			report.Broken = append(report.Broken, describe(key, perKey[key]))
		case porcupine.Unknown:
			report.Undecided = append(report.Undecided, key)
		case porcupine.Ok:
		}
	}
	return report
}

func describe(key string, calls []porcupine.Operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "key %s:", key)
	for _, c := range calls {
		fmt.Fprintf(&b, "\n  client %d, %d to %d: %+v: %+v", c.ClientId, c.Call, c.Return, c.Input, c.Output)
	}
	return b.String()
}
