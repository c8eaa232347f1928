package check

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// place is where a record lies.
type place struct {
	topic     string
	partition int
	offset    int64
}

func (p place) String() string {
	return p.topic + "/" + strconv.Itoa(p.partition) + "@" + strconv.FormatInt(p.offset, 10)
}

func placeOf(r *kafka.Record) place { return place{r.Topic, r.Partition, r.Offset} }

// arrival is one record of the command topic, and all that was answered to it.
type arrival struct {
	record *kafka.Record
	// dossier is the payment it is a delivery of; nil for one that cannot be read.
	dossier *dossier
	// number counts the payment's deliveries, from 0.
	number      int
	decoded     payment.Decoded
	fingerprint payment.Fingerprint
	replies     []*reply
	dead        []*kafka.Record
}

type reply struct {
	payment.Reply

	record  *kafka.Record
	arrival *arrival
}

type event struct {
	payment.Event

	kind   payment.EventType
	record *kafka.Record
}

// requery is one announcement, and when it was published.
type requery struct {
	payment.Requery

	at time.Time
}

// dossier is all that is known about one payment, from outside.
type dossier struct {
	id       uuid.UUID
	identity payment.Identity
	arrivals []*arrival
	events   []*event
	replies  []*reply
	// asked is the last re-query that was announced, 0 to 3.
	asked     int
	requeries []requery
	charge    *sim.Charge
	outcome   *event // the first terminal event
}

// first is the command that counts: the first one in its partition.
func (d *dossier) first() *arrival { return d.arrivals[0] }

func (d *dossier) command() *payment.Command { return &d.first().decoded.Command }

// state is where the payment stands as far as the topics tell; 0 when they do not.
func (d *dossier) state() payment.State {
	if d.outcome != nil {
		return d.outcome.State
	}
	for _, r := range d.replies {
		if r.Kind == payment.ReplyRejected {
			return payment.Rejected
		}
	}
	if n := len(d.events); n > 0 {
		return d.events[n-1].State
	}
	return 0
}

