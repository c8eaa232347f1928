package outbox

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// lowWater is where a shard's reads start, so that they do not wade through the
// index entries of rows that were published before: those stay as long as
// anybody holds an old snapshot (PITFALLS 17 to 19).
//
// Nothing that will ever become visible lies below it, or a later message of the
// same key could be read before an earlier one whose transaction took its place
// in the order long ago and commits late (B1, G10). Time proves nothing here.
// What does: whoever inserts into the outbox holds a lock on the table from
// before it takes its place until after its commit is visible. So a mark is
// raised in three steps: note the lowest row that a read saw, see all holders
// of that lock at that time gone, and read once more from the old mark.
type lowWater struct {
	from      int64 // reads start here
	seen      int64 // lowest row of the latest read
	last      int64 // highest row ever read
	candidate int64 // seen, when the holders of the lock were listed
	confirmed int64 // a candidate whose holders are gone
	armed     int64 // confirmed, when the read under way was sent
}

func newLowWater() lowWater {
	const unset = math.MinInt64
	return lowWater{from: unset, seen: unset, candidate: unset, confirmed: unset, armed: unset}
}

// arm is called before a read is sent.
func (w *lowWater) arm() { w.armed = w.confirmed }

// observe takes the rows of a read in: the lowest that is not parked, -1 for
// none, and the highest of all.
func (w *lowWater) observe(lowest, highest int64) {
	w.last = max(w.last, highest)
	w.seen = w.last + 1
	if lowest >= 0 {
		w.seen = lowest
	}
	w.from = max(w.from, min(w.armed, w.seen))
}

// lower makes the next read start at seq or before.
func (w *lowWater) lower(seq int64) {
	for _, field := range []*int64{&w.from, &w.seen, &w.candidate, &w.confirmed, &w.armed} {
		*field = min(*field, seq)
	}
}

// nominate notes how far each shard's mark may rise, and reports whether that is
// further than now.
func (b *board) nominate() (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		s.mark.candidate = s.mark.seen
		news = news || s.mark.candidate > s.mark.from
	}
	return news
}

func (b *board) confirm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		s.mark.confirmed = s.mark.candidate
	}
}

// resetMarks makes all reads start from the beginning again: after an error the
// database may be another one, restored to an earlier time (B2).
func (b *board) resetMarks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.shards {
		s.mark = newLowWater()
	}
}

// raiseEvery is how often marks rise: reads wade through what was published in
// about twice this time.
const raiseEvery = 150 * time.Millisecond

// raiseLoop raises the low-water marks.
func (r *Relay) raiseLoop(ctx context.Context) {
	var holders map[string]struct{} // of the lock, when candidates were noted; nil: none are noted
	for pause(ctx, raiseEvery, nil) {
		if holders == nil && !r.board.nominate() {
			continue
		}
		now, err := r.lockHolders(ctx)
		r.stats.raises.Add(1)
		switch {
		case err != nil:
			holders = nil
		case holders == nil:
			holders = now
		default:
			if left := both(holders, now); len(left) > 0 {
				holders = left
				continue
			}
			r.board.confirm()
			holders = nil
		}
	}
}

// lockHolders lists the transactions that may have a place in the order and are
// not committed yet.
func (r *Relay) lockHolders(ctx context.Context) (map[string]struct{}, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.share(), errDatabaseSlow)
	defer cancel()
	rows, err := r.cfg.Pool.Query(ctx, holdersSQL)
	if err != nil {
		return nil, fmt.Errorf("list writers of the outbox: %w", err)
	}
	holders := make(map[string]struct{})
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name}, func() error {
		holders[name] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list writers of the outbox: %w", err)
	}
	return holders, nil
}

func both(a, b map[string]struct{}) map[string]struct{} {
	common := make(map[string]struct{})
	for k := range a {
		if _, ok := b[k]; ok {
			common[k] = struct{}{}
		}
	}
	return common
}
