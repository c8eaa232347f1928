package settle

import (
	"time"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
)

// firstNotFound clears a payment that was claimed while commits may have been
// lost: a send that was forgotten with them would be visible by now. Where "not
// found" is no proof, the same provider key makes a repeat harmless, as long as
// the provider remembers it: since the intent at the latest, as far as we know.
func (r *Rules) firstNotFound(l store.Locked, q Check, caps channel.Capabilities) *store.Change {
	forgotten := r.forgotten(l)
	after := caps.DeclineQueryAfter(forgotten)
	switch {
	case channel.Never(after) || !caps.QueryCanSee(forgotten, q.Started) || !(caps.NotFoundIsProof || caps.IdempotentSubmit):
		return r.review(l, *l.Open, "commits may be lost, and the channel cannot show whether this was sent before", "not found")
	case !q.Started.After(after):
		return delayed(l, after.Sub(l.Now)+jitter(time.Second))
	}
	open := *l.Open
	open.QueryFirst = false
	open.Sends.LastDeadline = forgotten.LastDeadline // it was asked about: see askFirst
	if !caps.NotFoundIsProof {
		open.Sends.First = forgotten.First // the memory rule goes on from there (G1)
	}
	c := &store.Change{Open: released(open, l.Now), Cause: "commits may be lost: the provider does not know this payment"}
	c.Open.NextCheckAt = l.Now
	return c
}

// forgotten is what may have been sent under a claim that was lost: not before
// the intent, and not under a permit younger than the new claim.
func (r *Rules) forgotten(l store.Locked) channel.Sends {
	first := l.Payment.IssuedAt.Add(-r.Freshness.Skew)
	if l.Open.OpenedAt.Before(first) {
		first = l.Open.OpenedAt
	}
	return channel.Sends{Count: 1, First: first, LastDeadline: latest(l.Open.OpenedAt.Add(r.Lease), l.Open.Sends.LastDeadline)}
}

// mayBeForgotten reports whether sends of a lost claim may exist that no proof
// excluded: the first of them began before this claim.
func mayBeForgotten(open *store.Open) bool {
	return open.QueryFirst || (!open.Sends.First.IsZero() && open.Sends.First.Before(open.OpenedAt))
}

// sends are all permits of the attempt that may have been sent. Those of a lost
// claim count as two, since nobody knows how many there were: none of what is
// true of a single send is true of them.
func (r *Rules) sends(l store.Locked) channel.Sends {
	known := l.Open.Sends
	if l.Suspect && known.Count > 0 {
		known.Count++ // the permit of a further send may be lost (G3)
	}
	if !mayBeForgotten(l.Open) {
		return known
	}
	lost := r.forgotten(l)
	return channel.Sends{Count: known.Count + 2, First: lost.First, LastDeadline: latest(known.LastDeadline, lost.LastDeadline)}
}

// doubted are the sends as a decline must see them. A permit that a failover took
// away took its deadline along, which is now plus a lease at the latest (G3). Once a
// decline is stored there is none any more: whatever was permitted before it survived
// with it, and nothing was after.
func (r *Rules) doubted(l store.Locked) channel.Sends {
	sends := r.sends(l)
	if l.Suspect && l.Open.Sends.Count > 0 && !l.Open.NoMoreSends {
		sends.LastDeadline = latest(sends.LastDeadline, l.Now.Add(r.Lease))
	}
	return sends
}

// unasked reports whether a payment looks as if it was never sent in a database
// that may have lost commits, and its provider was not asked yet.
func unasked(l store.Locked) bool {
	return l.Suspect && l.Open.Sends.Count == 0 && l.Open.Sends.LastDeadline.IsZero()
}

// askFirst has the provider asked before a first send: a permit may have been
// lost as late as now, and its send be alive for as long as a lease.
func (r *Rules) askFirst(l store.Locked) *store.Change {
	open := *l.Open
	open.QueryFirst, open.Sends.LastDeadline = true, l.Now.Add(r.Lease)
	c := &store.Change{Open: released(open, l.Now), Cause: "commits may be lost: the provider is asked before a send"}
	c.Open.NextCheckAt = l.Now
	return c
}
