package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
)

var (
	errRevoked       = errors.New("generation ended")
	errHandlerFailed = errors.New("handler failed")
)

// generation runs the partitions that the group assigned to this member, from
// the assignment until the group takes them away, the consumer stops, or
// something fails. It commits under its own generation id only, so that a
// consumer that was thought dead cannot commit over its successor (G11).
type generation struct {
	consumer *Consumer
	client   *Client
	log      zerolog.Logger
	gen      *kafkago.Generation
	appCtx   context.Context //nolint:containedctx // the library starts run with a context that has no values
	failures int             // failed generations before this one

	fetch   *fetcher
	settled chan struct{} // a partition may have become settled, see drain

	mu         sync.Mutex
	partitions []*partition
	cancel     context.CancelCauseFunc

	commitFailed bool // of the commit loop, then of the drain

	// Set before drained is closed, read after.
	drained chan struct{}
	fatal   error
	failed  bool
}

func newGeneration(ctx context.Context, c *Consumer, gen *kafkago.Generation, failures int) *generation {
	g := &generation{
		consumer: c, client: c.client, gen: gen, appCtx: ctx, failures: failures,
		log:     c.log.With().Int32("generation", gen.ID).Logger(),
		settled: make(chan struct{}, 1),
		drained: make(chan struct{}),
	}
	g.fetch = newFetcher(g)
	return g
}

// run is the one function of the generation; its return ends the generation, so
// it returns only after the drain. Values come from the application's context,
// the end from both: the library's context has neither values nor the usual
// errors.
func (g *generation) run(genCtx context.Context) {
	ctx, cancel := context.WithCancelCause(g.appCtx)
	defer cancel(nil)
	defer context.AfterFunc(genCtx, func() { cancel(errRevoked) })()
	g.mu.Lock()
	g.cancel = cancel
	g.mu.Unlock()
	if genCtx.Err() != nil {
		cancel(errRevoked) // over before it began
	}

	cause := g.consume(ctx)
	g.judge(cause)
	close(g.drained)
	switch {
	case errors.Is(cause, errRevoked):
	case g.failed:
		g.pause(genCtx)
	default:
		// Stopping for good: Run closes the group now. Returning before that
		// would let the library join again first.
		<-genCtx.Done()
	}
}

// consume works until ctx ends, drains, and returns why it ended.
func (g *generation) consume(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	parts, err := g.assign(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	g.mu.Lock()
	g.partitions = parts
	g.mu.Unlock()
	g.log.Info().Int("partitions", len(parts)).Msg("partitions assigned")

	var fetching sync.WaitGroup
	fetching.Go(func() { g.fetch.run(ctx) })
	for _, p := range parts {
		before, done := g.consumer.nextWorker(p.topicPartition)
		go func() { // owned by the consumer: a handler may outlive the generation
			defer close(done)
			p.work(ctx, before)
		}()
	}
	g.commitLoop(ctx)
	fetching.Wait()
	g.drain()
	return context.Cause(ctx)
}

// judge sorts the cause into a stop, a revoke, a failure that a new generation
// may mend, and a fatal one.
func (g *generation) judge(cause error) {
	switch {
	case errors.Is(cause, errRevoked), g.appCtx.Err() != nil:
	case errors.Is(cause, ErrStalled), errors.Is(cause, ErrOffsetOutOfRange):
		g.fatal = cause
	default:
		g.failed = true
		g.log.Warn().Err(cause).Msg("no progress possible, leaving the generation")
	}
}

// pause backs off with heartbeats going on, so that other members are not
// disturbed in the meantime.
func (g *generation) pause(genCtx context.Context) {
	d := g.consumer.cfg.JoinGroupBackoff << min(g.failures, 5)
	t := time.NewTimer(min(d, maxBackoff))
	defer t.Stop()
	select {
	case <-t.C:
	case <-genCtx.Done():
	case <-g.appCtx.Done():
		<-genCtx.Done()
	}
}

const maxBackoff = 10 * time.Second

// fail ends the generation with a cause.
func (g *generation) fail(cause error) {
	g.mu.Lock()
	cancel := g.cancel
	g.mu.Unlock()
	cancel(cause)
}

func (g *generation) handlerFailed(p *partition, err error) {
	g.fail(fmt.Errorf("%w: topic %s partition %d: %w", errHandlerFailed, p.topic, p.partition, err))
}

// nextWorker returns the end of the partition's previous worker (nil when it had
// none) and the place to announce the end of the next one.
func (c *Consumer) nextWorker(tp topicPartition) (<-chan struct{}, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.workers[tp]
	done := make(chan struct{})
	c.workers[tp] = done
	return before, done
}

// commitLoop commits and watches for stalls until ctx ends.
func (g *generation) commitLoop(ctx context.Context) {
	commit := time.NewTicker(g.consumer.cfg.CommitInterval)
	defer commit.Stop()
	watch := time.NewTicker(watchInterval(g.consumer.cfg.StallTimeout))
	defer watch.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-commit.C:
			g.commit()
		case <-look.C:
			g.lookAhead(ctx)
		case now := <-watch.C:
			if err := g.stalled(now); err != nil {
				g.fail(err)
				return
			}
		}
	}
}

