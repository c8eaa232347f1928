package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

// Violation is one breach of a guarantee, with an example.
type Violation struct {
	// Guarantee is its number in the design, as in "G1".
	Guarantee string `json:"guarantee"`
	// Text says what was found.
	Text string `json:"text"`
	// Key is the idempotencyKey it was found at.
	Key string `json:"key,omitempty"`
}

// Held is the verdict on one guarantee.
type Held struct {
	Guarantee string `json:"guarantee"`
	Name      string `json:"name"`
	// Checked counts what the guarantee was checked at, and Of says what that is.
	Checked    int    `json:"checked"`
	Of         string `json:"of"`
	Violations int    `json:"violations"`
}

// Verdict is what the evidence says.
type Verdict struct {
	Counts     Counts      `json:"counts"`
	Guarantees []Held      `json:"guarantees"`
	Violations []Violation `json:"violations"`
	// Unchecked is what could not be looked at, or was not there to be looked at.
	Unchecked []Unchecked `json:"unchecked,omitempty"`
}

// Unchecked is something that no verdict was reached on.
type Unchecked struct {
	Guarantee string `json:"guarantee"`
	// What was not looked at, and Why.
	What string `json:"what"`
	Why  string `json:"why"`
}

// Holds reports whether no guarantee was broken.
func (v Verdict) Holds() bool { return len(v.Violations) == 0 }

// Add adds violations that were seen otherwise, while the evidence came about.
func (v *Verdict) Add(found []Violation) {
	v.Violations = append(v.Violations, found...)
	checked := map[string]int{}
	for _, h := range v.Guarantees {
		checked[h.Guarantee] = h.Checked
	}
	v.Guarantees = Tally(checked, v.Violations)
}

// guarantees are those that can be checked from outside, with their names.
var guarantees = []Held{
	{Guarantee: "G1", Name: "one charge", Of: "provider keys at the channel"},
	{Guarantee: "G2", Name: "first outcome to every repeat", Of: "repeated deliveries"},
	{Guarantee: "G3", Name: "no guess: outcomes have evidence", Of: "outcomes against the ledger"},
	{Guarantee: "G4", Name: "declined is terminal", Of: "declined payments"},
	{Guarantee: "G5", Name: "nothing lost", Of: "records and what was answered"},
	{Guarantee: "G6", Name: "claim before the channel", Of: "charges and events against commands"},
	{Guarantee: "G7", Name: "one transaction", Of: "rows in the database, and effects downstream, against events"},
	{Guarantee: "G8", Name: "conflicts are refused", Of: "deliveries with other content"},
	{Guarantee: "G9", Name: "terminal is sticky", Of: "outcomes"},
	{Guarantee: "G10", Name: "order per key", Of: "events and replies"},
	{Guarantee: "G11", Name: "fenced", Of: "offsets of partitions"},
	{Guarantee: "G12", Name: "callers apart", Of: "payments with a key or caller of others"},
	{Guarantee: "G13", Name: "queries within the budget", Of: "queries"},
	{Guarantee: "G14", Name: "stale commands are not charged", Of: "stale or future commands"},
	{Guarantee: "G15", Name: "prior attempt first", Of: "orders with several keys"},
	{Guarantee: "G16", Name: "committed only", Of: "commands of an aborted transaction"},
}

// Ends are the states in which a payment may end. An end that is not among them
// breaks the guarantee.
type Ends struct {
	Guarantee string
	// States may be empty: then only what holds of every payment is checked.
	States []payment.State
	Codes  []payment.Code // of rejections
	// AnyReview says that its channel cannot always be asked or sent to again, so that
	// it may end in review whatever happens, also without ever being seen there: a
	// person decides.
	AnyReview bool
	// Never says that nobody must ever hear of it.
	Never bool
	// Buried says that it may be a dead letter instead.
	Buried bool
}

// Expectation is what whoever published a payment knows about it.
type Expectation struct {
	ID          uuid.UUID
	ProviderKey uuid.UUID // of its first attempt
	Key         string
	Story       string
	Ends        Ends
}

