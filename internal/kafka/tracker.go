package kafka

import "time"

// tracker knows which of a partition's handed-out records are finished, and so
// how far the offset may be committed: to the first one that is not (G5). It is
// not safe for concurrent use.
type tracker struct {
	entries []entry
	head    int   // entries[:head] are done with
	base    int64 // index of entries[head]

	unfinished int // handed out, not finished
	awaited    int // of these, the ones a drain waits for
	bytes      int // size of the unfinished
	done       int64
}

type entry struct {
	offset    int64
	time      time.Time // the record's
	handed    time.Time // when it was handed out
	bytes     int
	finished  bool
	abandoned bool
}

// newTracker starts with nothing finished.
func newTracker() tracker { return tracker{done: -1} }

// add hands a record out and returns its index; offsets must rise.
func (t *tracker) add(offset int64, at, now time.Time, bytes int) int64 {
	t.entries = append(t.entries, entry{offset: offset, time: at, handed: now, bytes: bytes})
	t.unfinished++
	t.awaited++
	t.bytes += bytes
	return t.base + int64(len(t.entries)-t.head) - 1
}

// finish marks a record finished; repeating it does nothing. It reports whether
// the committable offset moved.
func (t *tracker) finish(index int64) bool {
	e := t.at(index)
	if e == nil || e.finished {
		return false
	}
	e.finished = true
	t.unfinished--
	t.bytes -= e.bytes
	if !e.abandoned {
		t.awaited--
	}
	return t.advance()
}

// abandon says that nobody will finish the record; a drain does not wait for it.
func (t *tracker) abandon(index int64) {
	e := t.at(index)
	if e == nil || e.finished || e.abandoned {
		return
	}
	e.abandoned = true
	t.awaited--
}

func (t *tracker) at(index int64) *entry {
	i := index - t.base
	if i < 0 || i >= int64(len(t.entries)-t.head) {
		return nil
	}
	return &t.entries[t.head+int(i)]
}

func (t *tracker) advance() bool {
	moved := false
	for t.head < len(t.entries) && t.entries[t.head].finished {
		t.done = t.entries[t.head].offset + 1
		t.head++
		t.base++
		moved = true
	}
	t.compact()
	return moved
}

// compact gives the space of finished entries back, at a cost that is constant
// per entry.
func (t *tracker) compact() {
	switch {
	case t.head == len(t.entries):
		t.entries, t.head = t.entries[:0], 0
	case t.head > 512 && t.head > len(t.entries)/2:
		n := copy(t.entries, t.entries[t.head:])
		t.entries, t.head = t.entries[:n], 0
	}
}

// committable is the last contiguous finished offset + 1, -1 before the first.
func (t *tracker) committable() int64 { return t.done }

// span is how many records lie between the oldest unfinished and the newest
// handed out; it grows behind one that is stuck.
func (t *tracker) span() int { return len(t.entries) - t.head }

// oldest returns the oldest unfinished record, nil when there is none.
func (t *tracker) oldest() *entry {
	if t.head == len(t.entries) {
		return nil
	}
	return &t.entries[t.head]
}
