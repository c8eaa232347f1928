package reconciler

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/settleonce/settleonce/internal/kafka"
)

// pulse shows since when a loop is busy with one step.
type pulse struct {
	what  string
	since atomic.Pointer[time.Time] // nil while it waits for work
}

// step marks the loop busy while fn runs.
func (p *pulse) step(fn func()) {
	now := time.Now() // its monotonic part matters: a clock that is set is no hang
	p.since.Store(&now)
	defer p.since.Store(nil)
	fn()
}

// stuck is how long the step under way takes already.
func (p *pulse) stuck(now time.Time) time.Duration {
	since := p.since.Load()
	if since == nil {
		return 0
	}
	return now.Sub(*since)
}

// watchdog ends the role when one of its loops hangs in a step: a database that
// neither answers nor hangs up would otherwise stop it in silence.
func (r *Reconciler) watchdog(ctx context.Context, fail context.CancelCauseFunc) {
	ticker := time.NewTicker(r.cfg.Stall / 4)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for _, p := range []*pulse{&r.ringing, &r.sweeping, &r.hearing} {
				if d := p.stuck(now); d > r.cfg.Stall {
					fail(fmt.Errorf("%w: %s hangs for %s", kafka.ErrStalled, p.what, d.Round(time.Millisecond)))
					return
				}
			}
		}
	}
}
