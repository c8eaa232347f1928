package producer

import (
	"slices"
	"time"
)

const (
	// deferTime is how long a row that Kafka did not confirm waits for its next try.
	deferTime = 5 * time.Second
	// deferMost bounds the memory for such rows, and the statement that names them.
	deferMost = 20_000
)

// deferral remembers the rows that Kafka did not confirm. Without it those of one
// unavailable partition would fill every batch, and hold up all the others.
// Rounds take turns between the rows that are new and those that are due again,
// so neither kind can starve the other. Losing it (a restart) costs time only.
type deferral struct {
	due   map[int64]time.Time
	retry bool
}

func newDeferral() *deferral { return &deferral{due: make(map[int64]time.Time)} }

// again returns at most limit rows to try again in this round, and forgets them;
// none when it is the turn of the new ones.
func (d *deferral) again(now time.Time, limit int) []int64 {
	d.retry = !d.retry
	if !d.retry {
		return nil
	}
	var seqs []int64
	for seq, due := range d.due {
		if !now.Before(due) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	seqs = seqs[:min(len(seqs), limit)]
	for _, seq := range seqs {
		delete(d.due, seq)
	}
	return seqs
}

// waiting returns all rows that are not new; never nil, which would be NULL in a
// statement.
func (d *deferral) waiting() []int64 {
	seqs := make([]int64, 0, len(d.due))
	for seq := range d.due {
		seqs = append(seqs, seq)
	}
	return seqs
}

func (d *deferral) add(now time.Time, seqs []int64) {
	for _, seq := range seqs {
		if len(d.due) >= deferMost {
			return
		}
		d.due[seq] = now.Add(deferTime)
	}
}
