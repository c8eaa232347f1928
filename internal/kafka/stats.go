package kafka

import (
	"slices"
	"strings"
	"time"
)

// PartitionStats is the state of one assigned partition.
type PartitionStats struct {
	Topic     string
	Partition int
	// Lag is how many offsets lie between the oldest unfinished or unread record
	// and the end of the log, as of the last answer of the broker; -1 before the
	// first.
	Lag int64
	// LagTime is the age of the oldest unfinished record, or, when all that was
	// fetched is finished, the time since everything was read; 0 when nothing is
	// behind.
	LagTime time.Duration
	// InFlight counts records handed out and not finished; Queued those fetched
	// and not handed out.
	InFlight, Queued int
	// OldestInFlight is how long ago the oldest unfinished record was handed out;
	// 0 when none is in flight.
	OldestInFlight time.Duration
	// Committed is the offset committed in Kafka, -1 when none.
	Committed int64
	// FetchedAt is the time of the last successful answer; zero before the first.
	FetchedAt time.Time
}

// Stats returns the assigned partitions' state, sorted by topic and partition.
func (c *Consumer) Stats() []PartitionStats {
	now := time.Now()
	parts := c.assigned()
	out := make([]PartitionStats, len(parts))
	for i, p := range parts {
		out[i] = p.stats(now)
	}
	slices.SortFunc(out, func(a, b PartitionStats) int {
		if a.Topic != b.Topic {
			return strings.Compare(a.Topic, b.Topic)
		}
		return a.Partition - b.Partition
	})
	return out
}

// Assigned returns the partitions that this member owns, sorted, by topic.
func (c *Consumer) Assigned() map[string][]int {
	out := make(map[string][]int)
	for _, p := range c.assigned() {
		out[p.topic] = append(out[p.topic], p.partition)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}

func (c *Consumer) assigned() []*partition {
	c.mu.Lock()
	g := c.current
	c.mu.Unlock()
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []*partition
	for _, p := range g.partitions {
		if !p.lost.Load() {
			out = append(out, p)
		}
	}
	return out
}

func (p *partition) stats(now time.Time) PartitionStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PartitionStats{
		Topic: p.topic, Partition: p.partition, Lag: -1, InFlight: p.track.unfinished, Queued: len(p.queue),
		Committed: p.committed, FetchedAt: p.fetchedAt,
	}
	position, at, behind := p.oldest()
	if p.high >= 0 {
		s.Lag = max(p.high-position, 0)
	}
	if behind {
		s.LagTime = max(now.Sub(at), 0)
	}
	if e := p.track.oldest(); e != nil {
		s.OldestInFlight = max(now.Sub(e.handed), 0)
	}
	return s
}

// oldest returns the offset and time of the oldest record that is not finished.
func (p *partition) oldest() (int64, time.Time, bool) {
	if e := p.track.oldest(); e != nil {
		return e.offset, e.time, true
	}
	if len(p.queue) > 0 {
		return p.queue[0].Offset, p.queue[0].Time, true
	}
	return p.next, p.caughtUp, p.next < p.stable
}
