package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// partition is one assigned partition during one generation: what was fetched
// and waits, what is in flight, and how far it is finished.
type partition struct {
	topicPartition

	gen  *generation
	wake chan struct{} // tells the worker that records or room arrived
	lost atomic.Bool   // the generation has ended, nothing is committed any more

	mu          sync.Mutex
	track       tracker
	queue       []Record // fetched, not handed out
	queuedBytes int
	full        bool // handing out waits until half of the bound is free

	next      int64 // offset to fetch next
	fresh     bool  // started at the earliest offset, nothing read yet
	fetching  bool
	failures  int       // failed fetches in a row
	notBefore time.Time // back-off of fetching
	high      int64     // high watermark
	stable    int64     // last stable offset
	fetchedAt time.Time // last successful answer
	caughtUp  time.Time // last time that everything stable was read

	committed int64     // committed in Kafka, -1 when none
	progress  time.Time // last time the oldest unfinished record changed
	working   bool
}

func newPartition(g *generation, tp topicPartition, committed, start int64, fresh bool) *partition {
	now := time.Now()
	return &partition{
		topicPartition: tp, gen: g, wake: make(chan struct{}, 1), track: newTracker(), next: start, fresh: fresh,
		high: -1, stable: -1, committed: committed, progress: now, caughtUp: now, working: true,
	}
}

// finish is Finish of deliveries that are all of this partition.
func (p *partition) finish(ds []*Delivery) {
	p.mu.Lock()
	moved := false
	for _, d := range ds {
		if p.track.finish(d.index) {
			moved = true
		}
	}
	if moved {
		p.progress = time.Now()
	}
	resumed := p.full && p.halfFree()
	if resumed {
		p.full = false
	}
	drained := p.track.awaited == 0
	p.mu.Unlock()
	if resumed {
		signal(p.wake)
		p.gen.fetch.signal()
	}
	if drained {
		signal(p.gen.settled)
	}
}

// hasRoom and halfFree are the two marks of back-pressure, in records, bytes and
// distance behind a stuck record (finished ones cost memory too).
func (p *partition) hasRoom() bool {
	cfg := &p.gen.consumer.cfg
	return p.track.unfinished < cfg.MaxInFlight && p.track.bytes < cfg.MaxInFlightBytes && p.track.span() < spanFactor*cfg.MaxInFlight
}

func (p *partition) halfFree() bool {
	cfg := &p.gen.consumer.cfg
	return p.track.unfinished <= cfg.MaxInFlight/2 && p.track.bytes <= cfg.MaxInFlightBytes/2 &&
		p.track.span() <= spanFactor*cfg.MaxInFlight/2
}

// spanFactor times MaxInFlight records may lie finished behind an unfinished one.
const spanFactor = 8

// wantsFetch reports whether more should be fetched now, else the time to ask
// again (zero: when signalled).
func (p *partition) wantsFetch(now time.Time) (bool, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cfg := &p.gen.consumer.cfg
	switch {
	case p.fetching || p.full:
		return false, time.Time{}
	case p.track.unfinished+len(p.queue) >= cfg.MaxInFlight || p.track.bytes+p.queuedBytes >= cfg.MaxInFlightBytes:
		return false, time.Time{}
	case now.Before(p.notBefore):
		return false, p.notBefore
	}
	return true, time.Time{}
}

// work hands batches to the handler, one at a time, until ctx ends or the
// handler fails. before is closed when an earlier generation's worker of the
// same partition has returned: the handler is never called twice at once.
func (p *partition) work(ctx context.Context, before <-chan struct{}) {
	defer p.stopped()
	if before != nil {
		select {
		case <-before:
		case <-ctx.Done():
			return
		}
	}
	for {
		batch := p.take(ctx)
		if batch == nil {
			return
		}
		if err := p.gen.consumer.cfg.Handler(ctx, batch); err != nil {
			p.abandon(batch)
			if ctx.Err() == nil {
				p.gen.handlerFailed(p, err)
			}
			return
		}
	}
}

func (p *partition) stopped() {
	p.mu.Lock()
	p.working = false
	p.mu.Unlock()
	signal(p.gen.settled)
}

// take waits for records and room and hands out as much as fits; nil when ctx
// has ended.
func (p *partition) take(ctx context.Context) []*Delivery {
	for {
		if ctx.Err() != nil {
			return nil
		}
		if batch := p.tryTake(); batch != nil {
			p.gen.fetch.signal()
			return batch
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
		}
	}
}

func (p *partition) tryTake() []*Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 || p.full {
		return nil
	}
	now := time.Now()
	if p.track.span() == 0 {
		p.progress = now
	}
	records := make([]Delivery, 0, min(len(p.queue), p.gen.consumer.cfg.MaxInFlight-p.track.unfinished))
	for len(records) < cap(records) && p.hasRoom() {
		r := p.queue[len(records)]
		size := r.size()
		p.queuedBytes -= size
		records = append(records, Delivery{Record: r, owner: p, index: p.track.add(r.Offset, r.Time, now, size)})
	}
	p.full = !p.hasRoom()
	p.dequeue(len(records))
	batch := make([]*Delivery, len(records))
	for i := range records {
		batch[i] = &records[i]
	}
	return batch
}

func (p *partition) dequeue(n int) {
	if n == len(p.queue) {
		p.queue = nil
		return
	}
	p.queue = p.queue[n:]
}

func (p *partition) abandon(batch []*Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range batch {
		p.track.abandon(d.index)
	}
}

// settledNow reports whether a drain has nothing to wait for here.
func (p *partition) settledNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.working && p.track.awaited == 0
}

// stalledFor is how long the oldest waiting record has not moved.
func (p *partition) stalledFor(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.track.span() == 0 && len(p.queue) == 0 {
		return 0
	}
	return now.Sub(p.progress)
}

// signal wakes the reader of a one-slot channel.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
