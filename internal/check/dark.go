package check

// What the breaker allows while a channel turns everything away.
const (
	// untilOpen is how many calls must fail in a row before it opens.
	untilOpen = 10
	// longestPause is the longest one between two tries, in seconds; the first is one
	// second, and each is twice as long as the one before.
	longestPause = 30
	// echoes are the seconds in which answers that the channel gave before may still
	// come, and close the breaker again: one, in which the first second may be a bright
	// one yet, and three for slow answers.
	echoes = 4
)

// dark: a channel that turns every request away is asked less and less (G13). The
// breaker opens after a few failures; after each pause, of 1, 2, 4 ... seconds, queries
// go out only until one is known to have failed. Each time that is at most what the
// bucket holds and what is refilled while the failure is reported, a second's worth
// each. What was paid for before may arrive late once more.
func (j *judge) dark(l *Ledger) {
	if len(l.Load.Seconds) == 0 {
		return
	}
	m := metered(l)
	from, last, behind := int64(0), int64(0), 0
	for i, s := range l.Load.Seconds {
		// What came in at the end of a second is turned away in the next, before what
		// comes in there: a channel that refuses a part of them is not dark.
		behind = max(behind+s.Submits+s.Queries-s.Refused, 0)
		next := 0
		if i+1 < len(l.Load.Seconds) && l.Load.Seconds[i+1].At == s.At+1 {
			next = l.Load.Seconds[i+1].Refused
		}
		switch {
		case behind > next:
			j.darkFrom(l, m, from, last)
			from, behind = 0, 0
			continue
		case from == 0:
			from, behind = s.At, 0 // the rest of the first one may have been answered
		}
		last = s.At
	}
	j.darkFrom(l, m, from, last)
}

// darkFrom judges one stretch, from its first second to its last; 0 for none.
func (j *judge) darkFrom(l *Ledger, m *meter, from, last int64) {
	begin := from + echoes
	if from == 0 || last < begin {
		return
	}
	rate := max(j.rateIn(l, m, from, last+1), 1)
	allowed := int(rate*float64((bucket+1)*openings(last+1-begin)+held)) + untilOpen
	if got := m.queriesIn(begin, last+1); got > allowed {
		j.brokenf("G13", "", "%d queries at the channel %s in the %d s from %s, in which it turned everything away, and its breaker allows %d",
			got, l.Channel, last+1-begin, clockOf(begin), allowed)
	}
}

// openings is how often a breaker lets something through within so many seconds, if
// each time it fails at once.
func openings(seconds int64) (n int) {
	for at, pause := int64(0), int64(1); at < seconds; at, pause = at+pause, min(2*pause, longestPause) {
		n++
	}
	return n
}
