package check

import (
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
	{Guarantee: "G7", Name: "one transaction", Of: "rows in the database against events"},
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
	// Never says that nobody must ever hear of it.
	Never bool
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
	// AnyReview allows every payment to end in review, also one that the channel
	// never saw: where a send may not be repeated, a person decides.
	AnyReview bool
	// Within is how long queries were counted, Share and Floor the retry budget: a
	// share of the submits, and queries per second. Zero leaves the budget out.
	Within       time.Duration
	Share, Floor float64
	// Incomplete says that old records may be gone from the topics, so that what
	// answers them is not out of the blue.
	Incomplete bool
	// Database is what the tables say; nil leaves them out.
	Database *Database
	// Running reports whether a payment or record may still be on its way: then it
	// is no fault that its end or answer is not there. Nil: everything has ended.
	Running func(payment uuid.UUID, at time.Time) bool
}

// judge looks at everything. It knows the rules, and nothing else but the
// evidence.
type judge struct {
	archive *archive
	rules   Rules
	// queries are those that arrived at the channel.
	queries int

	checked    map[string]int
	violations []Violation
}

func newJudge(e *Evidence, rules Rules) *judge {
	return &judge{archive: file(e), rules: rules, queries: e.Queries, checked: map[string]int{}}
}

// Judge checks all that topics and the channel's ledger show.
func Judge(e *Evidence, rules Rules) Verdict { return newJudge(e, rules).verdict() }

// Outstanding says what is still to come, and nothing when everything has: it is
// what a run waits for.
func Outstanding(e *Evidence, rules Rules) []string { return newJudge(e, rules).outstanding() }

func (j *judge) verdict() Verdict {
	if !j.rules.Incomplete {
		for _, s := range j.archive.strays {
			j.brokenf(s.guarantee, s.key, "%s", s.text)
		}
	}
	for _, v := range j.archive.arrivals {
		j.arrival(v)
	}
	for _, d := range j.archive.dossiers {
		j.charge(d)
		j.evidence(d)
		j.sticky(d)
		j.order(d)
		j.outcomes(d)
		j.ended(d)
		j.punctual(d)
	}
	j.obligations()
	j.shared()
	j.fulfilled()
	j.budget()
	j.tables()
	return Verdict{Counts: j.count(), Guarantees: Tally(j.checked, j.violations), Violations: j.violations}
}

// running reports whether a payment may still be on its way.
func (j *judge) running(d *dossier) bool {
	if j.rules.Running == nil {
		return false
	}
	return j.rules.Running(d.id, d.arrivals[len(d.arrivals)-1].record.Time)
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

func (d *dossier) key() string { return d.identity.Key.String() }

// foreign reports whether the payment's caller may not publish.
func (j *judge) foreign(d *dossier) bool {
	return j.rules.Callers != nil && !slices.Contains(j.rules.Callers, d.identity.Caller)
}

func (j *judge) outstanding() []string {
	missing := []string{}
	for _, v := range j.archive.arrivals {
		if !answered(v) && !j.waitsForOutcome(v) {
			missing = append(missing, "an answer to "+placeOf(v.record).String())
		}
	}
	for _, d := range j.archive.dossiers {
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
