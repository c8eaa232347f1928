package check

import (
	"cmp"
	"slices"

	"github.com/settleonce/settleonce/payment"
)

// Counts are what was found in the topics and in the channel's ledger.
type Counts struct {
	// Records are all records in the command topic, Keys the different payments
	// among them.
	Records int `json:"commands"`
	Keys    int `json:"uniqueKeys"`
	// Aborted were written too, in a transaction that was aborted.
	Aborted int `json:"commandsAborted"`
	// Charges is how often the channel took money, by its own ledger;
	// DoubleCharged the keys it did so for more than once.
	Charges       int `json:"chargesAtChannel"`
	DoubleCharged int `json:"keysChargedTwice"`
	ChannelAsked  int `json:"requestsAtChannel"`
	Queries       int `json:"queriesAtChannel"`
	// Obligations are those that were paid, PaidTwice those among them that were paid
	// more than once: on purpose, or a violation says so.
	Obligations int `json:"obligationsPaid"`
	PaidTwice   int `json:"obligationsPaidAgain"`

	Succeeded int `json:"succeeded"`
	Declined  int `json:"declined"`
	Rejected  int `json:"rejected"`
	InReview  int `json:"inReview"`
	// ReviewPlanned says how many in review the script meant to be there.
	ReviewPlanned int `json:"inReviewPlanned"`
	Unended       int `json:"withoutEnd"`

	Repeats   int `json:"duplicatesAnswered"`
	Pending   int `json:"duplicatesAnsweredPending"`
	Conflicts int `json:"conflictsRefused"`
	// SecondUnresolved and SecondPaid are second keys that were refused;
	// PaidAgain are orders that were paid again on purpose.
	SecondUnresolved int `json:"secondKeysRefusedUnresolved"`
	SecondPaid       int `json:"secondKeysRefusedPaid"`
	PaidAgain        int `json:"paidAgainOnPurpose"`
	OtherRejections  int `json:"otherCommandsRejected"`
	DeadLetters      int `json:"deadLetters"`

	// Unknown payments once had no answer; Resolved counts those that have an
	// outcome now, by the re-query that was announced last.
	Unknown  int   `json:"unknown"`
	Resolved Tiers `json:"unknownResolved"`

	// Channels are the same by channel, by name.
	Channels []ChannelCounts `json:"channels"`

	Events        int `json:"events"`
	EventRepeats  int `json:"eventsPublishedAgain"`
	Replies       int `json:"replies"`
	AnsweredAgain int `json:"repliesPublishedAgain"`
	// Replays are events and replies that an operator had published again.
	Replays int `json:"replayedByOperators"`

	// Told are answers of the HTTP edge; Callbacks those that it took, and
	// CallbacksRefused those that it did not.
	Told             int `json:"answersOfTheEdge"`
	Callbacks        int `json:"callbacksTaken"`
	CallbacksRefused int `json:"callbacksRefused"`

	// Forged are commands in another's name that were refused, ShutOut those of callers
	// that were shut out, and Posed requests at the edge with a key that is none.
	Forged  int `json:"forgedCommandsRefused"`
	ShutOut int `json:"commandsOfTheShutOutRefused"`
	Posed   int `json:"impostorsRefused"`

	// Downstream is nil where no service behind the events was looked at.
	Downstream *DownstreamCounts `json:"downstream,omitempty"`
}

// ChannelCounts are the counts of one channel.
type ChannelCounts struct {
	Channel   string `json:"channel"`
	Payments  int    `json:"payments"`
	Charges   int    `json:"chargesAtChannel"`
	Asked     int    `json:"requestsAtChannel"`
	Queries   int    `json:"queriesAtChannel"`
	Unknown   int    `json:"unknown"`
	InReview  int    `json:"inReview"`
	Succeeded int    `json:"succeeded"`
	Declined  int    `json:"declined"`
	Rejected  int    `json:"rejected"`
}

// Tiers count by re-query tier.
type Tiers struct {
	// Without any re-query: a late answer.
	Without int `json:"without"`
	First   int `json:"tier1s"`
	Second  int `json:"tier4s"`
	Third   int `json:"tier16s"`
}

func (t *Tiers) add(query int) {
	switch query {
	case 0:
		t.Without++
	case 1:
		t.First++
	case 2:
		t.Second++
	default:
		t.Third++
	}
}

