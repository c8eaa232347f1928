package settle

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Gate says how many more sends a channel admits from this process now: by how
// many are out already, by the breaker that all instances share, by the channel's
// rate limit.
type Gate struct {
	name string
	caps channel.Capabilities

	// calls holds a token per call on the wire.
	calls chan struct{}

	mu        sync.Mutex
	free      int     // permits that may still be granted
	allowance float64 // submits still allowed by the rate limit
	openUntil time.Time
	probing   bool
	report    store.Report
	freed     chan struct{} // holds a token when a slot may have become free
	urgent    chan struct{} // asks for a report now
}

// waiting is how many permits may wait for a call, for each call that may be on
// the wire: claims and group commits stay large, and the wire never idles. A
// permit that cannot start in time ends as not sent, and its payment is parked.
const waiting = 3

func newGate(name string, caps channel.Capabilities) *Gate {
	return &Gate{
		name: name, caps: caps, calls: make(chan struct{}, caps.MaxInFlight), free: (1 + waiting) * caps.MaxInFlight,
		freed: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
	}
}

// enter waits for a place on the wire, at most until the time, or until ctx ends.
func (g *Gate) enter(ctx context.Context, latest time.Time) bool {
	select {
	case g.calls <- struct{}{}:
	default:
		ctx, cancel := context.WithDeadline(ctx, latest)
		defer cancel()
		select {
		case g.calls <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	if ctx.Err() != nil || time.Now().After(latest) {
		g.leave()
		return false
	}
	return true
}

func (g *Gate) leave() { <-g.calls }

// granted is how many permits are out.
func (g *Gate) granted() int { return (1+waiting)*g.caps.MaxInFlight - g.free }

// Admission is what a gate answers.
type Admission struct {
	// Granted sends may be permitted; each holds a slot until Release.
	Granted int
	// Busy says that more would have been granted but for free slots: wait. Without
	// it the channel is closed or limited: park.
	Busy bool
}

// Reserve takes up to want slots.
func (g *Gate) Reserve(want int) Admission {
	g.mu.Lock()
	defer g.mu.Unlock()
	allowed := want
	switch {
	case time.Now().Before(g.openUntil):
		return Admission{}
	case g.probing && g.granted() > 0:
		return Admission{} // one probe at a time until something gets through
	case g.probing:
		allowed = min(allowed, 1)
	}
	if g.caps.RateLimit > 0 {
		allowed = min(allowed, int(g.allowance))
	}
	granted := min(allowed, g.free)
	g.free -= granted
	g.allowance -= float64(granted)
	g.report.Submits += granted
	return Admission{Granted: granted, Busy: granted < allowed}
}

// Release gives n slots back. unused of them were never permitted.
func (g *Gate) Release(n, unused int) {
	g.mu.Lock()
	g.free += n
	g.allowance += float64(unused)
	g.report.Submits -= unused
	g.mu.Unlock()
	signal(g.freed)
}

// Wait returns when a slot may be free, after at most the given time, or with
// the context.
func (g *Gate) Wait(ctx context.Context, atMost time.Duration) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-g.freed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// InFlight is the number of calls on the wire.
func (g *Gate) InFlight() int { return len(g.calls) }

// Open reports whether calls are held back now.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.openUntil)
}

// localFailures opens the gate at once, before all instances agree.
const localFailures = 10

// Observe notes what a call came to.
func (g *Gate) Observe(a payment.Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch a.Class {
	case payment.ClassNotSent, payment.ClassUnknown:
		if g.report.Failures++; g.report.Failures == localFailures {
			g.closeFor(time.Second)
		}
	case payment.ClassAccountRefused:
		g.report.AccountRefused = true
		g.closeFor(5 * time.Second)
	case payment.ClassThrottled:
		g.closeFor(min(max(a.RetryAfter, 100*time.Millisecond), 30*time.Second))
	default:
		g.report.Answers++
		g.report.Failures = 0
		g.probing = false
	}
}

func (g *Gate) closeFor(pause time.Duration) {
	if until := time.Now().Add(pause); until.After(g.openUntil) {
		g.openUntil = until
	}
	signal(g.urgent)
}

// syncEvery is how often a process reports and hears of a channel.
const syncEvery = 250 * time.Millisecond

// sync keeps the gate in step with all instances until ctx ends. It tells once
// when the breaker opens, and once when something gets through again.
func (g *Gate) sync(ctx context.Context, db *store.Store, failed func(error), tell func(store.ChannelState)) {
	ticker := time.NewTicker(syncEvery)
	defer ticker.Stop()
	told := false
	for {
		state, err := g.syncOnce(ctx, db)
		switch {
		case err != nil && ctx.Err() == nil:
			failed(err)
		case err == nil && state.Probing != told:
			told = state.Probing
			tell(state)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-g.urgent:
		}
	}
}

func (g *Gate) syncOnce(ctx context.Context, db *store.Store) (store.ChannelState, error) {
	g.mu.Lock()
	report := g.report
	g.report = store.Report{}
	missing := g.largestAllowance() - int(g.allowance)
	g.mu.Unlock()
	state, err := db.SyncChannel(ctx, g.name, report)
	if err != nil {
		g.putBack(report)
		return state, err
	}
	var allowance int
	if g.caps.RateLimit > 0 && missing > 0 { // an idle process leaves the others theirs
		allowance, err = db.TakeSubmits(ctx, g.name, missing, g.caps.RateLimit)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowance = min(g.allowance+float64(allowance), float64(g.largestAllowance()))
	g.probing = state.Probing
	if until := time.Now().Add(state.Open); state.Open > 0 && until.After(g.openUntil) {
		g.openUntil = until
	}
	signal(g.freed)
	return state, err
}

// largestAllowance is how many submits this process may hold back for itself.
func (g *Gate) largestAllowance() int {
	return int(math.Ceil(g.caps.RateLimit * syncEvery.Seconds()))
}

// putBack keeps what could not be reported.
func (g *Gate) putBack(r store.Report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.report.Submits += r.Submits
	g.report.AccountRefused = g.report.AccountRefused || r.AccountRefused
	if g.report.Answers == 0 {
		g.report.Failures += r.Failures
	}
	g.report.Answers += r.Answers
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