// Rules are what the checker has to know beside the evidence. The zero value
// checks what holds everywhere.
type Rules struct {
	// Callers may publish; everybody else's commands are dead letters. Nil means
	// that everybody may.
	Callers []string
	// Namespaces gives callers' obligations a namespace. A caller that is not in it
	// has one of its own, with its name.
	Namespaces map[string]string
	// Expected is what is known about payments; nil for nothing.
	Expected []Expectation
	// Told are answers of the HTTP edge, as its clients got them; nil for none.
	Told []Told
	// Lookups are the channels that can always be asked: there a callback is never the
	// evidence of an outcome.
	Lookups []string
	// Share and Floor are the retry budget of every channel: a share of the submits,
	// and queries per second. Without Floor it is not known.
	Share, Floor float64
	// Limits are the requests per second that channels take, sends and queries together;
	// a channel without one is not in it.
	Limits map[string]float64
	// RepayNamed are namespaces in which a paid obligation is paid again only by a
	// command that names the payment it follows.
	RepayNamed []string
	// Window is the age past which an unknown command is stale, Skew how far it may
	// be issued in the future. Zero leaves the age out.
	Window, Skew time.Duration
	// Topics are where callers' replies and events go; nil leaves it out. Own are the
	// callers with topics of their own, each with what ends their names; the topics'
	// own knowledge of them is not asked, as the workers go by it.
	Topics *payment.Topics
	Own    map[string]string
	// Forged are commands that were published in another's name, as whoever did it
	// tells; nil for none.
	Forged []Forgery
	// ShutOut are callers that were revoked, and since when at the latest: what was
	// published from then on is a dead letter.
	ShutOut map[string]time.Time
	// Prompted are channels that may be asked before a re-query is due, and why.
	Prompted map[string]string
	// Blind are channels whose ledger cannot be seen, and why.
	Blind map[string]string
	// Incomplete says that old records may be gone from the topics, so that what
	// answers them is not out of the blue.
	Incomplete bool
	// Database is what the tables say; nil leaves them out.
	Database *Database
	// Downstream is what a service behind the events did; nil leaves it out.
	Downstream *Downstream
	// Running reports whether a payment or record may still be on its way: then it
	// is no fault that its end or answer is not there. Nil: everything has ended.
	Running func(payment uuid.UUID, at time.Time) bool
}

// judge looks at everything. It knows the rules, and nothing else but the
// evidence.
type judge struct {
	evidence *Evidence
	rules    Rules

	checked    map[string]int
	violations []Violation
	unchecked  []Unchecked
	// imported are the payments of older systems: in the topics there are only their
	// retries, and what became of reviews.
	imported map[uuid.UUID]bool
	// obligationsPaid counts obligations that were paid, paidTwice those that were
	// paid more than once.
	obligationsPaid, paidTwice int
	// heard are the callbacks about each payment.
	heard map[uuid.UUID][]*CallbackRow
	// forged are the records that are.
	forged map[seal]*Forgery
}

func newJudge(e *Evidence, rules Rules) *judge {
	e.match()
	j := &judge{evidence: e, rules: rules, checked: map[string]int{}, imported: map[uuid.UUID]bool{}, heard: map[uuid.UUID][]*CallbackRow{}}
	j.forged = forgedOf(rules.Forged)
	if rules.Database != nil {
		for i := range rules.Database.Payments {
			if p := &rules.Database.Payments[i]; p.Imported {
				j.imported[p.ID] = true
			}
		}
		for i := range rules.Database.Callbacks {
			c := &rules.Database.Callbacks[i]
			j.heard[c.Payment] = append(j.heard[c.Payment], c)
		}
	}
	return j
}

// Judge checks all that topics, tables and the channels' ledgers show.
func Judge(e *Evidence, rules Rules) Verdict { return newJudge(e, rules).verdict() }

// Outstanding says what is still to come, and nothing when everything has: it is
// what a run waits for. The ledgers need not be there yet.
func Outstanding(e *Evidence, rules Rules) []string { return newJudge(e, rules).outstanding() }

func (j *judge) verdict() Verdict {
	j.evidence.fileLedgers()
	j.unclaimed()
	for _, v := range j.evidence.arrivals {
		if v.dossier != nil && j.imported[v.dossier.id] {
			j.retried(v)
			continue
		}
		j.arrival(v)
	}
	for _, d := range j.evidence.dossiers {
		if j.imported[d.id] {
			continue
		}
		j.charge(d)
		j.evident(d)
		j.sticky(d)
		j.order(d)
		j.outcomes(d)
		j.delivered(d)
		j.ended(d)
		j.punctual(d)
	}
	j.forgeries()
	j.obligations()
	j.shared()
	j.fulfilled()
	j.told()
	j.callbacks()
	j.budgets()
	j.askedEnough()
	j.tables()
	j.downstream()
	j.limits()
	return Verdict{Counts: j.count(), Guarantees: Tally(j.checked, j.violations), Violations: j.violations, Unchecked: j.unchecked}
}

