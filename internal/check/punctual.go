package check

import "time"

// clockSlack is by how much the clocks of broker and database may differ.
const clockSlack = 250 * time.Millisecond

// punctual: no re-query ran before its time (G13). The next re-query's message is
// written by the transaction that records the one before, so it cannot be older
// than that one's due time.
func (j *judge) punctual(d *dossier) {
	for i := range d.requeries {
		next := &d.requeries[i]
		if next.Query < 2 {
			continue
		}
		j.check("G13")
		known, early := false, true
		for k := range d.requeries {
			q := &d.requeries[k]
			if q.Attempt == next.Attempt && q.Query == next.Query-1 && !q.at.After(next.at.Add(clockSlack)) {
				known = true
				early = early && next.at.Add(clockSlack).Before(q.DueAt)
			}
		}
		if known && early {
			j.brokenf("G13", d.key(), "re-query %d ran before its time", next.Query-1)
		}
	}
}
