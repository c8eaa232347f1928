package edge

import (
	"net/http"
	"sync"
	"time"
)

// waitersShare is the part of MaxInFlight that the waiting requests of one caller may
// take: who asks often and waits long must not take the places of everybody else.
const waitersShare = 4

// waiters counts the requests that wait, per caller.
type waiters struct {
	share int

	mu sync.Mutex
	of map[string]int
}

func newWaiters(inFlight int) *waiters {
	return &waiters{share: max(inFlight/waitersShare, 1), of: make(map[string]int)}
}

// seat gives a request of the caller a place to wait, which it leaves in the end, and
// returns for how long it may: not at all where there is no place, and then the answer
// does not say that it was granted more.
func (s *Server) seat(w http.ResponseWriter, caller string, wait time.Duration) (granted time.Duration, leave func()) {
	leave = func() {}
	if wait <= 0 {
		return 0, leave
	}
	if left, ok := s.waiters.enter(caller); ok {
		return wait, left
	}
	if w.Header().Get(preferenceApplied) != "" {
		setApplied(w, 0)
	}
	return 0, leave
}

// enter lets a request of the caller wait, until it leaves. Where it refuses, the
// request is answered at once with what is known.
func (w *waiters) enter(caller string) (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[caller] >= w.share {
		return nil, false
	}
	w.of[caller]++
	return func() { w.leave(caller) }, true
}

func (w *waiters) leave(caller string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[caller]--; w.of[caller] == 0 {
		delete(w.of, caller)
	}
}