// unclaimed: no message and no charge is about something that nobody asked for.
// Where old commands may be gone, what they led to looks so.
func (j *judge) unclaimed() {
	if j.rules.Incomplete {
		j.unseen("G6", "messages and charges that no command asked for", "old commands are gone from the topic")
		return
	}
	for _, s := range j.evidence.strays {
		j.brokenf(s.guarantee, s.key, "%s", s.text)
	}
	for i := range j.evidence.letters {
		l := &j.evidence.letters[i]
		j.brokenf("G5", l.key, "the dead letter at %s names no record it comes from", l.place)
	}
	for _, r := range j.evidence.open {
		if j.imported[r.payment] {
			continue
		}
		j.brokenf("G5", r.key.String(), "the reply at %s answers no delivery of its payment", r.place)
	}
	var orphans []*event
	for _, d := range j.evidence.byID {
		if len(d.arrivals) == 0 && !j.imported[d.id] {
			orphans = append(orphans, d.events...)
		}
	}
	slices.SortFunc(orphans, func(a, b *event) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	for _, e := range orphans {
		j.brokenf("G6", e.key.String(), "the event at %s is about a payment that no command asked for", e.place)
	}
}

// retried: whoever repeats an imported payment is answered as a repeat, and is
// never the first (G2).
func (j *judge) retried(v *arrival) {
	j.check("G2")
	if !answered(v) && !j.running(v.dossier) {
		j.brokenf("G5", v.dossier.key(), "no reply and no dead letter for the record at %s", v.place)
	}
	for _, r := range v.replies {
		if !r.replayed && r.kind != payment.ReplyConflict {
			j.brokenf("G2", v.dossier.key(), "a retry of an imported payment was answered %s, not as a repeat, at %s", r.kind, r.place)
		}
	}
}

// running reports whether a payment may still be on its way.
func (j *judge) running(d *dossier) bool {
	if j.rules.Running == nil {
		return false
	}
	return j.rules.Running(d.id, d.arrivals[len(d.arrivals)-1].at)
}

// fresh reports whether a record that belongs to no payment came in lately.
func (j *judge) fresh(v *arrival) bool {
	return j.rules.Running != nil && j.rules.Running(uuid.Nil, v.at)
}

func (j *judge) check(guarantee string) { j.checked[guarantee]++ }

func (j *judge) brokenf(guarantee, key, format string, args ...any) {
	j.violations = append(j.violations, Violation{Guarantee: guarantee, Key: key, Text: fmt.Sprintf(format, args...)})
}

// Tally sums up by guarantee; what was neither checked nor broken is left out.
func Tally(checked map[string]int, violations []Violation) []Held {
	var out []Held
	for _, h := range guarantees {
		h.Checked = checked[h.Guarantee]
		for _, v := range violations {
			if v.Guarantee == h.Guarantee {
				h.Violations++
			}
		}
		if h.Checked > 0 || h.Violations > 0 {
			out = append(out, h)
		}
	}
	return out
}

// foreign reports whether the payment's caller may not publish.
func (j *judge) foreign(d *dossier) bool {
	return j.rules.Callers != nil && !slices.Contains(j.rules.Callers, d.identity.Caller)
}

func (j *judge) outstanding() []string {
	missing := []string{}
	for _, v := range j.evidence.arrivals {
		if !answered(v) && !j.waitsForOutcome(v) {
			missing = append(missing, "an answer to "+v.place.String())
		}
	}
	for _, d := range j.evidence.dossiers {
		if s := d.state(); !j.foreign(d) && !s.Terminal() && s != payment.Review && (s != 0 || len(d.first().dead) == 0) {
			missing = append(missing, fmt.Sprintf("an end of %s (%s now)", d.key(), stateName(s)))
		}
	}
	return missing
}

func stateName(s payment.State) string {
	if s == 0 {
		return "nothing heard"
	}
	return s.String()
}

// answered reports whether a record led to a reply or a dead letter.
func answered(v *arrival) bool { return len(v.replies) > 0 || len(v.dead) > 0 }

// waitsForOutcome reports whether the record is the first delivery of a payment
// in review: its reply comes with the outcome.
func (j *judge) waitsForOutcome(v *arrival) bool {
	return v.dossier != nil && v.number == 0 && v.dossier.state() == payment.Review
}
