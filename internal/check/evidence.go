package check

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Evidence is everything the verdict rests on: what is in the topics, in the
// order of each partition, and the channels' own ledgers. No worker is asked; the
// tables are evidence of their own, see Rules.
//
// It is sorted by payment as it comes in, topics in any order, and keeps no
// record's bytes: about 2 KB per payment. The zero value is not usable; take
// NewEvidence.
type Evidence struct {
	// Ledgers are those of the channels that show one.
	Ledgers []Ledger
	// Offsets say how far the consumers are; nil when nobody asked.
	Offsets []Offset

	arrivals []*arrival
	lanes    map[lane][]*arrival
	byID     map[uuid.UUID]*dossier
	dossiers []*dossier // in the order of their first delivery
	strays   []stray
	letters  []deadLetter // that found no record yet
	refusals []refusal    // dead letters of services downstream
	open     []*reply     // that found no delivery yet
	words    map[string]string
	// filed is how many ledgers were sorted by payment.
	filed int
	// replays counts records that an operator had published again, beside commands.
	replays int
	// foreign are provider keys in a ledger that belong to no payment.
	foreign map[uuid.UUID]bool
}

// NewEvidence has nothing in it yet.
func NewEvidence() *Evidence {
	return &Evidence{
		lanes: map[lane][]*arrival{}, byID: map[uuid.UUID]*dossier{}, words: map[string]string{}, foreign: map[uuid.UUID]bool{},
	}
}

// stray is a message or charge that belongs to nothing.
type stray struct{ guarantee, key, text string }

func (e *Evidence) stray(guarantee, key, text string) {
	e.strays = append(e.strays, stray{guarantee: guarantee, key: key, text: text})
}

// digest stands for bytes that were read.
type digest [sha256.Size / 2]byte

// digestOf tells a missing key or value from an empty one.
func digestOf(key, value []byte) (d digest) {
	h := sha256.New()
	for _, part := range [][]byte{key, value} {
		length := -1
		if part != nil {
			length = len(part)
		}
		h.Write(strconv.AppendInt(nil, int64(length), 10))
		h.Write(part)
	}
	copy(d[:], h.Sum(nil))
	return d
}

// word is one copy of a text that comes again and again.
func (e *Evidence) word(text string) string {
	if known, ok := e.words[text]; ok {
		return known
	}
	const few = 4096
	if len(e.words) < few {
		e.words[text] = text
	}
	return text
}

func (e *Evidence) placeOf(r *kafka.Record) place {
	return place{lane{e.word(r.Topic), r.Partition}, r.Offset}
}

func (e *Evidence) dossier(id uuid.UUID) *dossier {
	d, ok := e.byID[id]
	if !ok {
		d = &dossier{id: id}
		e.byID[id] = d
	}
	return d
}

// known is a payment that a command asked for.
func (e *Evidence) known(id uuid.UUID) (*dossier, bool) {
	d, ok := e.byID[id]
	return d, ok && len(d.arrivals) > 0
}

// AddCommand files a record of a command topic. Those of a partition come in
// their order.
func (e *Evidence) AddCommand(r *kafka.Record) {
	decoded := payment.Decode(r.Value)
	v := &arrival{place: e.placeOf(r), at: r.Time, sum: digestOf(r.Key, r.Value), signed: signedBy(r)}
	e.arrivals = append(e.arrivals, v)
	e.lanes[v.lane] = append(e.lanes[v.lane], v)
	if !decoded.Identified || !decoded.KeyMatches(r.Key) {
		v.key = string(r.Key)
		return
	}
	v.fingerprint = payment.RawFingerprint(r.Value)
	if decoded.Err == nil {
		if sum, err := decoded.Command.Fingerprint(); err == nil {
			v.fingerprint = sum
		}
	}
	d := e.dossier(decoded.Identity.PaymentID())
	if len(d.arrivals) == 0 {
		d.identity = decoded.Identity
		d.identity.Caller, d.identity.Operation = e.word(d.identity.Caller), e.word(d.identity.Operation)
		d.asked = e.askedBy(&decoded)
		e.dossiers = append(e.dossiers, d)
	}
	v.dossier, v.number = d, len(d.arrivals)
	d.arrivals = append(d.arrivals, v)
	if v.number > 0 {
		e.sameIntent(v, &decoded)
	}
}

