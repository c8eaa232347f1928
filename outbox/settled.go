package outbox

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// settled is what a cycle found out about its rows and has to write down, under
// the leases it had.
type settled struct {
	leases leases
	rows   []rowID // published
	parked []rowID
	reason []string
}

// rowID names a row. A database that lost commits gives sequence numbers out again:
// with the message's id, a mark that is tried again never meets another row (G5).
type rowID struct {
	shard int16
	seq   int64
	id    uuid.UUID
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

func (s *settled) published(sh *shard, r *row) {
	s.hold(sh)
	s.rows = append(s.rows, rowID{sh.id, r.seq, r.id})
}

func (s *settled) park(sh *shard, r *row, reason string) {
	s.hold(sh)
	s.parked = append(s.parked, rowID{sh.id, r.seq, r.id})
	s.reason = append(s.reason, reason)
}

// queue adds the statements to a batch; marked becomes how many rows went.
func (s *settled) queue(b *pgx.Batch, owner string, marked *int64) {
	if len(s.rows) > 0 {
		shards, seqs, ids := columns(s.rows)
		b.Queue(markSQL, owner, s.leases.shards, s.leases.epochs, shards, seqs, ids).
			Exec(func(tag commandTag) error {
				*marked = tag.RowsAffected()
				return nil
			})
	}
	if len(s.parked) > 0 {
		shards, seqs, ids := columns(s.parked)
		b.Queue(parkSQL, owner, s.leases.shards, s.leases.epochs, shards, seqs, ids, s.reason).
			Exec(func(commandTag) error { return nil })
	}
}

func columns(rows []rowID) (shards []int16, seqs []int64, ids pgtype.FlatArray[pgtype.UUID]) {
	shards, seqs, ids = make([]int16, len(rows)), make([]int64, len(rows)), make(pgtype.FlatArray[pgtype.UUID], len(rows))
	for i, r := range rows {
		shards[i], seqs[i], ids[i] = r.shard, r.seq, pgtype.UUID{Bytes: r.id, Valid: true}
	}
	return shards, seqs, ids
}
