package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

// tormentor carries a schedule out.
type tormentor struct {
	cfg      Config
	scene    *demo.Scene
	begun    time.Time
	postgres *proxy
	kafka    *proxy
	edge     *proxy
	losses   *losses
	guests   map[string]*guest // by role
	shop     *opening          // nil: there is none
	channels []*provider
	limited  *provider // see squeeze

	// heavy is held while broker or database are restarted: see alone.
	heavy sync.Mutex

	mu     sync.Mutex
	struck map[Fault]int
	points map[string]int
	did    map[string]int
	failed []string
	// seen are violations that were seen before the workers were started.
	seen []check.Violation
}

// torment breaks things as scheduled, and returns when all is whole again, with
// what it saw on the way.
func (t *tormentor) torment(ctx context.Context, scene *demo.Scene) ([]check.Violation, error) {
	t.scene = scene
	watching, stop := context.WithCancel(ctx)
	var seen []check.Violation
	var watch sync.WaitGroup
	watch.Go(func() { seen = t.watchOffsets(watching) })
	awaitTraffic(ctx, scene)
	t.begun = time.Now()
	var strikes sync.WaitGroup
	strikes.Go(func() {
		if err := t.squeeze(ctx); err != nil {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.failed = append(t.failed, "squeeze the channel "+limited+": "+err.Error())
		}
	})
	var customers sync.WaitGroup
	customers.Go(func() { t.shop.trade(ctx) })
	for _, s := range t.plan(scene.Length) {
		if !fleet.Pause(ctx, time.Until(t.begun.Add(s.at))) {
			break
		}
		strikes.Go(func() { t.strike(ctx, s) })
	}
	strikes.Wait()
	t.heal(ctx)
	customers.Wait()
	stop()
	watch.Wait()
	return append(seen, t.seen...), ctx.Err()
}

// plan is what is done in the run.
func (t *tormentor) plan(length time.Duration) []strike {
	ordeals := []ordeal{downstreamOrdeal}
	if t.shop != nil {
		ordeals = append(ordeals, shopOrdeal)
	}
	return plan(t.cfg.Seed, t.cfg.Faults, length, ordeals...)
}

// awaitTraffic waits until records are acknowledged: what is broken before breaks
// nothing. New brokers on a busy machine take their time.
func awaitTraffic(ctx context.Context, scene *demo.Scene) {
	const some = 50
	for end := time.Now().Add(time.Minute); scene.Published() < some && time.Now().Before(end) && fleet.Pause(ctx, 50*time.Millisecond); {
	}
}

// lateTurns is how long after the last payment a strike may still begin that waited for
// its turn: later there is nothing to break, and the end waits for it.
const lateTurns = time.Minute

var errLate = errors.New("its turn came long after the last payment")

// alone does what needs broker and database whole, or restarts them: one at a time. The
// first of a fault is never late: every run has each of them, however slow its machine is.
func (t *tormentor) alone(fault Fault, do func() error) error {
	t.heavy.Lock()
	defer t.heavy.Unlock()
	if t.late(fault) {
		return errLate
	}
	return do()
}

func (t *tormentor) late(fault Fault) bool {
	return t.done(fault) && time.Since(t.begun) > t.scene.Length+lateTurns
}

// done reports whether a fault was done in this run.
func (t *tormentor) done(fault Fault) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.struck[fault] > 0
}

// heal makes everything whole.
func (t *tormentor) heal(ctx context.Context) {
	t.postgres.mend()
	t.kafka.mend()
	t.edge.mend()
	for _, g := range t.guests {
		g.mend()
	}
	for _, c := range t.channels {
		c.proxy.mend()
		if err := c.setRates(ctx); err != nil {
			t.failed = append(t.failed, "heal the channel "+c.name+": "+err.Error())
		}
	}
	t.scene.Say("everything is whole again")
}

// watchOffsets looks at the committed offsets until ctx ends; none may go back
// (B9).
func (t *tormentor) watchOffsets(ctx context.Context) (seen []check.Violation) {
	prefix := t.cfg.Fleet.Prefix
	last := map[int]int64{}
	for fleet.Pause(ctx, 500*time.Millisecond) {
		now, err := t.scene.Fleet.Client().CommittedOffsets(ctx, prefix+"settleonce-consumer", payment.NewTopics(prefix).Commands)
		if err != nil {
			continue // the broker is away
		}
		for _, partition := range slices.Sorted(maps.Keys(now)) {
			if before, ok := last[partition]; ok && now[partition] < before {
				seen = append(seen, check.Violation{
					Guarantee: "G11",
					Text:      fmt.Sprintf("the committed offset of partition %d went back from %d to %d", partition, before, now[partition]),
				})
			}
			last[partition] = now[partition]
		}
	}
	return seen
}
