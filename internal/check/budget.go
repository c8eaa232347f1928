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
	// peak is the stretch of seconds in which queries are counted together, reported
	// by how much submits are counted later than they arrive, and held by how much
	// queries may arrive later than they were paid for.
	peak, reported, held = 10, 5, 3
)

// budgets: queries stay under the retry budget of each channel (G13), in all and
// in every stretch of ten seconds.
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

// peaks looks at every stretch of ten seconds, also in the minute after an outage.
func (j *judge) peaks(l *Ledger) {
	if len(l.Load.Seconds) == 0 {
		return
	}
	from, to := l.Load.Seconds[0].At, l.Load.Seconds[len(l.Load.Seconds)-1].At
	if since := l.Load.Since.Unix(); from-since > 1 && l.At.Sub(l.Load.Since) > time.Hour {
		j.unseen("G13", "the peaks of queries at the channel "+l.Channel, fmt.Sprintf("the channel remembers them since %s only", time.Unix(from, 0).UTC().Format(time.TimeOnly)))
	}
	submits, queries := make([]int, to-from+2), make([]int, to-from+2) // sums up to a second
	for _, s := range l.Load.Seconds {
		submits[s.At-from+1], queries[s.At-from+1] = s.Submits, s.Queries
	}
	for i := 1; i < len(submits); i++ {
		submits[i] += submits[i-1]
		queries[i] += queries[i-1]
	}
	begin := l.firstKnown(from)
	for at := begin; at <= to; at++ {
		end := min(at+peak, to+1)
		got, rate := queries[end-from]-queries[at-from], j.rules.Floor
		for until := max(at-budgetWindow, from); until <= end; until++ {
			recent := submits[until-from] - submits[max(until-2*budgetWindow-reported, from)-from]
			rate = max(rate, j.rules.Floor+j.rules.Share*float64(recent)/budgetWindow)
		}
		if allowed := int(rate * (peak + 1 + held)); got > allowed {
			j.brokenf("G13", "", "%d queries at the channel %s within %d s from %s, and the budget allows %d",
				got, l.Channel, peak, time.Unix(at, 0).UTC().Format(time.TimeOnly), allowed)
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
