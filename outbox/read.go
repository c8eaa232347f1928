package outbox

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/internal/kafka"
)

type commandTag = pgconn.CommandTag

// row is an outbox row on its way.
type row struct {
	seq     int64
	id      uuid.UUID
	topic   string
	key     []byte
	kind    string
	payload []byte
	headers []byte
	created time.Time
}

// pick is what one cycle publishes of one shard: the first waiting row of every
// topic and key, so that no later one is under way before it is marked (model:
// EAGER; G10).
type pick struct {
	shard  *shard
	rows   []row
	keys   map[string]struct{}
	behind bool // more rows are waiting

	read            int       // rows that the statement returned
	seen            int       // rows that the statement looked at, where it says so
	at              time.Time // when they were read, by the database's clock
	lowest, highest int64
	cut             bool // the cycle's memory was used up before the shard's rows
	repaired        bool // a row that was parked is not any more
}

func newPick(s *shard) *pick {
	return &pick{shard: s, keys: make(map[string]struct{}), lowest: -1, highest: math.MinInt64}
}

// roundTrip writes the open marks and reads the next rows of work.
func (l *lane) roundTrip(ctx context.Context, work []*shard) (picked []*pick, marked int64, err error) {
	r := &reader{lane: l, byID: make(map[int16]*pick, len(work))}
	for _, s := range work {
		p := newPick(s)
		r.byID[s.id] = p
		picked = append(picked, p)
	}
	read, args, sort := l.relay.board.statement(l.relay.owner, work)
	b := &pgx.Batch{}
	b.Queue(planSQL, sort).Exec(func(commandTag) error { return nil })
	l.open.queue(b, l.relay.owner, &marked)
	if len(work) > 0 {
		b.Queue(read, args...).Query(r.collect)
	}
	if err := l.relay.cfg.Pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, 0, fmt.Errorf("mark %d rows and read %d shards: %w", len(l.open.rows), len(work), err)
	}
	l.relay.board.adapt(picked)
	if slices.ContainsFunc(picked, func(p *pick) bool { return p.repaired }) {
		clear(l.missing)
	}
	return picked, marked, nil
}

// statement is the read of shards that a lane holds. Marks are read under the lock:
// another lane's error may reset them meanwhile.
func (b *board) statement(owner string, work []*shard) (sql string, args []any, sort string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return readStatement(owner, work)
}

// readStatement chooses between reading and looking further, and fills it in.
func readStatement(owner string, work []*shard) (sql string, args []any, sort string) {
	n := len(work)
	ids, epochs := make([]int16, n), make([]int64, n)
	low, limit, wide := make([]int64, n), make([]int64, n), make([]int64, n)
	sql, sort = readSQL, "off"
	for i, s := range work {
		ids[i], epochs[i], low[i] = s.id, s.epoch, s.mark.from
		limit[i], wide[i] = int64(s.rowsLimit), int64(s.rowsLimit)
		if s.looksWide() {
			wide[i] = int64(max(s.wide, s.rowsLimit))
		}
		if s.looksWide() {
			sql, sort = readWideSQL, "on"
		}
	}
	return sql, []any{owner, ids, epochs, low, limit, wide}, sort
}

// reader takes the rows of one statement in.
type reader struct {
	lane  *lane
	byID  map[int16]*pick
	bytes int
}

func (r *reader) collect(rows pgx.Rows) error {
	var (
		id          int16
		seen        int64
		parked      bool
		topic, kind pgtype.DriverBytes
		at          time.Time
	)
	for rows.Next() {
		var w row
		err := rows.Scan(&id, &w.seq, &parked, (*[16]byte)(&w.id), &topic, &w.key, &kind, &w.payload, &w.headers, &w.created, &at, &seen)
		if err != nil {
			return fmt.Errorf("read outbox row: %w", err)
		}
		if p := r.byID[id]; p != nil && !p.overBudget(r.bytes) {
			w.topic, w.kind = r.lane.names.of(topic), r.lane.names.of(kind)
			p.seen, p.at = int(seen), at
			r.bytes += p.take(w, parked)
		}
	}
	return rows.Err()
}

