package check

import (
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// lane is a partition of a topic.
type lane struct {
	topic     string
	partition int
}

// place is where a record lies.
type place struct {
	lane

	offset int64
}

func (p place) String() string {
	return p.topic + "/" + strconv.Itoa(p.partition) + "@" + strconv.FormatInt(p.offset, 10)
}

// arrival is one record of the command topic, and all that was answered to it.
// Of its bytes a hash is left.
type arrival struct {
	place

	at  time.Time
	sum digest
	// signed stands for its signatures, of which it may have none.
	signed digest
	// key is the record's, where it belongs to no payment.
	key string
	// dossier is the payment it is a delivery of; nil for one that cannot be read.
	dossier *dossier
	// number counts the payment's deliveries, from 0.
	number      int
	fingerprint payment.Fingerprint
	replies     []*reply
	dead        []deadLetter
	// asked is what it asked for, where that is not what the first delivery did.
	asked *asked
	// names is the payment that a forged command names, and is no delivery of.
	names *dossier
}

// deadLetter is a record in the dead-letter topic.
type deadLetter struct {
	of     place // as its headers say
	sum    digest
	reason string
	place  place
	key    string
}

// asked is what the first command of a payment asked for; nil where it cannot be
// read.
type asked struct {
	amount     int64
	currency   string
	orderID    string
	obligation string
	channel    string
	follows    *uuid.UUID
	issuedAt   time.Time
}

// same compares what is content; the rest may differ in a repeat.
func (a *asked) same(b *asked) bool {
	return a.amount == b.amount && a.currency == b.currency && a.orderID == b.orderID && a.obligation == b.obligation && a.channel == b.channel
}

type reply struct {
	place

	id        uuid.UUID
	payment   uuid.UUID
	key       uuid.UUID
	kind      payment.ReplyKind
	code      payment.Code
	caller    string
	version   int
	replayed  bool
	at        time.Time
	blockedBy *uuid.UUID
	outcome   *payment.Outcome
	// again says that an operator had it published again.
	again bool
	// arrival is the delivery that it answers; nil until it is found.
	arrival *arrival
}

// repeats reports whether it says the same as the reply that was there before.
func (r *reply) repeats(was *reply) bool {
	return was.id == r.id && was.code == r.code && was.version == r.version && (was.outcome == nil) == (r.outcome == nil)
}

type event struct {
	place

	id         uuid.UUID
	key        uuid.UUID
	kind       payment.EventType
	sum        digest
	state      payment.State
	version    int
	attempt    int
	amount     int64
	currency   string
	reference  string
	cause      string
	occurredAt time.Time
}

// requery is one announcement.
type requery struct {
	attempt, query int
	due            time.Time
}

// dossier is all that is known about one payment, from outside.
type dossier struct {
	id       uuid.UUID
	identity payment.Identity // known with its first command
	asked    *asked
	arrivals []*arrival
	events   []*event
	replies  []*reply
	// tier is the last re-query that was announced, 0 to 3.
	tier      int
	requeries []requery
	// charge is what the channel knows; others are what it knows under the keys of
	// further attempts, or another channel.
	charge  *entry
	others  []*entry
	outcome *event // the first terminal event
	// replayed counts events that an operator had published again.
	replayed int
}

// entry is a charge in the ledger of a channel.
type entry struct {
	*sim.Charge

	channel string
}

// first is the command that counts: the first one in its partition.
func (d *dossier) first() *arrival { return d.arrivals[0] }

func (d *dossier) key() string { return d.identity.Key.String() }

// attempts is how many attempts its events tell of, at least one.
func (d *dossier) attempts() int {
	n := 1
	for _, e := range d.events {
		n = max(n, e.attempt)
	}
	return n
}

// state is where the payment stands as far as the topics tell; 0 when they do not.
func (d *dossier) state() payment.State {
	if d.outcome != nil {
		return d.outcome.state
	}
	if d.rejection() != nil {
		return payment.Rejected
	}
	if n := len(d.events); n > 0 {
		return d.events[n-1].state
	}
	return 0
}

// rejection is its first one, nil without any.
func (d *dossier) rejection() *reply {
	for _, r := range d.replies {
		if r.kind == payment.ReplyRejected {
			return r
		}
	}
	return nil
}

// rejectedAs is the code of its first rejection.
func (d *dossier) rejectedAs() payment.Code {
	if r := d.rejection(); r != nil {
		return r.code
	}
	return ""
}

// had reports whether an event of the kind was published.
func (d *dossier) had(kind payment.EventType) bool {
	for _, e := range d.events {
		if e.kind == kind {
			return true
		}
	}
	return false
}

// entries are all charges under its provider keys.
func (d *dossier) entries() []*entry {
	if d.charge == nil {
		return nil
	}
	return append([]*entry{d.charge}, d.others...)
}

// settled is how often the channel took the money.
func (d *dossier) settled() int {
	n := 0
	for _, c := range d.entries() {
		n += c.Settled
	}
	return n
}

// requests is how often the channel was asked.
func (d *dossier) requests() int {
	n := 0
	for _, c := range d.entries() {
		n += c.Requests
	}
	return n
}

// paid is the charge that took the money, nil without one.
func (d *dossier) paid() *entry {
	for _, c := range d.entries() {
		if c.Settled > 0 {
			return c
		}
	}
	return nil
}

// askedFirst is when the channel was asked first.
func (d *dossier) askedFirst() time.Time {
	first := d.charge.FirstAt
	for _, c := range d.others {
		if c.FirstAt.Before(first) {
			first = c.FirstAt
		}
	}
	return first
}
