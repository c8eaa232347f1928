package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Stats are a relay's counters since its start.
type Stats struct {
	// Published counts messages that all in-sync replicas acknowledged.
	Published uint64
	// PublishErrors counts publishes of a shard that failed in part or whole,
	// and producers that could not be taken over.
	PublishErrors uint64
	// DatabaseErrors counts statements that failed.
	DatabaseErrors uint64
	// Parked counts messages that were parked.
	Parked uint64
	// Fenced counts shards given up because a newer producer had written.
	Fenced uint64
	// LateMarks counts published rows that were not marked because the lease
	// was lost in between; the new owner publishes them again.
	LateMarks uint64
	// LostLeases counts leases that ran out while this relay was running.
	LostLeases uint64
	// ProducerChanges counts transactional ids that the broker had forgotten.
	// Each one is an alarm: see RelayConfig.RenewProducer.
	ProducerChanges uint64
	// Sweeps counts looks through the whole table.
	Sweeps uint64
	// Shards is how many shards this relay leases now.
	Shards int
}

type stats struct {
	published, publishErrors, databaseErrors, parked, fenced atomic.Uint64
	lateMarks, lostLeases, producerChanges, sweeps, raises   atomic.Uint64
}

// Stats returns the counters as they are now. It is cheap.
func (r *Relay) Stats() Stats {
	return Stats{
		Published:       r.stats.published.Load(),
		PublishErrors:   r.stats.publishErrors.Load(),
		DatabaseErrors:  r.stats.databaseErrors.Load(),
		Parked:          r.stats.parked.Load(),
		Fenced:          r.stats.fenced.Load(),
		LateMarks:       r.stats.lateMarks.Load(),
		LostLeases:      r.stats.lostLeases.Load(),
		ProducerChanges: r.stats.producerChanges.Load(),
		Sweeps:          r.stats.sweeps.Load(),
		Shards:          len(r.board.owned().shards),
	}
}

type depth struct {
	rows, parked int64
	oldest       time.Duration
}

const (
	depthFresh = time.Second // the least time an answer is good for
	depthShare = 20
)

// Depth returns how many messages of the whole outbox wait, how old the oldest
// of them is that is not parked, and how many are parked. It counts the table,
// so an answer is kept for at least a second, and for twenty times as long as
// counting took.
func (r *Relay) Depth(ctx context.Context) (rows int64, oldest time.Duration, parked int64, err error) {
	r.depthMu.Lock()
	defer r.depthMu.Unlock()
	start := time.Now()
	if start.Before(r.depthValid) {
		return r.depth.rows, r.depth.oldest, r.depth.parked, nil
	}
	var d depth
	var seconds float64
	if err := r.cfg.Pool.QueryRow(ctx, depthSQL).Scan(&d.rows, &seconds, &d.parked); err != nil {
		return 0, 0, 0, fmt.Errorf("count the outbox: %w", err)
	}
	d.oldest = time.Duration(seconds * float64(time.Second))
	r.depth = d
	r.depthValid = time.Now().Add(max(depthFresh, depthShare*time.Since(start)))
	return d.rows, d.oldest, d.parked, nil
}
