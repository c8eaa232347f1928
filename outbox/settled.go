package outbox

import (
	"slices"

	"github.com/jackc/pgx/v5"
)

// settled is what a cycle found out about its rows and has to write down, under
// the leases it had.
type settled struct {
	leases leases
	rows   []rowID // published
	parked []rowID
	reason []string
}

type rowID struct {
	shard int16
	seq   int64
}

func (s *settled) reset() {
	s.leases = leases{}
	s.rows, s.parked, s.reason = s.rows[:0], s.parked[:0], s.reason[:0]
}

func (s *settled) hold(sh *shard) {
	if n := len(s.leases.shards); n == 0 || s.leases.shards[n-1] != sh.id {
		s.leases.add(sh)
	}
}

func (s *settled) published(sh *shard, seq int64) {
	s.hold(sh)
	s.rows = append(s.rows, rowID{sh.id, seq})
}

func (s *settled) park(sh *shard, seq int64, reason string) {
	s.hold(sh)
	s.parked = append(s.parked, rowID{sh.id, seq})
	s.reason = append(s.reason, reason)
}

// queue adds the statements to a batch; marked becomes how many rows went.
func (s *settled) queue(b *pgx.Batch, owner string, marked *int64) {
	if len(s.rows) > 0 {
		shards, seqs := columns(s.rows)
		b.Queue(markSQL, owner, s.leases.shards, s.leases.epochs, shards, seqs).
			Exec(func(tag commandTag) error {
				*marked = tag.RowsAffected()
				return nil
			})
	}
	if len(s.parked) > 0 {
		shards, seqs := columns(s.parked)
		b.Queue(parkSQL, owner, s.leases.shards, s.leases.epochs, shards, seqs, s.reason).
			Exec(func(commandTag) error { return nil })
	}
}

func columns(ids []rowID) (shards []int16, seqs []int64) {
	shards, seqs = make([]int16, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		shards[i], seqs[i] = id.shard, id.seq
	}
	return shards, seqs
}

func without(list, drop []*shard) []*shard {
	return slices.DeleteFunc(slices.Clone(list), func(s *shard) bool { return slices.Contains(drop, s) })
}

func union(a, b []*shard) []*shard {
	return append(without(a, b), b...)
}
