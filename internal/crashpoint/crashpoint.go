// Package crashpoint names the places between two steps that matter, where a
// process may die, and lets a test kill it exactly there.
//
// Off, a point costs one load of a pointer. On (SETTLEONCE_TEST_CRASH_AT in the
// environment of a worker process, read by Arm), the process ends itself with
// SIGKILL when it gets there: nothing is flushed, no defer runs, as in a crash.
package crashpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Point is a place between two steps.
type Point string

// The points, in the order of a payment's life.
const (
	ClaimStart     Point = "claim.start"     // records taken over, nothing stored
	ClaimCommitted Point = "claim.committed" // claimed and permitted, records not finished
	ClaimFinished  Point = "claim.finished"  // records finished, offsets perhaps not committed, nothing sent
	SendStart      Point = "send.start"      // permitted, not sent
	SendDone       Point = "send.done"       // the channel has answered, nothing stored
	SettleStart    Point = "settle.start"    // answers collected, nothing stored
	SettleDone     Point = "settle.done"     // outcomes and messages stored

	RelayRead      Point = "relay.read"      // rows read under the lease, nothing published
	RelayPublished Point = "relay.published" // published, not marked
	RelayMarked    Point = "relay.marked"    // marked

	WakeTaken    Point = "wake.taken"    // a wake-up went off, nothing picked
	CheckPicked  Point = "check.picked"  // payments leased, nothing asked
	QueryDone    Point = "query.done"    // the provider has answered, nothing stored
	ResumeStored Point = "resume.stored" // a further send is permitted, not sent

	CallbackStored Point = "callback.stored" // a callback is stored, not acknowledged
	CallbackPicked Point = "callback.picked" // callbacks picked, nothing decided
	CallbackMarked Point = "callback.marked" // decided and marked, nothing asked

	EdgeStart     Point = "edge.start"     // a request read, nothing published
	EdgePublished Point = "edge.published" // published, nothing looked up
	EdgeJudged    Point = "edge.judged"    // the answer is known, not sent

	InboxMarked    Point = "inbox.marked"    // downstream: markers written, no effect
	InboxHandled   Point = "inbox.handled"   // markers and effects written
	InboxAdvanced  Point = "inbox.advanced"  // versions too, not committed
	InboxCommitted Point = "inbox.committed" // committed, offsets perhaps not
)

// Points lists all points.
func Points() []Point {
	return []Point{
		ClaimStart, ClaimCommitted, ClaimFinished, SendStart, SendDone, SettleStart, SettleDone,
		RelayRead, RelayPublished, RelayMarked, WakeTaken, CheckPicked, QueryDone, ResumeStored,
		CallbackStored, CallbackPicked, CallbackMarked, EdgeStart, EdgePublished, EdgeJudged,
		InboxMarked, InboxHandled, InboxAdvanced, InboxCommitted,
	}
}

// Variable is the environment variable that Arm reads: a point, and optionally
// ":n" for the n-th time it is reached (the first by default).
const Variable = "SETTLEONCE_TEST_CRASH_AT"

// armed is nil in production.
var armed atomic.Pointer[trap]

type trap struct {
	point Point
	left  atomic.Int64
}

// Here ends the process if this point is armed and its turn has come.
func Here(p Point) {
	if t := armed.Load(); t != nil && t.point == p && t.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way: take no further step
	}
}

// Arm reads the variable's value; an empty one arms nothing.
func Arm(value string) error {
	if value == "" {
		return nil
	}
	name, turn, _ := strings.Cut(value, ":")
	n := int64(1)
	if turn != "" {
		parsed, err := strconv.ParseInt(turn, 10, 64)
		if err != nil || parsed < 1 {
			return fmt.Errorf("%s: the number after the colon must be 1 or more, not %q", Variable, turn)
		}
		n = parsed
	}
	if !slices.Contains(Points(), Point(name)) {
		return fmt.Errorf("%s: there is no point %q; there are %v", Variable, name, Points())
	}
	t := &trap{point: Point(name)}
	t.left.Store(n)
	armed.Store(t)
	return nil
}
