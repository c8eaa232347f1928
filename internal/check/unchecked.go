package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// unseen notes what was not looked at, so that nobody takes it for what holds.
func (j *judge) unseen(guarantee, what, why string) {
	j.unchecked = append(j.unchecked, Unchecked{Guarantee: guarantee, What: what, Why: why})
}

// blind reports whether the ledger of a payment's channel cannot be seen.
func (j *judge) blind(d *dossier) bool {
	if d.asked == nil || d.charge != nil {
		return false
	}
	_, blind := j.rules.Blind[d.asked.channel]
	return blind
}

// limits says what the verdict does not rest on.
func (j *judge) limits() {
	hidden := map[string]int{}
	for _, d := range j.evidence.dossiers {
		if j.blind(d) {
			hidden[d.asked.channel]++
		}
	}
	for _, channel := range slices.Sorted(maps.Keys(j.rules.Blind)) {
		for _, guarantee := range []string{"G1", "G3", "G4"} {
			j.unseen(guarantee, fmt.Sprintf("%d payments of the channel %s against its ledger", hidden[channel], channel), j.rules.Blind[channel])
		}
		j.unseen("G13", "the query budget of the channel "+channel, j.rules.Blind[channel])
	}
	for _, channel := range slices.Sorted(maps.Keys(j.rules.Prompted)) {
		j.unseen("G13", "whether the channel "+channel+" was asked before a re-query was due", j.rules.Prompted[channel])
	}
	if j.rules.Database == nil {
		j.unseen("G7", "the tables", "no database was read")
	}
	for _, h := range guarantees {
		broken := slices.ContainsFunc(j.violations, func(v Violation) bool { return v.Guarantee == h.Guarantee })
		said := slices.ContainsFunc(j.unchecked, func(u Unchecked) bool { return u.Guarantee == h.Guarantee })
		if j.checked[h.Guarantee] == 0 && !broken && !said {
			j.unseen(h.Guarantee, h.Of, cmp.Or(hardToSee[h.Guarantee], "none of them was there"))
		}
	}
}

// hardToSee says why some are never there unless whoever published them tells.
var hardToSee = map[string]string{
	"G14": "none of them was charged, and what became of the others only their publisher can say",
	"G16": "only their publisher knows what was aborted",
}