// sameIntent compares what payment ids and fingerprints are made of: both are from
// the package that the workers use, and a fault in it would be shared (G8, G12).
func (e *Evidence) sameIntent(v *arrival, decoded *payment.Decoded) {
	d, again := v.dossier, e.askedBy(decoded)
	switch first := d.asked; {
	case decoded.Identity != d.identity:
		e.stray("G12", d.key(), "commands of "+d.identity.Caller+" and "+decoded.Identity.Caller+" are one payment, the second at "+v.place.String())
	case v.fingerprint != d.first().fingerprint:
		v.asked = again
	case first != nil && again != nil && !first.same(again):
		e.stray("G8", d.key(), "two contents have one fingerprint, the second at "+v.place.String())
	}
}

func (e *Evidence) askedBy(decoded *payment.Decoded) *asked {
	if decoded.Err != nil {
		return nil
	}
	c := &decoded.Command
	a := &asked{amount: c.Amount, currency: e.word(c.Currency), orderID: c.OrderID, obligation: c.ObligationOrDefault(), channel: e.word(c.Channel), follows: c.Follows, issuedAt: c.IssuedAt}
	return a
}

// AddDeadLetter files a record of the dead-letter topic.
func (e *Evidence) AddDeadLetter(r *kafka.Record) {
	if consumer := Header(r, payment.DeadHeaderConsumer); consumer != "" { // it comes from an inbox, and is no command
		e.refusals = append(e.refusals, refusal{consumer: consumer, reason: Header(r, payment.DeadHeaderReason), key: string(r.Key), place: e.placeOf(r)})
		return
	}
	partition, err := strconv.Atoi(Header(r, payment.DeadHeaderPartition))
	offset, err2 := strconv.ParseInt(Header(r, payment.DeadHeaderOffset), 10, 64)
	if errors.Join(err, err2) != nil {
		offset = -1
	}
	e.letters = append(e.letters, deadLetter{
		of: place{lane{e.word(Header(r, payment.DeadHeaderTopic)), partition}, offset}, place: e.placeOf(r), sum: digestOf(r.Key, r.Value),
		reason: e.word(Header(r, payment.DeadHeaderReason)), key: string(r.Key),
	})
}

// AddReply files a record of the topic of replies.
func (e *Evidence) AddReply(record *kafka.Record) {
	var p payment.Reply
	at := e.placeOf(record)
	if err := json.Unmarshal(record.Value, &p); err != nil {
		e.stray("G5", string(record.Key), "the reply at "+at.String()+" cannot be read: "+err.Error())
		return
	}
	id, _ := uuid.Parse(Header(record, "ce_id")) // the nil UUID answers nothing
	r := &reply{
		place: at, id: id, payment: p.PaymentID, key: p.IdempotencyKey, kind: payment.ReplyKind(e.word(string(p.Kind))),
		code: payment.Code(e.word(string(p.Code))), caller: e.word(p.Caller), version: p.Version, replayed: p.Replayed, at: record.Time,
		blockedBy: p.BlockedBy, outcome: p.Outcome,
	}
	r.again = replayed(record)
	e.open = append(e.open, r)
}

// replayHeader is on what an operator had published again.
const replayHeader = "settleonce_replay"

func replayed(r *kafka.Record) bool { return Header(r, replayHeader) != "" }

// AddEvent files a record of the topic of events.
func (e *Evidence) AddEvent(r *kafka.Record) {
	var p payment.Event
	at := e.placeOf(r)
	if err := json.Unmarshal(r.Value, &p); err != nil {
		e.stray("G5", string(r.Key), "the event at "+at.String()+" cannot be read: "+err.Error())
		return
	}
	id, _ := uuid.Parse(Header(r, "ce_id")) // the nil UUID is like no other's
	v := &event{
		place: at, id: id, key: p.IdempotencyKey, kind: payment.EventType(e.word(Header(r, "ce_type"))), sum: digestOf(nil, r.Value), state: p.State,
		version: p.Version, attempt: p.Attempt, amount: p.Amount, currency: e.word(p.Currency), reference: p.ProviderReference,
		cause: e.word(p.Cause), occurredAt: p.OccurredAt,
	}
	d := e.dossier(p.PaymentID)
	if replayed(r) && slices.ContainsFunc(d.events, func(was *event) bool { return was.id == v.id && was.sum == v.sum }) {
		e.replays++ // it tells nothing new, and stands behind newer ones on purpose
		d.replayed++
		return
	}
	d.events = append(d.events, v)
	if d.outcome == nil && v.state.Terminal() {
		d.outcome = v
	}
}

