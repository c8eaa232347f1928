package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// coalesce is how long the fetcher waits for more partitions to become ready
// before it asks for those that are: it keeps a broker's partitions together in
// one request.
const coalesce = 200 * time.Microsecond

// fetcher keeps every partition that has room in exactly one fetch request per
// leading broker. Partitions that become ready while a request waits at the
// broker get a request of their own, so a paused one never waits for the others.
type fetcher struct {
	gen     *generation
	wake    chan struct{}
	waiting sync.WaitGroup
	sentAt  time.Time
	turn    int // rotates the order, so that a full answer starves nobody
}

func newFetcher(g *generation) *fetcher {
	return &fetcher{gen: g, wake: make(chan struct{}, 1)}
}

func (f *fetcher) signal() { signal(f.wake) }

// run fetches until ctx ends, and waits for its requests.
func (f *fetcher) run(ctx context.Context) {
	defer f.waiting.Wait()
	f.signal()
	idle := time.NewTimer(time.Hour)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-idle.C:
		}
		pace := f.gen.consumer.cfg.FetchPace - time.Since(f.sentAt)
		if sleep(ctx, max(pace, coalesce)) != nil {
			return
		}
		idle.Reset(f.send(ctx))
	}
}

// send asks for all partitions that are ready and returns when to look again.
func (f *fetcher) send(ctx context.Context) time.Duration {
	now := time.Now()
	next := time.Hour
	var ready []*partition
	for _, p := range f.gen.partitions {
		ok, at := p.wantsFetch(now)
		switch {
		case ok:
			ready = append(ready, p)
		case !at.IsZero():
			next = min(next, max(at.Sub(now), time.Millisecond))
		}
	}
	if len(ready) == 0 {
		return next
	}
	f.turn++
	f.sentAt = now
	k := f.turn % len(ready)
	ready = append(ready[k:len(ready):len(ready)], ready[:k]...)
	for _, group := range f.byLeader(ctx, ready) {
		for _, p := range group {
			p.fetchStarted()
		}
		f.waiting.Go(func() {
			f.fetch(ctx, group)
			f.signal()
		})
	}
	return next
}

type fetchGroup struct {
	leader int32
	alone  *partition // a partition that keeps failing is asked for alone
}

func (f *fetcher) byLeader(ctx context.Context, ready []*partition) map[fetchGroup][]*partition {
	leaders, err := f.gen.client.leaders(ctx, f.gen.consumer.cfg.Topics)
	if err != nil {
		f.failed(ready, err)
		return nil
	}
	groups := make(map[fetchGroup][]*partition)
	for _, p := range ready {
		leader, ok := leaders[p.topicPartition]
		if !ok {
			f.failed([]*partition{p}, kafkago.LeaderNotAvailable)
			continue
		}
		group := fetchGroup{leader: leader}
		if p.failing() {
			group.alone = p
		}
		groups[group] = append(groups[group], p)
	}
	return groups
}

// failed backs the partitions off and forgets the layout that may have led
// there.
func (f *fetcher) failed(parts []*partition, err error) {
	for _, p := range parts {
		p.fetchFailed(err)
	}
	f.gen.client.refresh()
	f.signal()
}

func (f *fetcher) fetch(ctx context.Context, parts []*partition) {
	req := f.request(parts)
	rctx, cancel := context.WithTimeout(ctx, f.gen.consumer.cfg.FetchMaxWait+requestTimeout)
	defer cancel()
	res, err := f.gen.client.transport.RoundTrip(rctx, f.gen.client.addr, req)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.failed(parts, err)
		return
	}
	answer, ok := res.(*fetchapi.Response)
	if !ok {
		f.failed(parts, errLeftOut)
		return
	}
	if answer.ErrorCode != 0 {
		f.failed(parts, protocolError(answer.ErrorCode))
		return
	}
	byID := make(map[topicPartition]*fetchapi.ResponsePartition, len(parts))
	for i := range answer.Topics {
		t := &answer.Topics[i]
		for j := range t.Partitions {
			byID[topicPartition{t.Topic, int(t.Partitions[j].Partition)}] = &t.Partitions[j]
		}
	}
	for _, p := range parts {
		f.take(ctx, p, byID[p.topicPartition])
	}
}