// overBudget leaves the rest of the statement's rows for later cycles.
func (p *pick) overBudget(bytes int) bool {
	if bytes < maxCycleBytes {
		return false
	}
	p.cut, p.behind = true, true
	return true
}

// take decides about one row, in the order of the sequence, and returns what it
// keeps in memory.
func (p *pick) take(w row, parked bool) (bytes int) {
	p.read++
	p.highest = max(p.highest, w.seq)
	key := w.order()
	if parked {
		if w.key != nil {
			p.shard.block(key, w.seq)
		}
		return 0
	}
	if p.lowest < 0 {
		p.lowest = w.seq
	}
	if w.ordered() {
		if _, again := p.keys[key]; again || p.shard.behindParked(key, w.seq) {
			p.behind = p.behind || again
			return 0
		}
		p.keys[key] = struct{}{}
		p.repaired = p.repaired || p.shard.blocked[key] == w.seq
	}
	p.rows = append(p.rows, w)
	return len(w.payload) + len(w.key) + len(w.headers)
}

// order is what rows must share to be in order with each other.
func (w *row) order() string { return w.topic + "\x00" + string(w.key) }

// deadLetterType marks messages that keep their key and are in no order with each
// other: each is of a record of its own. A flood of bad records under one key
// would otherwise leave one by one, and take hours.
const deadLetterType = "payment.deadletter"

// ordered reports whether the row waits for earlier ones of its topic and key.
func (w *row) ordered() bool { return w.key != nil && w.kind != deadLetterType }

// adapt makes the next read of the shard start, and reach, as this one suggests.
func (p *pick) adapt() {
	s, limit := p.shard, p.shard.rowsLimit
	if p.cut {
		s.rowsLimit = max(limit/2, 1)
		return
	}
	s.mark.observe(p.lowest, p.highest)
	full, window := p.read >= limit, max(s.wide, limit)
	s.rests = max(s.rests-1, 0)
	looked := max(p.read, p.seen)
	p.behind = p.behind || full || looked > p.read
	switch crowded := looked >= window && len(p.rows) < limit/4; {
	case crowded:
		s.wide = min(4*window, maxWide)
		s.rests = min(looked/limit, maxRests)
	case looked < limit:
		s.wide = 0
	}
	base := s.baseLimit
	switch {
	case full && len(p.rows) >= limit/2:
		s.rowsLimit = min(2*limit, 4*base)
	case p.read < limit/2:
		s.rowsLimit = max(limit/2, base)
	case limit < base:
		s.rowsLimit = min(2*limit, base)
	}
}

// maxWide bounds how many rows are looked at to find other keys than one that
// fills the shard.
const maxWide = 1 << 17

// maxRests bounds how many reads follow on a wide one that found little before
// the next: looking at all of a backlog for one message at a time would make it
// last.
const maxRests = 16

// looksWide reports whether the next read looks further than it reads.
func (s *shard) looksWide() bool { return s.wide > 0 && s.rests == 0 }

// batches turns the picked rows into messages. Rows that cannot become one are
// parked at once.
func (l *lane) batches(picked []*pick) []kafka.FencedBatch {
	batches := make([]kafka.FencedBatch, len(picked))
	now := time.Now()
	for i, p := range picked {
		kept := p.rows[:0]
		messages := make([]kafka.Message, 0, len(p.rows))
		for _, w := range p.rows {
			m, err := l.message(&w, now)
			if err != nil {
				l.park(p.shard, &w, err)
				continue
			}
			m.Time = p.at // not by our clock: one that is hours ahead would have Kafka refuse everything
			kept, messages = append(kept, w), append(messages, m)
		}
		p.rows = kept
		batches[i] = kafka.FencedBatch{Producer: p.shard.producer, Messages: messages}
	}
	return batches
}

func (l *lane) message(w *row, now time.Time) (kafka.Message, error) {
	if until, ok := l.missing[w.topic]; ok {
		if now.Before(until) {
			return kafka.Message{}, kafka.ErrUnknownTopic
		}
		delete(l.missing, w.topic)
	}
	headers, err := w.recordHeaders(l.relay.source)
	return kafka.Message{Topic: w.topic, Key: w.key, Value: w.payload, Headers: headers}, err
}