// AddRequery files a record of a delay topic.
func (e *Evidence) AddRequery(r *kafka.Record) {
	var q payment.Requery
	if err := json.Unmarshal(r.Value, &q); err != nil {
		e.stray("G5", string(r.Key), "a re-query cannot be read: "+err.Error())
		return
	}
	d := e.dossier(q.PaymentID)
	d.tier = max(d.tier, q.Query)
	d.requeries = append(d.requeries, requery{attempt: q.Attempt, query: q.Query, due: q.DueAt})
}

// at is the command at a place, nil when none was read there.
func (e *Evidence) at(p place) *arrival {
	in := e.lanes[p.lane]
	i, ok := slices.BinarySearchFunc(in, p.offset, func(v *arrival, offset int64) int { return int(v.offset - offset) })
	if !ok {
		return nil
	}
	return in[i]
}

// match finds the records that dead letters and replies belong to, as far as
// they were read.
func (e *Evidence) match() {
	letters := e.letters[:0]
	for _, l := range e.letters {
		if v := e.at(l.of); v != nil {
			v.dead = append(v.dead, l)
			if l.reason == string(payment.DeadBadSignature) {
				e.disown(v)
			}
			continue
		}
		letters = append(letters, l)
	}
	e.letters = letters
	open := e.open[:0]
	for _, r := range e.open {
		if !e.matchReply(r) {
			open = append(open, r)
		}
	}
	clear(e.open[len(open):])
	e.open = open
}

// disown takes a forged command out of the payment that it names: it is no delivery
// of it, and what it asked for does not count (G12). An answer to it then belongs to
// nothing, which is a violation.
func (e *Evidence) disown(v *arrival) {
	d := v.dossier
	if d == nil || len(v.replies) > 0 {
		return
	}
	v.dossier, v.names, v.key = nil, d, d.key()
	was := d.arrivals[0]
	d.arrivals = slices.DeleteFunc(d.arrivals, func(a *arrival) bool { return a == v })
	for i, a := range d.arrivals {
		a.number = i
		if was == v && a.fingerprint == was.fingerprint {
			a.asked = d.asked
		}
	}
	switch {
	case len(d.arrivals) == 0:
		e.dossiers = slices.DeleteFunc(e.dossiers, func(other *dossier) bool { return other == d })
	case was == v:
		d.asked = d.arrivals[0].asked
	}
}

// matchReply looks for the delivery among those of the payment: the id of a reply
// is derived from where the delivery lies.
func (e *Evidence) matchReply(r *reply) bool {
	d, ok := e.byID[r.payment]
	if !ok {
		return false
	}
	for _, v := range d.arrivals {
		if payment.ReplyID(v.topic, v.partition, v.offset, v.at, r.kind) == r.id {
			if r.again && slices.ContainsFunc(v.replies, r.repeats) {
				e.replays++
				return true
			}
			r.arrival = v
			v.replies = append(v.replies, r)
			d.replies = append(d.replies, r)
			if n := len(d.replies); n > 1 && d.replies[n-2].lane == r.lane && d.replies[n-2].offset > r.offset {
				slices.SortStableFunc(d.replies, func(a, b *reply) int { return cmp.Compare(a.offset, b.offset) })
			}
			return true
		}
	}
	return false
}

// incomplete reports whether a partition's first records are gone.
func (e *Evidence) incomplete() bool {
	for _, in := range e.lanes {
		if in[0].offset > 0 {
			return true
		}
	}
	return false
}

// Header is the value of a record's header, empty when it has none.
func Header(r *kafka.Record, name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}