func (j *judge) count() Counts {
	c := Counts{Records: len(j.evidence.arrivals), Keys: len(j.evidence.dossiers), Obligations: j.obligationsPaid, PaidTwice: j.paidTwice}
	c.Channels = j.countChannels()
	c.Downstream = j.countDownstream()
	c.Replays, c.Told = j.evidence.replays, len(j.rules.Told)
	for i := range j.evidence.Ledgers {
		l := &j.evidence.Ledgers[i]
		c.Callbacks += int(l.Callbacks.Acknowledged)
		c.CallbacksRefused += int(l.Callbacks.Refused)
	}
	for _, of := range c.Channels {
		c.Queries += of.Queries
	}
	j.countRefused(&c)
	for _, v := range j.evidence.arrivals {
		c.arrival(v)
	}
	for _, d := range j.evidence.dossiers {
		c.dossier(d)
	}
	for _, x := range j.rules.Expected {
		if x.Ends.Never {
			c.Aborted++
		}
		if len(x.Ends.States) == 1 && x.Ends.States[0] == payment.Review {
			c.ReviewPlanned++
		}
	}
	return c
}

// countChannels counts those that show a ledger; a payment of another one was
// never sent, or its channel cannot be seen.
func (j *judge) countChannels() []ChannelCounts {
	out := make([]ChannelCounts, len(j.evidence.Ledgers))
	place := map[string]*ChannelCounts{}
	for i := range out {
		out[i] = ChannelCounts{Channel: j.evidence.Ledgers[i].Channel, Queries: j.evidence.Ledgers[i].Queries}
		place[out[i].Channel] = &out[i]
	}
	for _, d := range j.evidence.dossiers {
		if d.asked == nil || place[d.asked.channel] == nil {
			continue
		}
		place[d.asked.channel].add(d)
	}
	slices.SortFunc(out, func(a, b ChannelCounts) int { return cmp.Compare(a.Channel, b.Channel) })
	return out
}

func (c *ChannelCounts) add(d *dossier) {
	c.Payments++
	c.Charges += d.settled()
	c.Asked += d.requests()
	if d.had(payment.EventUnknown) {
		c.Unknown++
	}
	switch d.state() { //nolint:exhaustive // the others have no end
	case payment.Succeeded:
		c.Succeeded++
	case payment.Declined:
		c.Declined++
	case payment.Rejected:
		c.Rejected++
	case payment.Review:
		c.InReview++
	}
}

func (c *Counts) arrival(v *arrival) {
	if len(v.dead) > 0 {
		c.DeadLetters++
	}
	c.Replies += len(v.replies)
	c.AnsweredAgain += max(0, len(v.replies)-1)
	if v.dossier == nil || v.number == 0 || len(v.replies) == 0 {
		return
	}
	switch v.replies[len(v.replies)-1].kind {
	case payment.ReplyConflict:
		c.Conflicts++
	case payment.ReplyPending:
		c.Pending++
		c.Repeats++
	default:
		c.Repeats++
	}
}

func (c *Counts) dossier(d *dossier) {
	c.Charges += d.settled()
	c.ChannelAsked += d.requests()
	if d.settled() > 1 {
		c.DoubleCharged++
	}
	c.Events += len(d.events)
	for i := 1; i < len(d.events); i++ {
		if d.events[i].version == d.events[i-1].version {
			c.EventRepeats++
		}
	}
	c.ending(d)
	if d.had(payment.EventUnknown) {
		c.Unknown++
		if d.outcome != nil {
			c.Resolved.add(d.tier)
		}
	}
}

func (c *Counts) ending(d *dossier) {
	switch d.state() {
	case payment.Succeeded:
		c.Succeeded++
		if d.asked != nil && d.asked.follows != nil {
			c.PaidAgain++
		}
	case payment.Declined:
		c.Declined++
	case payment.Review:
		c.InReview++
	case payment.Rejected:
		c.Rejected++
		switch d.rejectedAs() {
		case payment.CodePriorAttemptUnresolved:
			c.SecondUnresolved++
		case payment.CodeObligationAlreadyPaid:
			c.SecondPaid++
		default:
			c.OtherRejections++
		}
	default:
		if len(d.first().dead) == 0 {
			c.Unended++
		}
	}
}