func watchInterval(stall time.Duration) time.Duration {
	if stall <= 0 {
		return time.Hour
	}
	return max(min(stall/4, time.Second), time.Millisecond)
}

// lookEvery is how old the known end of a partition may get while it is not
// fetched from.
const lookEvery = 5 * time.Second

// lookAhead keeps the lag of partitions honest that are full and so not fetched
// from: that is when it matters.
func (g *generation) lookAhead(ctx context.Context) {
	want := make(map[string][]int)
	for _, p := range g.partitions {
		if p.lookedAtBefore(time.Now().Add(-lookEvery)) {
			want[p.topic] = append(want[p.topic], p.partition)
		}
	}
	if len(want) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	got, err := g.client.tryListOffsets(ctx, want)
	if err != nil {
		return // the next look will do
	}
	for _, p := range g.partitions {
		if r, ok := got[p.topicPartition]; ok {
			p.endsAt(r.latest)
		}
	}
}

// stalled is the watchdog: heartbeats run apart from handlers, so the group
// would keep a hung member for ever.
func (g *generation) stalled(now time.Time) error {
	limit := g.consumer.cfg.StallTimeout
	if limit <= 0 {
		return nil
	}
	for _, p := range g.partitions {
		if d := p.stalledFor(now); d > limit {
			return fmt.Errorf("%w: topic %s partition %d has not moved for %s", ErrStalled, p.topic, p.partition, d.Round(time.Millisecond))
		}
	}
	return nil
}

// commit sends the offsets that became committable since the last time. A
// failure is left to the next tick: either the generation is over, which the
// heartbeat notices, or the same values are sent again.
func (g *generation) commit() {
	offsets := make(map[string]map[int]int64)
	for _, p := range g.partitions {
		if next, ok := p.uncommitted(); ok {
			if offsets[p.topic] == nil {
				offsets[p.topic] = make(map[int]int64)
			}
			offsets[p.topic][p.partition] = next
		}
	}
	if len(offsets) == 0 {
		return
	}
	err := g.gen.CommitOffsets(offsets)
	if err != nil && !g.commitFailed {
		g.log.Warn().Err(err).Msg("committing offsets failed, records may be delivered again")
	}
	g.commitFailed = err != nil
	if err != nil {
		return
	}
	for _, p := range g.partitions {
		if next, ok := offsets[p.topic][p.partition]; ok {
			p.committedUpTo(next)
		}
	}
}

// drain waits for workers to return and for the records they took over, at most
// DrainTimeout; then it gives the partitions up and commits what is finished
// without a hole.
func (g *generation) drain() {
	t := time.NewTimer(g.consumer.cfg.DrainTimeout)
	defer t.Stop()
	for left := g.unsettled(); left > 0; left = g.unsettled() {
		select {
		case <-g.settled:
			continue
		case <-t.C:
			g.log.Warn().Int("partitions", left).Msg("drain timed out, records in flight will be delivered again")
		}
		break
	}
	for _, p := range g.partitions {
		p.giveUp()
	}
	g.commit()
}

func (g *generation) unsettled() int {
	n := 0
	for _, p := range g.partitions {
		if !p.settledNow() {
			n++
		}
	}
	return n
}

func (g *generation) progressed() bool {
	for _, p := range g.partitions {
		if p.moved() {
			return true
		}
	}
	return false
}

// giveUp says that the deliveries are not Live any more; what is queued is forgotten.
func (p *partition) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost.Store(true)
	p.queue, p.queuedBytes = nil, 0
}

// uncommitted returns the offset to commit, if it lies past the committed one:
// commits never go backwards (also when reading started below the committed
// offset).
func (p *partition) uncommitted() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.track.committable()
	return next, next > p.committed
}

func (p *partition) committedUpTo(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = max(p.committed, next)
}

// lookedAtBefore reports a partition that no fetch is out for, and whose last
// answer is old.
func (p *partition) lookedAtBefore(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.fetching && p.fetchedAt.Before(t)
}

func (p *partition) endsAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.high = max(p.high, offset)
}

func (p *partition) moved() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.track.committable() >= 0
}
