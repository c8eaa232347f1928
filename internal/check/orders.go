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
	for _, d := range j.evidence.dossiers {
		if d.asked == nil {
			continue
		}
		o := obligation{cmp.Or(j.rules.Namespaces[d.identity.Caller], d.identity.Caller), d.asked.obligation}
		if len(groups[o]) == 0 {
			names = append(names, o)
		}
		groups[o] = append(groups[o], d)
	}
	for _, o := range names {
		group := groups[o]
		j.charges(o, group)
		if len(group) > 1 {
			j.check("G15")
			j.oneAtATime(o, group)
			for _, d := range group {
				j.refused(o, d, group)
			}
		}
	}
}

// charges counts the payments of an obligation that the channels took money for:
// the later one must have been made knowing the one before.
func (j *judge) charges(o obligation, group []*dossier) {
	var charged []*dossier
	for _, d := range group {
		if d.paid() != nil {
			charged = append(charged, d)
		}
	}
	if len(charged) == 0 {
		return
	}
	j.obligationsPaid++
	if len(charged) > 1 {
		j.paidTwice++
	}
	slices.SortStableFunc(charged, func(a, b *dossier) int { return a.paidAt().Compare(b.paidAt()) })
	for i := 1; i < len(charged); i++ {
		if !j.madeAfter(o, charged[i], charged[i-1]) {
			j.brokenf("G15", charged[i].key(), "the channel took money for the order %s twice: %s had paid it, and this command was not made knowing that",
				o.name, charged[i-1].key())
		}
	}
}

// paidAt is when it counts as paid: by its event, else by the ledger.
func (d *dossier) paidAt() time.Time {
	if d.outcome != nil && d.outcome.state == payment.Succeeded {
		return d.outcome.occurredAt
	}
	if at := d.paid().SettledAt; at != nil {
		return *at
	}
	return d.paid().LastAt
}

// oneAtATime: no key is sent while another one of the order has no end, nor after
// a success that it was not made knowing.
func (j *judge) oneAtATime(o obligation, group []*dossier) {
	var asked []*dossier
	for _, d := range group {
		if d.requests() > 0 {
			asked = append(asked, d)
		}
	}
	slices.SortFunc(asked, func(a, b *dossier) int { return a.askedFirst().Compare(b.askedFirst()) })
	var paid *dossier
	until, by := time.Time{}, ""
	for _, d := range asked {
		if d.askedFirst().Before(until) {
			j.brokenf("G15", d.key(), "the channel was asked while %s of the same order %s was unresolved", by, o.name)
		}
		if paid != nil && !j.madeAfter(o, d, paid) {
			j.brokenf("G15", d.key(), "sent to the channel though %s had paid the order %s", paid.key(), o.name)
		}
		end := far
		if d.outcome != nil {
			end = d.outcome.occurredAt
			if d.outcome.state == payment.Succeeded {
				paid = d
			}
		}
		if end.After(until) {
			until, by = end, d.key()
		}
	}
}

// madeAfter reports whether the command was made knowing that the other payment
// had succeeded: it names it or, unless its namespace is repaid by name only, was
// issued later.
func (j *judge) madeAfter(o obligation, d, paid *dossier) bool {
	if d.asked.follows != nil && *d.asked.follows == paid.id {
		return true
	}
	return !slices.Contains(j.rules.RepayNamed, o.namespace) && d.asked.issuedAt.After(paid.paidAt().Add(payment.SuccessTolerance))
}

// commitLag is how long after the time that an outcome bears it may be committed:
// its worker may be frozen in between.
const commitLag = 15 * time.Second

// refused: the rejection of a second key names the payment that stands in its
// way, and that one did.
func (j *judge) refused(o obligation, d *dossier, group []*dossier) {
	r := d.rejection()
	if r == nil || r.code != payment.CodePriorAttemptUnresolved && r.code != payment.CodeObligationAlreadyPaid {
		return
	}
	if r.blockedBy != nil && j.imported[*r.blockedBy] {
		return // what is known of that one is not in the topics
	}
	i := slices.IndexFunc(group, func(other *dossier) bool { return other != d && r.blockedBy != nil && other.id == *r.blockedBy })
	if i < 0 {
		j.brokenf("G15", d.key(), "rejected as %s, and blockedBy names no other payment of the order", r.code)
		return
	}
	if by := group[i]; !by.had(payment.EventEvidenceConflict) && (by.outcome != nil || !j.running(by)) {
		j.inTheWay(o, d, by, r)
	} // else a conflict stands in the way of everything, or an event is on its way
}

// inTheWay judges the payment that a rejection names.
func (j *judge) inTheWay(o obligation, d, by *dossier, r *reply) {
	switch {
	case by.outcome == nil && by.state() == payment.Rejected: // never claimed
		j.brokenf("G15", d.key(), "rejected as %s, and blockedBy names %s, which was rejected itself", r.code, by.key())
	case r.code == payment.CodePriorAttemptUnresolved:
		lag := commitLag
		if j.rules.Running != nil {
			lag += j.rules.Skew // the clocks of callers
		}
		if by.outcome != nil && by.outcome.occurredAt.Add(lag).Before(d.first().at) {
			j.brokenf("G15", d.key(), "rejected as %s, and %s had ended before", r.code, by.key())
		}
	case by.outcome == nil || by.outcome.state != payment.Succeeded:
		j.brokenf("G15", d.key(), "rejected as %s, and %s did not succeed", r.code, by.key())
	case j.madeAfter(o, d, by):
		j.brokenf("G15", d.key(), "rejected as %s, and it was made knowing that %s had paid", r.code, by.key())
	}
}

// shared counts the keys that several callers use: each has a payment of its own
// (G12); what is checked of every payment is checked of each of them.
func (j *judge) shared() {
	callers := map[uuid.UUID]int{}
	for _, d := range j.evidence.dossiers {
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
		d, ok := j.evidence.known(x.ID)
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
		j.dropped(d, x)
	}
}

// ending: a payment ended as is known of it.
func (j *judge) ending(d *dossier, x *Expectation) {
	state := d.state()
	switch {
	case !state.Terminal() && state != payment.Review:
		// told by ended
	case state == payment.Review && (x.Ends.AnyReview || d.charge != nil) && d.settled() <= 1:
		// always allowed: a person is told, nothing is guessed; counted apart
	case x.Ends.AnyReview && slices.Contains(x.Ends.States, payment.Review):
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
	if _, ok := j.evidence.known(x.ID); ok {
		j.brokenf("G16", x.Key, "a command of an aborted transaction is read as if it were committed")
	}
	if d, ok := j.evidence.byID[x.ID]; ok && len(d.events) > 0 {
		j.brokenf("G16", x.Key, "a command of an aborted transaction led to an event")
	}
	for _, r := range j.evidence.open {
		if r.payment == x.ID {
			j.brokenf("G16", x.Key, "a command of an aborted transaction led to a reply")
		}
	}
	if j.evidence.foreign[x.ProviderKey] {
		j.brokenf("G16", x.Key, "a command of an aborted transaction led to a request at the channel")
	}
}