// rejectedAs is the code of its first rejection.
func (d *dossier) rejectedAs() payment.Code {
	for _, r := range d.replies {
		if r.Kind == payment.ReplyRejected {
			return r.Code
		}
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

// settled is how often the channel took the money.
func (d *dossier) settled() int {
	if d.charge == nil {
		return 0
	}
	return d.charge.Settled
}

// archive holds the dossiers of a run.
type archive struct {
	arrivals []*arrival
	byPlace  map[place]*arrival
	byID     map[uuid.UUID]*dossier
	dossiers []*dossier // in the order of their first delivery
	strays   []stray
	offsets  []Offset
	// unowned are payments and provider keys that no command names, and what was
	// found about them.
	unowned map[uuid.UUID]string
}

// stray is a message or charge that belongs to nothing.
type stray struct{ guarantee, text, key string }

func (a *archive) stray(guarantee, key, text string) {
	a.strays = append(a.strays, stray{guarantee: guarantee, text: text, key: key})
}

// file sorts the evidence by payment.
func file(e *Evidence) *archive {
	a := &archive{byPlace: make(map[place]*arrival, len(e.Commands)), byID: make(map[uuid.UUID]*dossier, len(e.Commands)), unowned: map[uuid.UUID]string{}, offsets: e.Offsets}
	for i := range e.Commands {
		a.fileCommand(&e.Commands[i])
	}
	a.fileDeadLetters(e.DeadLetters)
	a.fileReplies(e.Replies)
	a.fileEvents(e.Events)
	a.fileRequeries(e.Requeries)
	a.fileLedger(e.Ledger)
	return a
}

func (a *archive) fileCommand(r *kafka.Record) {
	v := &arrival{record: r, decoded: payment.Decode(r.Value)}
	a.arrivals = append(a.arrivals, v)
	a.byPlace[placeOf(r)] = v
	if !v.decoded.Identified || !v.decoded.KeyMatches(r.Key) {
		return
	}
	v.fingerprint = payment.RawFingerprint(r.Value)
	if v.decoded.Err == nil {
		if sum, err := v.decoded.Command.Fingerprint(); err == nil {
			v.fingerprint = sum
		}
	}
	id := v.decoded.Identity.PaymentID()
	d, ok := a.byID[id]
	if !ok {
		d = &dossier{id: id, identity: v.decoded.Identity}
		a.byID[id] = d
		a.dossiers = append(a.dossiers, d)
	}
	v.dossier, v.number = d, len(d.arrivals)
	d.arrivals = append(d.arrivals, v)
}

func (a *archive) fileDeadLetters(records []kafka.Record) {
	for i := range records {
		r := &records[i]
		partition, err := strconv.Atoi(Header(r, "dl_partition"))
		offset, err2 := strconv.ParseInt(Header(r, "dl_offset"), 10, 64)
		v, ok := a.byPlace[place{Header(r, "dl_topic"), partition, offset}]
		if err != nil || err2 != nil || !ok {
			a.stray("G5", string(r.Key), "the dead letter at "+placeOf(r).String()+" names no record it comes from")
			continue
		}
		v.dead = append(v.dead, r)
	}
}

// replyKinds are tried to find the delivery that a reply answers.
var replyKinds = []payment.ReplyKind{
	payment.ReplyAccepted, payment.ReplyOutcome, payment.ReplyReplayed, payment.ReplyPending, payment.ReplyConflict, payment.ReplyRejected,
}

func (a *archive) fileReplies(records []kafka.Record) {
	answered := make(map[uuid.UUID]*arrival, len(replyKinds)*len(a.arrivals))
	for _, v := range a.arrivals {
		for _, kind := range replyKinds {
			answered[payment.ReplyID(v.record.Topic, v.record.Partition, v.record.Offset, v.record.Time, kind)] = v
		}
	}
	for i := range records {
		r := &reply{record: &records[i]}
		if err := json.Unmarshal(records[i].Value, &r.Reply); err != nil {
			a.stray("G5", string(records[i].Key), "the reply at "+placeOf(r.record).String()+" cannot be read: "+err.Error())
			continue
		}
		id, err := uuid.Parse(Header(r.record, "ce_id"))
		v, ok := answered[id]
		if _, known := a.byID[r.PaymentID]; !known {
			a.unowned[r.PaymentID] = "a reply"
		}
		if err != nil || !ok || v.dossier == nil || v.dossier.id != r.PaymentID {
			a.stray("G5", r.IdempotencyKey.String(), "the reply at "+placeOf(r.record).String()+" answers no delivery of its payment")
			continue
		}
		r.arrival = v
		v.replies = append(v.replies, r)
		v.dossier.replies = append(v.dossier.replies, r)
	}
}

func (a *archive) fileEvents(records []kafka.Record) {
	for i := range records {
		e := &event{record: &records[i], kind: payment.EventType(Header(&records[i], "ce_type"))}
		if err := json.Unmarshal(records[i].Value, &e.Event); err != nil {
			a.stray("G5", string(records[i].Key), "the event at "+placeOf(e.record).String()+" cannot be read: "+err.Error())
			continue
		}
		d, ok := a.byID[e.PaymentID]
		if !ok {
			a.unowned[e.PaymentID] = "an event"
			a.stray("G6", e.IdempotencyKey.String(), "the event at "+placeOf(e.record).String()+" is about a payment that no command asked for")
			continue
		}
		d.events = append(d.events, e)
		if d.outcome == nil && e.State.Terminal() {
			d.outcome = e
		}
	}
}

func (a *archive) fileRequeries(records []kafka.Record) {
	for i := range records {
		var q payment.Requery
		if err := json.Unmarshal(records[i].Value, &q); err != nil {
			a.stray("G5", string(records[i].Key), "a re-query cannot be read: "+err.Error())
			continue
		}
		if d, ok := a.byID[q.PaymentID]; ok {
			d.asked = max(d.asked, q.Query)
			d.requeries = append(d.requeries, requery{q, records[i].Time})
		}
	}
}

// fileLedger finds the payment of each charge by its provider key, which is
// derived from the payment's identity: another key would be a second identity of
// the same payment at the provider.
func (a *archive) fileLedger(ledger []sim.Charge) {
	owner := make(map[uuid.UUID]*dossier, len(a.dossiers))
	for _, d := range a.dossiers {
		owner[d.identity.ProviderKey(1)] = d
	}
	for i := range ledger {
		c := &ledger[i]
		d, ok := owner[c.ProviderKey]
		if !ok {
			a.unowned[c.ProviderKey] = "a request at the channel"
			a.stray("G1", c.ProviderKey.String(), "the channel was asked under a provider key that belongs to no payment (order "+c.Order+")")
			continue
		}
		d.charge = c
	}
}