func (f *fetcher) request(parts []*partition) *fetchapi.Request {
	cfg := &f.gen.consumer.cfg
	req := newFetchRequest(cfg.FetchMaxWait, cfg.FetchMaxBytes)
	for _, p := range parts {
		addFetch(req, p.topicPartition, p.fetchOffset(), cfg.FetchMaxBytes/4)
	}
	return req
}

var errLeftOut = errors.New("the broker left the partition out of its answer")

// take hands one partition's answer over.
func (f *fetcher) take(ctx context.Context, p *partition, res *fetchapi.ResponsePartition) {
	if res == nil {
		f.failed([]*partition{p}, errLeftOut)
		return
	}
	err := protocolError(res.ErrorCode)
	if err == nil {
		var got fetched
		if got, err = decode(p.topicPartition, res, p.fetchOffset()); err == nil {
			p.fetched(got)
			return
		}
	}
	if errors.Is(err, kafkago.OffsetOutOfRange) {
		err = f.outOfRange(ctx, p)
	}
	if errors.Is(err, ErrOffsetOutOfRange) {
		f.gen.fail(err)
		return
	}
	f.failed([]*partition{p}, err)
}

// outOfRange never skips silently: only a partition that nobody has read before
// moves on to the earliest offset (records may expire between the look-up and
// the first fetch), and one that is read again from below its committed offset:
// what is gone from there was read once, and no reading brings it back.
func (f *fetcher) outOfRange(ctx context.Context, p *partition) error {
	at := p.fetchOffset()
	got, err := f.gen.client.listOffsets(ctx, map[string][]int{p.topic: {p.partition}})
	if err != nil {
		return err
	}
	r := got[p.topicPartition]
	if at >= r.earliest && at <= r.latest {
		return kafkago.OffsetOutOfRange // a leader that is catching up: ask again
	}
	if p.restart(r.earliest) || at < r.earliest && p.rewound(r.earliest) {
		return kafkago.OffsetOutOfRange
	}
	return &OffsetOutOfRangeError{Topic: p.topic, Partition: p.partition, Offset: at, Earliest: r.earliest, Latest: r.latest}
}

func (p *partition) fetchOffset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

func (p *partition) fetchStarted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetching = true
}

// failing reports whether the last two fetches failed.
func (p *partition) failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failures > 1
}

func (p *partition) fetchFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetching = false
	p.failures++
	p.notBefore = time.Now().Add(min(50*time.Millisecond<<min(p.failures, 6), 2*time.Second))
	level := zerolog.DebugLevel
	if p.failures%10 == 3 {
		level = zerolog.WarnLevel
	}
	p.gen.log.WithLevel(level).Err(err).Str("topic", p.topic).Int("partition", p.partition).Int("failures", p.failures).Msg("fetch failed, trying again")
}

// fetched queues what an answer brought.
func (p *partition) fetched(got fetched) {
	p.mu.Lock()
	now := time.Now()
	p.fetching = false
	p.failures = 0
	p.high, p.stable, p.fetchedAt = got.high, got.stable, now
	if got.next == p.next && got.stable > p.next {
		// Data, but not one whole batch of it: ask again, not in a busy loop.
		p.notBefore = now.Add(20 * time.Millisecond)
	}
	p.next = got.next
	p.fresh = false
	if p.next >= p.stable {
		p.caughtUp = now
	}
	if len(got.records) > 0 {
		if len(p.queue) == 0 && p.track.span() == 0 {
			p.progress = now
		}
		p.queue = append(p.queue, got.records...)
		p.queuedBytes += got.bytes
	}
	p.mu.Unlock()
	if len(got.records) > 0 {
		signal(p.wake)
	}
}

// rewound moves a partition that is read again from below its committed offset to
// the earliest one, where that still covers everything from the committed one on.
func (p *partition) rewound(earliest int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if earliest > p.committed {
		return false
	}
	p.gen.log.Error().Str("topic", p.topic).Int("partition", p.partition).Int64("wanted", p.next).Int64("earliest", earliest).
		Int64("committed", p.committed).Msg("records before the committed offset were to be read again and are gone, going on with the earliest")
	p.next = earliest
	return true
}

// restart moves a partition that nobody has read before to the earliest offset.
func (p *partition) restart(earliest int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fresh {
		return false
	}
	p.next = earliest
	return true
}
