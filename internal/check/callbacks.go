package check

import "slices"

// evidenceResult is what a callback came to that was evidence by itself.
const evidenceResult = "evidence"

// beside are the kinds of callbacks that tell no outcome, and harmless what such a one may
// come to: it is written down, or makes us ask.
var (
	beside   = []string{"refunded", "disputed", "other"}
	harmless = []string{"", "recorded", "asked", "waits", "failed"}
)

// callbacks: a forged or stale one is never taken (P21), and where the channel can
// be asked none decides (G3). One about a refund says nothing about the payment (G9).
func (j *judge) callbacks() {
	for i := range j.evidence.Ledgers {
		l := &j.evidence.Ledgers[i]
		if l.Callbacks.Sent == 0 {
			continue
		}
		j.check("G3")
		if n := l.Callbacks.ForgedAcknowledged; n > 0 {
			j.brokenf("G3", "", "%d forged, stale or unreadable callbacks of the channel %s were taken", n, l.Channel)
		}
	}
	if j.rules.Database == nil {
		return
	}
	if len(j.rules.Lookups) == 0 && len(j.rules.Database.Callbacks) > 0 {
		j.unseen("G3", "whether a callback decided where the channel can be asked", lookupsUnknown)
	}
	for i := range j.rules.Database.Callbacks {
		c := &j.rules.Database.Callbacks[i]
		if slices.Contains(beside, c.Kind) {
			j.check("G9")
			if !slices.Contains(harmless, c.Result) {
				j.brokenf("G9", j.keyOf(c), "a callback of the kind %s was taken for an outcome: %s", c.Kind, c.Result)
			}
		}
		if !slices.Contains(j.rules.Lookups, c.Channel) {
			continue
		}
		j.check("G3")
		if c.Result == evidenceResult {
			j.brokenf("G3", j.keyOf(c), "a callback decided, and the channel %s can be asked", c.Channel)
		}
	}
}

// keyOf is the key of a callback's payment, empty for one that no command asked for.
func (j *judge) keyOf(c *CallbackRow) string {
	if d, ok := j.evidence.known(c.Payment); ok {
		return d.key()
	}
	return ""
}
