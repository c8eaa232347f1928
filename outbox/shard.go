package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/kafka"
)

// shard is a shard this relay leases. Its upper part is guarded by the board;
// the lower part belongs to the lane that holds it.
type shard struct {
	id       int16
	epoch    int64 // of the lease
	deadline time.Time

	storedProducer *int64 // of the previous owner, as it was when the lease was taken
	producer       *kafka.FencedProducer
	ready          bool      // producer epoch taken under this lease, and stored
	prepareAt      time.Time // not before: taking a producer epoch failed
	renewAt        time.Time // of the producer epoch

	lane     *lane     // that holds it now, nil: none
	troubled bool      // the last publish failed in part: the slow lane cares for it
	failures int       // in a row
	retryAt  time.Time // not before: back-off, or quiet after a changed producer id
	leaving  bool      // to be released as soon as no lane holds it
	swept    *swept    // what the last sweep found, for the lane to take in

	mark      lowWater
	blocked   map[string]int64 // topic and key → its first parked row
	baseLimit int
	rowsLimit int
	wide      int // how many rows to look at, 0: just read
	rests     int // reads to make before looking at so many again
}

// swept is the result of a sweep over one shard.
type swept struct {
	first  int64 // first row that may be published, -1: none
	parked []int64
}

// takeSwept lowers the mark to what a sweep found below it. A key whose parked
// row was repaired is let go in the same step: before the mark is low enough to
// see that row, its later ones must not pass it (G10). It reports whether there
// was such a key.
func (s *shard) takeSwept() (repaired bool) {
	found := s.swept
	if found == nil {
		return false
	}
	s.swept = nil
	if found.first >= 0 {
		s.mark.lower(found.first)
	}
	slices.Sort(found.parked)
	for key, seq := range s.blocked {
		if _, parked := slices.BinarySearch(found.parked, seq); !parked {
			delete(s.blocked, key)
			s.mark.lower(seq)
			repaired = true
		}
	}
	return repaired
}

// block remembers that a key waits behind its parked row.
func (s *shard) block(key string, seq int64) {
	if first, ok := s.blocked[key]; !ok || seq < first {
		s.blocked[key] = seq
	}
}

// behindParked reports whether a row waits behind a parked one of its key.
func (s *shard) behindParked(key string, seq int64) bool {
	first, ok := s.blocked[key]
	return ok && seq > first
}

// board is the set of shards this relay leases, and which lane holds which.
type board struct {
	mu     sync.Mutex
	cfg    *RelayConfig
	shards map[int16]*shard
	avoid  map[int16]time.Time // do not lease before: somebody else writes there
}

func newBoard(cfg *RelayConfig) *board {
	return &board{cfg: cfg, shards: make(map[int16]*shard), avoid: make(map[int16]time.Time)}
}

func (b *board) add(id int16, epoch int64, stored *int64, deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shards[id] = &shard{
		id: id, epoch: epoch, deadline: deadline, storedProducer: stored,
		blocked: make(map[string]int64), baseLimit: b.cfg.BatchSize, rowsLimit: b.cfg.BatchSize,
		mark: newLowWater(),
	}
}

// take gives a lane the shards it may publish now. Those it holds and does not
// get again it still holds, until it gives them back.
func (b *board) take(l *lane, now time.Time) []*shard {
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*shard
	for _, s := range b.shards {
		if s.lane != nil && s.lane != l || !b.publishable(s, now) || laneOf(s) != l.kind {
			continue
		}
		s.lane = l
		if s.takeSwept() {
			clear(l.missing)
		}
		s.mark.arm()
		taken = append(taken, s)
	}
	slices.SortFunc(taken, func(x, y *shard) int { return int(x.id - y.id) })
	return taken
}

// adapt makes the next reads start, and reach, as these suggest.
func (b *board) adapt(picked []*pick) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range picked {
		p.adapt()
	}
}

func (b *board) publishable(s *shard, now time.Time) bool {
	return s.ready && !s.leaving && !now.Before(s.retryAt) && now.Before(s.renewAt) && s.deadline.Sub(now) > b.cfg.share()
}

// giveBack ends a lane's hold. It reports whether somebody else waits for one
// of the shards: to release it, or to renew its producer.
func (b *board) giveBack(shards []*shard, now time.Time) (wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range shards {
		s.lane = nil
		wanted = wanted || s.leaving || b.expireProducer(s, now)
	}
	return wanted
}

