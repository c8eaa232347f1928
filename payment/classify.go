package payment

import (
	"fmt"
	"slices"
)

// Op is which of a channel's operations an exchange belongs to.
type Op int

// The operations whose answers are classified.
const (
	// OpSubmit asks the provider to charge.
	OpSubmit Op = iota
	// OpQuery asks what became of an earlier submit.
	OpQuery
)

// Wire is how far an exchange got. The zero value is the one that proves nothing.
type Wire int

// How far an exchange got on the wire.
const (
	// WireNoAnswer: bytes may have reached the provider, no whole answer came back:
	// timeout, reset, truncated answer.
	WireNoAnswer Wire = iota
	// WireNotSent: no byte left: connection refused, breaker open, local rejection.
	WireNotSent
	// WireAnswered: a whole answer was read; Status holds.
	WireAnswered
)

// Verdict is what the adapter read in the body of an answer, in our words.
type Verdict int

// The verdicts an adapter can read in an answer.
const (
	// VerdictNone: unparsable, or nothing this adapter knows.
	VerdictNone Verdict = iota
	// VerdictSettled: the provider says the charge is done.
	VerdictSettled
	// VerdictDeclined: the provider says explicitly that it will not charge.
	VerdictDeclined
	// VerdictRefused: the provider cannot accept this request: expired token, bad field.
	VerdictRefused
	// VerdictProcessing: accepted or under way, not decided.
	VerdictProcessing
	// VerdictAuthorized: money reserved, not taken.
	VerdictAuthorized
	// VerdictReversed: it was settled or reserved and has been given back.
	VerdictReversed
	// VerdictNotFound: the provider has no such charge.
	VerdictNotFound
)

// Echo is how the amount, currency and provider key in an answer compare with
// what was asked for (P19, P32).
type Echo int

// How an answer's echo compares.
const (
	// EchoAbsent: the answer does not repeat all of them.
	EchoAbsent Echo = iota
	// EchoEqual: amount, currency and provider key are ours.
	EchoEqual
	// EchoDiffers: at least one of them is not.
	EchoDiffers
)

// Exchange is one submit or query as the adapter saw it. Its zero value
// classifies as unknown.
type Exchange struct {
	Operation Op
	Wire      Wire
	// Status is the HTTP status, or what stands for it; 0 without an answer.
	Status  int
	Verdict Verdict
	Echo    Echo
	// NotApplied: a 429 that the provider documents as never executed.
	NotApplied bool
}

// Classify says what an exchange means for the payment. It is total: whatever no
// row of the table covers is unknown, which is re-queried and never guessed (G3).
func Classify(e Exchange) Class {
	for i := range classification {
		if classification[i].covers(e) {
			return classification[i].class
		}
	}
	return ClassUnknown
}

// classRow is one line of the table. A nil list means "any"; the first row that
// covers an exchange decides.
type classRow struct {
	ops        []Op
	wire       Wire
	statuses   []statusKind
	verdicts   []Verdict
	echoes     []Echo
	notApplied bool // the row needs NotApplied
	class      Class
}

