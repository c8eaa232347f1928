package check

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Forgery is a command that somebody published in another's name.
type Forgery struct {
	Key, Value []byte
	// Signature is the one it carries, empty for none.
	Signature string
	// How says what is wrong with it.
	How string
}

// seal stands for all of a record that tells whose it is.
type seal struct{ sum, signed digest }

func (v *arrival) seal() seal { return seal{v.sum, v.signed} }

// signatureHeader carries the signature of a command.
const signatureHeader = "settleonce-signature"

// signedBy stands for the signatures of a record: copies of it have them too, whatever
// other headers they got.
func signedBy(r *kafka.Record) (d digest) {
	for i := range r.Headers {
		if r.Headers[i].Key == signatureHeader {
			d = digestOf(d[:], r.Headers[i].Value)
		}
	}
	return d
}

func forgedOf(all []Forgery) map[seal]*Forgery {
	out := make(map[seal]*Forgery, len(all))
	for i := range all {
		f := &all[i]
		of := seal{sum: digestOf(f.Key, f.Value)}
		if f.Signature != "" {
			of.signed = digestOf(of.signed[:], []byte(f.Signature))
		}
		out[of] = f
	}
	return out
}

// late reports whether a record was published when its caller was shut out already.
func (j *judge) late(v *arrival) bool {
	if v.dossier == nil {
		return false
	}
	since, out := j.rules.ShutOut[v.dossier.identity.Caller]
	return out && !v.at.Before(since.Truncate(time.Millisecond))
}

// refusedRecord: what is forged, or comes from one who was shut out, is a dead letter
// and nothing else (G12).
func (j *judge) refusedRecord(v *arrival, key string) {
	j.check("G12")
	what := "of a caller that was shut out"
	if f := j.forged[v.seal()]; f != nil {
		what = "that is forged (" + f.How + ")"
	}
	if len(v.replies) > 0 {
		j.brokenf("G12", key, "a command %s was answered %s, at %s", what, v.replies[0].kind, v.place)
	}
	if len(v.dead) == 0 && !j.fresh(v) {
		j.brokenf("G12", key, "a command %s is not in the dead-letter topic: the record at %s", what, v.place)
	}
}

// forgeries: a payment that only forged commands ask for does not exist (G12).
func (j *judge) forgeries() {
	seen := map[*dossier]bool{}
	for _, v := range j.evidence.arrivals {
		if j.forged[v.seal()] == nil {
			continue
		}
		d := v.names
		if v.dossier != nil {
			d = v.dossier
		}
		if d == nil || seen[d] || j.asksFor(d) {
			continue
		}
		seen[d] = true
		if d.charge != nil || j.evidence.foreign[d.identity.ProviderKey(1)] || len(d.events) > 0 {
			j.brokenf("G12", d.key(), "a payment of %s, which only forged commands ask for, was taken", d.identity.Caller)
		}
	}
}

// asksFor reports whether a command that is not forged asks for the payment.
func (j *judge) asksFor(d *dossier) bool {
	for _, v := range d.arrivals {
		if j.forged[v.seal()] == nil {
			return true
		}
	}
	return false
}

// ownTopic is where a caller's messages go instead of to the common topic. The
// workers' own answer is not asked.
func (j *judge) ownTopic(common, caller string) string {
	if ending, ok := j.rules.Own[caller]; ok {
		return common + "." + ending
	}
	return common
}

// dropped: a payment that ought to be taken is not a dead letter.
func (j *judge) dropped(d *dossier, x *Expectation) {
	if d.state() == 0 && len(d.first().dead) > 0 && !x.Ends.Buried {
		j.brokenf(x.Ends.Guarantee, x.Key, "a dead letter (%s), which its story does not allow: %s", d.first().dead[0].reason, x.Story)
	}
}

// posed: who shows a key that is none of its own is refused, and nothing else (G12).
// What asks for a payment that nobody else asks for is not in the topic.
func (j *judge) posed(t *Told, id uuid.UUID) {
	j.check("G12")
	if t.Status != http.StatusUnauthorized || t.Payment != uuid.Nil {
		j.brokenf("G12", t.Key.String(), "the edge answered %d %s to one who showed %s", t.Status, t.Code, t.Posed)
	}
	d, ok := j.evidence.known(id)
	if !ok || t.Looked {
		return
	}
	for _, v := range d.arrivals {
		if v.fingerprint == t.Sum {
			j.brokenf("G12", d.key(), "a command of one who showed %s is in the topic, at %s", t.Posed, v.place)
			return
		}
	}
}

// countRefused counts those who were kept out.
func (j *judge) countRefused(c *Counts) {
	for _, v := range j.evidence.arrivals {
		switch {
		case len(v.dead) == 0:
		case j.forged[v.seal()] != nil:
			c.Forged++
		case j.late(v):
			c.ShutOut++
		}
	}
	for i := range j.rules.Told {
		if t := &j.rules.Told[i]; t.Posed != "" && t.Status == http.StatusUnauthorized {
			c.Posed++
		}
	}
}