// expireProducer makes a shard whose producer epoch is old wait for a new one.
func (b *board) expireProducer(s *shard, now time.Time) bool {
	if s.ready && s.lane == nil && !now.Before(s.renewAt) {
		s.ready = false
	}
	return !s.ready
}

// concluded takes the verdict of a publish in, and returns for how long the shard
// rests.
func (b *board) concluded(s *shard, v verdict, now time.Time) (pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.troubled = v.failed
	if !v.failed {
		s.failures = 0
		return 0
	}
	s.failures++
	pause = jitter(backoff(s.failures))
	s.retryAt = now.Add(pause)
	if v.renew {
		s.ready = false
	}
	if v.fenced {
		s.leaving = true
		b.avoid[s.id] = now.Add(jitter(avoidFor))
	}
	return pause
}

// avoidFor is how long a shard is left alone after it was fenced off.
const avoidFor = time.Second

func (b *board) deadlineOf(s *shard) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.deadline
}

// unprepared lists the shards that need a producer epoch now.
func (b *board) unprepared(now time.Time) (list []*shard, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = time.Minute
	for _, s := range b.shards {
		switch {
		case s.lane != nil || s.leaving:
		case b.expireProducer(s, now) && !now.Before(s.prepareAt):
			list = append(list, s)
		case !s.ready:
			next = min(next, s.prepareAt.Sub(now))
		default:
			next = min(next, s.renewAt.Sub(now))
		}
	}
	return list, next
}

// ready opens a shard for publishing.
func (b *board) ready(s *shard, from, renewAt time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.ready, s.failures = true, 0
	s.retryAt, s.renewAt = from, renewAt
}

// prepared makes the shards that are not ready wait before the next try, and
// counts those that failed.
func (b *board) prepared(list, taken []*shard, now time.Time) (failed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range list {
		if s.ready {
			continue
		}
		s.failures++
		s.prepareAt = now.Add(jitter(backoff(s.failures)))
		if !slices.Contains(taken, s) {
			failed++
		}
	}
	return failed
}

// sweep hands what a sweep found to the lanes, and reports whether one of them
// should look at once.
func (b *board) sweep(found map[int16]*swept) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, f := range found {
		if s := b.shards[id]; s != nil {
			s.swept = f
			news = news || f.first >= 0
		}
	}
	return news
}

// owned lists the leases as arrays for a statement.
func (b *board) owned() (l leases) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		l.add(s)
	}
	return l
}

// renewed takes the answer to a renewal in: a shard that was asked for and is
// not in kept belongs to somebody else now.
func (b *board) renewed(asked leases, kept []int16, deadline time.Time) (lost []int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, id := range asked.shards {
		s := b.shards[id]
		switch {
		case s == nil || s.epoch != asked.epochs[i]:
		case slices.Contains(kept, id):
			s.deadline = deadline
		default:
			lost = append(lost, id)
			delete(b.shards, id)
		}
	}
	return lost
}

// shed marks shards above the fair share as leaving, and lists those that no
// lane holds any more.
func (b *board) shed(share int) (free leases) {
	b.mu.Lock()
	defer b.mu.Unlock()
	staying := 0
	for _, id := range b.ids() {
		s := b.shards[id]
		if !s.leaving {
			if staying++; staying > share {
				s.leaving = true
			}
		}
		if s.leaving && s.lane == nil {
			free.add(s)
		}
	}
	return free
}

// remove forgets shards that were released.
func (b *board) remove(l leases) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, id := range l.shards {
		if s := b.shards[id]; s != nil && s.epoch == l.epochs[i] {
			delete(b.shards, id)
		}
	}
}

// missing is how many shards there are below the fair share, and which ones not
// to take now.
func (b *board) missing(share int, now time.Time) (n int, avoid []int16) {
	b.mu.Lock()
	defer b.mu.Unlock()
	avoid = []int16{}
	for id, until := range b.avoid {
		if now.Before(until) {
			avoid = append(avoid, id)
		} else {
			delete(b.avoid, id)
		}
	}
	return share - len(b.shards), avoid
}

func (b *board) ids() []int16 {
	ids := make([]int16, 0, len(b.shards))
	for id := range b.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// leases are shards and the epochs under which they are, or were, leased.
type leases struct {
	shards []int16
	epochs []int64
}

func (l *leases) add(s *shard) {
	l.shards = append(l.shards, s.id)
	l.epochs = append(l.epochs, s.epoch)
}

func leasesOf(shards []*shard) (l leases) {
	for _, s := range shards {
		l.add(s)
	}
	return l
}
