package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// far is the end of a payment that has none.
var far = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// obligation is what is paid, within its namespace.
type obligation struct{ namespace, name string }

// obligations: while one key of an order is unresolved no other one reaches the
// channel, and a paid order is paid again only by a command that was made
// knowing it (G15).
func (j *judge) obligations() {
	groups := map[obligation][]*dossier{}
	var names []obligation
	for _, d := range j.archive.dossiers {
		if d.first().decoded.Err != nil {
			continue
		}
		o := obligation{cmp.Or(j.rules.Namespaces[d.identity.Caller], d.identity.Caller), d.command().ObligationOrDefault()}
		if len(groups[o]) == 0 {
			names = append(names, o)
		}
		groups[o] = append(groups[o], d)
	}
	for _, o := range names {
		if len(groups[o]) > 1 {
			j.check("G15")
			j.obligation(o, groups[o])
		}
	}
}

func (j *judge) obligation(o obligation, group []*dossier) {
	var asked []*dossier
	for _, d := range group {
		if d.charge != nil && d.charge.Requests > 0 {
			asked = append(asked, d)
		}
		j.blocked(d, group)
	}
	slices.SortFunc(asked, func(a, b *dossier) int { return a.charge.FirstAt.Compare(b.charge.FirstAt) })
	var paid *dossier
	until, by := time.Time{}, ""
	for _, d := range asked {
		if d.charge.FirstAt.Before(until) {
			j.brokenf("G15", d.key(), "the channel was asked while %s of the same order %s was unresolved", by, o.name)
		}
		if paid != nil && !madeAfter(d.command(), paid) {
			j.brokenf("G15", d.key(), "charged though %s had paid the order %s", paid.key(), o.name)
		}
		end := far
		if d.outcome != nil {
			end = d.outcome.OccurredAt
			if d.outcome.State == payment.Succeeded {
				paid = d
			}
		}
		if end.After(until) {
			until, by = end, d.key()
		}
	}
}

// madeAfter reports whether the command was made knowing that the payment had
// succeeded: it names it, or was issued later.
func madeAfter(c *payment.Command, paid *dossier) bool {
	return c.Follows != nil && *c.Follows == paid.id || c.IssuedAt.After(paid.outcome.OccurredAt.Add(payment.SuccessTolerance))
}

// blocked: a second key's rejection names the payment that stands in its way.
func (j *judge) blocked(d *dossier, group []*dossier) {
	code := d.rejectedAs()
	if code != payment.CodePriorAttemptUnresolved && code != payment.CodeObligationAlreadyPaid {
		return
	}
	for _, r := range d.replies {
		if r.Kind != payment.ReplyRejected {
			continue
		}
		known := r.BlockedBy != nil && slices.ContainsFunc(group, func(other *dossier) bool { return other != d && other.id == *r.BlockedBy })
		if !known {
			j.brokenf("G15", d.key(), "rejected as %s, and blockedBy names no other payment of the order", code)
			return
		}
	}
}

// shared counts the keys that several callers use: each has a payment of its own
// (G12); what is checked of every payment is checked of each of them.
func (j *judge) shared() {
	callers := map[uuid.UUID]int{}
	for _, d := range j.archive.dossiers {
		if callers[d.identity.Key]++; callers[d.identity.Key] > 1 {
			j.check("G12")
		}
	}
}

// fulfilled: every payment of the script is there, and ended as its story says.
func (j *judge) fulfilled() {
	for i := range j.rules.Expected {
		x := &j.rules.Expected[i]
		if x.Ends.Never {
			j.never(x)
			continue
		}
		d, ok := j.archive.byID[x.ID]
		if !ok {
			j.brokenf("G5", x.Key, "the command was acknowledged by Kafka, and is not in the topic (%s)", x.Story)
			continue
		}
		if len(x.Ends.States) == 0 {
			continue // only what is checked of every payment
		}
		if x.Ends.Guarantee == "G14" {
			j.check("G14")
		}
		j.ending(d, x)
	}
}

// ending: a payment ended as is known of it.
func (j *judge) ending(d *dossier, x *Expectation) {
	state := d.state()
	switch {
	case !state.Terminal() && state != payment.Review:
		// told by ended
	case state == payment.Review && (j.rules.AnyReview || d.charge != nil) && d.settled() <= 1:
		// always allowed: a person is told, nothing is guessed; counted apart
	case j.rules.AnyReview && slices.Contains(x.Ends.States, payment.Review):
		// where lookups are not what tells the outcome, sending again may; evidence decides
	case !slices.Contains(x.Ends.States, state):
		j.brokenf(x.Ends.Guarantee, x.Key, "ended %s (%s), which its story does not allow: %s", state, cmp.Or(string(d.rejectedAs()), "no code"), x.Story)
	case state == payment.Rejected && !slices.Contains(x.Ends.Codes, d.rejectedAs()):
		j.brokenf(x.Ends.Guarantee, x.Key, "rejected as %s, which its story does not allow: %s", d.rejectedAs(), x.Story)
	}
}

// never: what was written in an aborted transaction leaves no trace (G16).
func (j *judge) never(x *Expectation) {
	j.check("G16")
	if _, ok := j.archive.byID[x.ID]; ok {
		j.brokenf("G16", x.Key, "a command of an aborted transaction is read as if it were committed")
	}
	for _, id := range []uuid.UUID{x.ID, x.ProviderKey} {
		if what, ok := j.archive.unowned[id]; ok {
			j.brokenf("G16", x.Key, "a command of an aborted transaction led to %s", what)
		}
	}
}

// budget: queries stay under the retry budget of the channel (G13): a share of
// the submits, a floor, and a second's burst. A submit counts for up to a window
// and a half, as it leaves the window gradually.
func (j *judge) budget() {
	if j.rules.Within == 0 {
		return
	}
	queries, submits := j.queries, 0
	for _, d := range j.archive.dossiers {
		if d.charge != nil {
			submits += d.charge.Requests
		}
	}
	j.checked["G13"] = queries
	if allowed := j.allowedQueries(submits); queries > allowed {
		j.brokenf("G13", "", "%d queries, and the budget allows %d", queries, allowed)
	}
}

func (j *judge) allowedQueries(submits int) int {
	const window, spread = 10, 1.5
	share := j.rules.Share * float64(submits)
	return int(spread*share + j.rules.Floor*(j.rules.Within.Seconds()+1) + share/window)
}
