package check

import (
	"fmt"
	"time"
)

const (
	// budgetWindow is the time over which submits count as recent.
	budgetWindow = 10
	// windowSpread: a submit leaves the window gradually, so it counts for up to a
	// window and a half.
	windowSpread = 1.5
	// bucket is the seconds of refill that may be saved up, reported by how much submits
	// are counted later than they arrive, and held by how much queries may arrive later
	// than they were paid for: what a frozen worker or a silent network holds was paid for
	// in the seconds before, from a bucket that all share.
	bucket, reported, held = 1, 5, 3
)

// stretches are the seconds in which arrivals are counted together: a short one shows
// that all came at once, a long one that there is no end to it. The bound holds for
// any: what arrives in so many seconds was paid for in those and the ones held before,
// and the bucket was full at most.
var stretches = []int64{3, 10}

// budgets: queries stay under the retry budget of each channel (G13), in all and in
// every stretch of a few seconds, within its limit of requests, and few come while it
// turns all of them away.
func (j *judge) budgets() {
	for i := range j.evidence.Ledgers {
		l := &j.evidence.Ledgers[i]
		j.checked["G13"] += l.Queries
		what := "the query budget of the channel " + l.Channel
		switch {
		case j.rules.Floor == 0:
			j.unseen("G13", what, "the budget is not known here")
		case l.Load.Since.IsZero():
			j.unseen("G13", what, "the channel does not tell since when it counts queries")
		default:
			j.inAll(l)
			j.peaks(l)
			j.dark(l)
		}
	}
}

// inAll: a share of the submits, and so many per second since the channel counts.
func (j *judge) inAll(l *Ledger) {
	submits := 0
	for i := range l.Charges {
		submits += l.Charges[i].Requests
	}
	share := j.rules.Share * float64(submits)
	within := l.At.Sub(l.Load.Since).Seconds() + 1
	if allowed := int(windowSpread*share + j.rules.Floor*within + share/budgetWindow); l.Queries > allowed {
		j.brokenf("G13", "", "%d queries at the channel %s, and the budget allows %d", l.Queries, l.Channel, allowed)
	}
}

// peaks looks at every stretch, also in the minute after an outage.
func (j *judge) peaks(l *Ledger) {
	if len(l.Load.Seconds) == 0 {
		return
	}
	m := metered(l)
	if since := l.Load.Since.Unix(); m.from-since > 1 && l.At.Sub(l.Load.Since) > time.Hour {
		j.unseen("G13", "the peaks of queries at the channel "+l.Channel, fmt.Sprintf("the channel remembers them since %s only", clockOf(m.from)))
	}
	for _, length := range stretches {
		j.peaksOf(l, m, length)
		j.together(l, m, length)
	}
}

func (j *judge) peaksOf(l *Ledger, m *meter, length int64) {
	for at := l.firstKnown(m.from); at <= m.to; at++ {
		end := min(at+length, m.to+1)
		got, allowed := m.queriesIn(at, end), int(j.rateIn(l, m, at, end)*float64(length+bucket+held))
		if got > allowed {
			j.brokenf("G13", "", "%d queries at the channel %s within %d s from %s, and the budget allows %d", got, l.Channel, length, clockOf(at), allowed)
			return
		}
	}
}

// rateIn is the most queries per second that the budget gave in a stretch: the floor, a
// share of what was submitted lately, and no more than the channel takes.
func (j *judge) rateIn(l *Ledger, m *meter, at, end int64) float64 {
	rate := j.rules.Floor
	for until := max(at-budgetWindow, m.from); until <= end; until++ {
		recent := m.submitsIn(until-2*budgetWindow-reported, until)
		rate = max(rate, j.rules.Floor+j.rules.Share*float64(recent)/budgetWindow)
	}
	if limit := j.rules.Limits[l.Channel]; limit > 0 {
		rate = min(rate, limit)
	}
	return rate
}

const (
	// saved is the seconds' worth of requests that the limit lets be taken beyond what
	// it refills: half a second of sends, and a second of queries that sends wait for
	// later.
	saved = 1.5
	// ahead is the seconds' worth that processes hold for their next sends, a quarter of
	// one each, rounded up; eight processes may.
	ahead, processes = 2, 8
)

// together: sends and queries together stay within the channel's limit of requests. All
// of them are taken from one row: over any time at most what is refilled and saved.
// What arrives in a stretch was taken in it, in the seconds held before, or is what
// processes had taken ahead.
func (j *judge) together(l *Ledger, m *meter, length int64) {
	limit := j.rules.Limits[l.Channel]
	if limit <= 0 {
		return
	}
	allowed := int(limit*(float64(length+bucket+held)+saved+ahead)) + processes
	for at := m.from; at <= m.to; at++ {
		end := min(at+length, m.to+1)
		if got := m.queriesIn(at, end) + m.submitsIn(at, end); got > allowed {
			j.brokenf("G13", "", "%d requests at the channel %s within %d s from %s, and its limit allows %d", got, l.Channel, length, clockOf(at), allowed)
			return
		}
	}
}

// firstKnown is the first second whose submits before it are known: after a
// restart of the channel they are not for a while.
func (l *Ledger) firstKnown(from int64) int64 {
	for i := range l.Charges {
		if l.Charges[i].FirstAt.Before(l.Load.Since) {
			return max(from, l.Load.Since.Unix()+3*budgetWindow)
		}
	}
	return from
}

func clockOf(second int64) string { return time.Unix(second, 0).UTC().Format(time.TimeOnly) }

// meter adds up what arrived at a channel.
type meter struct {
	from, to         int64 // the first and the last second
	submits, queries []int // sums up to a second
}

func metered(l *Ledger) *meter {
	m := &meter{from: l.Load.Seconds[0].At, to: l.Load.Seconds[len(l.Load.Seconds)-1].At}
	m.submits, m.queries = make([]int, m.to-m.from+2), make([]int, m.to-m.from+2)
	for _, s := range l.Load.Seconds {
		m.submits[s.At-m.from+1], m.queries[s.At-m.from+1] = s.Submits, s.Queries
	}
	for i := 1; i < len(m.submits); i++ {
		m.submits[i] += m.submits[i-1]
		m.queries[i] += m.queries[i-1]
	}
	return m
}

// submitsIn and queriesIn count from a second up to before another.
func (m *meter) submitsIn(at, end int64) int { return m.submits[m.index(end)] - m.submits[m.index(at)] }

func (m *meter) queriesIn(at, end int64) int { return m.queries[m.index(end)] - m.queries[m.index(at)] }

func (m *meter) index(second int64) int64 { return min(max(second, m.from), m.to+1) - m.from }