// classification is the table of DESIGN section 5. Contradictory answers (a 500
// that says "declined", a 429 that says "settled") are covered by no row.
var classification = []classRow{
	{wire: WireNotSent, class: ClassNotSent},

	// What the provider says about the payment, in an answer that is one.
	{
		wire: WireAnswered, statuses: []statusKind{statusSuccess}, verdicts: []Verdict{VerdictSettled},
		echoes: []Echo{EchoEqual}, class: ClassSucceeded,
	},
	{
		wire: WireAnswered, statuses: []statusKind{statusSuccess}, verdicts: []Verdict{VerdictSettled},
		echoes: []Echo{EchoDiffers}, class: ClassMismatched,
	},
	{
		wire: WireAnswered, statuses: []statusKind{statusSuccess},
		verdicts: []Verdict{VerdictAuthorized, VerdictReversed}, class: ClassMismatched,
	},
	{wire: WireAnswered, statuses: []statusKind{statusSuccess}, verdicts: []Verdict{VerdictDeclined}, class: ClassDeclined},
	{wire: WireAnswered, statuses: []statusKind{statusSuccess}, verdicts: []Verdict{VerdictRefused}, class: ClassRefused},

	// A submit may also be answered in the 4xx range. A decline there is a decline
	// whatever the number, else it could be sent again (G4).
	{
		ops: []Op{OpSubmit}, wire: WireAnswered, statuses: []statusKind{statusClient, statusAbsent, statusAccount},
		verdicts: []Verdict{VerdictDeclined}, class: ClassDeclined,
	},
	{
		ops: []Op{OpSubmit}, wire: WireAnswered, statuses: []statusKind{statusClient, statusAbsent},
		verdicts: []Verdict{VerdictRefused}, class: ClassRefused,
	},

	// The account, not the payment: only where the body does not speak of a charge.
	{
		wire: WireAnswered, statuses: []statusKind{statusAccount},
		verdicts: []Verdict{VerdictNone, VerdictRefused, VerdictNotFound}, class: ClassAccountRefused,
	},

	// Throttled: a submit only if it cannot have been applied; a query applies nothing.
	{
		ops: []Op{OpSubmit}, wire: WireAnswered, statuses: []statusKind{statusThrottled},
		verdicts: []Verdict{VerdictNone, VerdictRefused}, notApplied: true, class: ClassThrottled,
	},
	{
		ops: []Op{OpQuery}, wire: WireAnswered, statuses: []statusKind{statusThrottled},
		verdicts: []Verdict{VerdictNone, VerdictRefused}, class: ClassThrottled,
	},

	// A submit that "finds nothing" says nothing about itself.
	{
		ops: []Op{OpQuery}, wire: WireAnswered, statuses: []statusKind{statusSuccess, statusAbsent},
		verdicts: []Verdict{VerdictNotFound}, class: ClassNotFound,
	},
}

func (r *classRow) covers(e Exchange) bool {
	return r.wire == e.Wire &&
		(e.NotApplied || !r.notApplied) &&
		anyOf(r.ops, e.Operation) &&
		anyOf(r.statuses, kindOf(e.Status)) &&
		anyOf(r.verdicts, e.Verdict) &&
		anyOf(r.echoes, e.Echo)
}

func anyOf[T comparable](list []T, wanted T) bool {
	return list == nil || slices.Contains(list, wanted)
}

// statusKind is what a status number can mean for us.
type statusKind int

const (
	statusOther     statusKind = iota // 1xx, 3xx, 5xx, none: says nothing
	statusSuccess                     // 2xx
	statusAccount                     // 401, 403
	statusAbsent                      // 404, 410
	statusThrottled                   // 429
	statusRetry                       // 408, 425: "try again" says nothing about the first try
	statusClient                      // other 4xx
)

func kindOf(status int) statusKind {
	switch {
	case status >= 200 && status <= 299:
		return statusSuccess
	case status == 401 || status == 403:
		return statusAccount
	case status == 404 || status == 410:
		return statusAbsent
	case status == 429:
		return statusThrottled
	case status == 408 || status == 425:
		return statusRetry
	case status >= 400 && status <= 499:
		return statusClient
	default:
		return statusOther
	}
}

var classNames = map[Class]string{
	ClassUnknown: "unknown", ClassSucceeded: "succeeded", ClassDeclined: "declined", ClassRefused: "refused",
	ClassNotSent: "not_sent", ClassThrottled: "throttled", ClassAccountRefused: "account_refused",
	ClassMismatched: "mismatched", ClassNotFound: "not_found",
}

// String returns the class as metrics and history rows show it.
func (c Class) String() string {
	if name, ok := classNames[c]; ok {
		return name
	}
	return fmt.Sprintf("class(%d)", int(c))
}

// EndsPermit reports whether a submit of this class proves that its own request
// was not executed, so that its permit is over and the attempt may be sent again
// with the same provider key. It says nothing for the class of a query: a query
// that was not sent, throttled or refused is simply no check.
func (c Class) EndsPermit() bool {
	return c == ClassNotSent || c == ClassThrottled || c == ClassAccountRefused
}
