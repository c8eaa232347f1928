package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind names a way to misbehave.
type Kind string

// What the provider decides about a charge, instead of settling it at once.
const (
	// Declined: an explicit decline (402).
	Declined Kind = "declined"
	// Refused: the request cannot be accepted (422).
	Refused Kind = "refused"
	// Authorized: the money is reserved, never taken.
	Authorized Kind = "authorized"
	// LateSettlement: answered "processing" (202), settled after the duration.
	LateSettlement Kind = "late_settlement"
	// WrongAmount: one minor unit less is charged and echoed.
	WrongAmount Kind = "wrong_amount"
	// WrongCurrency: another currency is charged and echoed.
	WrongCurrency Kind = "wrong_currency"
)

// Faults before the execution: the charge is not executed by this request.
const (
	// AccountRefused: 401.
	AccountRefused Kind = "account_refused"
	// Throttled: 429 with Retry-After; after the execution where the behaviour
	// does not promise otherwise.
	Throttled Kind = "throttled"
	// ErrorBefore: 503.
	ErrorBefore Kind = "error_before"
	// ResetBefore: the connection is reset.
	ResetBefore Kind = "reset_before"
	// InProgress: 409, "this key is being processed".
	InProgress Kind = "in_progress"
	// Redirect: 307 to the same path.
	Redirect Kind = "redirect"
	// Blackhole: no answer until the client leaves or the duration is over.
	Blackhole Kind = "blackhole"
)

// Faults around the execution.
const (
	// Late: the request is held for the duration and then executed, also when the
	// client has given up; beyond LongestExecution it is dropped.
	Late Kind = "late"
	// Forgotten: the key is forgotten before this send.
	Forgotten Kind = "forgotten"
	// LookupLag: lookups lag behind this execution by the duration.
	LookupLag Kind = "lookup_lag"
)

// Faults after the execution: the charge is in the ledger.
const (
	// LostAnswer: the connection is reset.
	LostAnswer Kind = "lost_answer"
	// Hangup: the connection is closed cleanly, without an answer.
	Hangup Kind = "hangup"
	// ErrorAfter: 500.
	ErrorAfter Kind = "error_after"
	// Slow: the answer comes after the duration.
	Slow Kind = "slow"
	// Garbage: 200 with something that is no answer.
	Garbage Kind = "garbage"
	// Truncated: the answer ends in its middle.
	Truncated Kind = "truncated"
	// WrongKey: the answer is about another provider key.
	WrongKey Kind = "wrong_key"
	// NoEcho: the answer does not repeat key, amount and currency.
	NoEcho Kind = "no_echo"
)

// Faults of lookups.
const (
	// QueryError: 503.
	QueryError Kind = "query_error"
	// QueryLost: the connection is reset.
	QueryLost Kind = "query_lost"
	// QuerySlow: the answer comes after the duration.
	QuerySlow Kind = "query_slow"
	// QueryGarbage: 200 with something that is no answer.
	QueryGarbage Kind = "query_garbage"
	// QueryHidden: "not found", whatever the books say.
	QueryHidden Kind = "query_hidden"
	// QueryThrottled: 429.
	QueryThrottled Kind = "query_throttled"
	// QueryAccountRefused: 401.
	QueryAccountRefused Kind = "query_account_refused"
)

// kinds is every kind there is, in the order of the list above.
var kinds = []Kind{
	Declined, Refused, Authorized, LateSettlement, WrongAmount, WrongCurrency,
	AccountRefused, Throttled, ErrorBefore, ResetBefore, InProgress, Redirect, Blackhole,
	Late, Forgotten, LookupLag,
	LostAnswer, Hangup, ErrorAfter, Slow, Garbage, Truncated, WrongKey, NoEcho,
	QueryError, QueryLost, QuerySlow, QueryGarbage, QueryHidden, QueryThrottled, QueryAccountRefused,
	CallbackMissing, CallbackDuplicate, CallbackLate, CallbackEarly, CallbackReordered,
	CallbackForged, CallbackStale, CallbackOpposite, CallbackWrongAmount, CallbackGarbage, CallbackRefund, CallbackPartRefund,
}

// Kinds returns every kind of fault.
func Kinds() []Kind { return slices.Clone(kinds) }

func (k Kind) known() bool { return slices.Contains(kinds, k) }

func (k Kind) ofQuery() bool { return strings.HasPrefix(string(k), "query_") }

const (
	// everySend is the send of a fault that strikes all of them.
	everySend = 0
	// faultDuration is the duration of a fault that names none.
	faultDuration = time.Second
)

// Fault is one scripted misbehaviour.
type Fault struct {
	Kind Kind
	// Send is the send (or query) of the provider key that is struck; 0 strikes all.
	Send int
	// For is the duration of kinds that have one. Defaults to 1 s.
	For time.Duration
}

// ParseFaults reads "kind[@n|@*][:duration],…". A fault without @ strikes the
// given send.
func ParseFaults(text string, send int) ([]Fault, error) {
	var faults []Fault
	for part := range strings.SplitSeq(text, ",") {
		fault, err := parseFault(strings.TrimSpace(part), send)
		if err != nil {
			return nil, fmt.Errorf("read fault %q: %w", part, err)
		}
		faults = append(faults, fault)
	}
	return faults, nil
}

func parseFault(text string, send int) (Fault, error) {
	fault := Fault{Send: send, For: faultDuration}
	rest, duration, timed := strings.Cut(text, ":")
	kind, at, numbered := strings.Cut(rest, "@")
	fault.Kind = Kind(kind)
	if !fault.Kind.known() {
		return Fault{}, errors.New("there is no such kind")
	}
	var err error
	if timed {
		if fault.For, err = time.ParseDuration(duration); err != nil || fault.For < 0 {
			return Fault{}, errors.New("the duration is not one")
		}
	}
	if numbered {
		if fault.Send, err = parseSend(at); err != nil {
			return Fault{}, err
		}
	}
	return fault, nil
}

func parseSend(at string) (int, error) {
	if at == "*" {
		return everySend, nil
	}
	send, err := strconv.Atoi(at)
	if err != nil || send < 1 {
		return 0, errors.New("the send is neither * nor a number from 1")
	}
	return send, nil
}

// amountFaults gives the last two digits of an amount their fault.
var amountFaults = map[int64]Kind{
	2: Declined, 3: Refused, 4: Authorized, 5: LateSettlement, 6: WrongAmount, 7: WrongCurrency,
	11: AccountRefused, 12: Throttled, 13: ErrorBefore, 14: ResetBefore, 15: InProgress, 16: Redirect, 17: Blackhole,
	21: Late, 22: LookupLag,
	31: LostAnswer, 32: Hangup, 33: ErrorAfter, 34: Slow, 35: Garbage, 36: Truncated, 37: WrongKey, 38: NoEcho,
	41: QueryError, 42: QueryLost, 43: QuerySlow, 44: QueryGarbage, 45: QueryHidden,
	51: CallbackMissing, 52: CallbackDuplicate, 53: CallbackLate, 54: CallbackEarly, 55: CallbackReordered,
	56: CallbackForged, 57: CallbackStale, 58: CallbackOpposite, 59: CallbackWrongAmount, 60: CallbackGarbage,
	61: CallbackRefund, 62: CallbackPartRefund,
}

// AmountFault is the fault that an amount stands for where Behaviour.AmountFaults
// is set: its last two digits, for instance 1902 is declined and 1931 loses its
// answer. The decision about a charge holds for every send, so that it does not
// depend on how often it was sent; every other fault strikes the first send or
// query only. Empty for amounts without a meaning.
func AmountFault(amount int64) Kind { return amountFaults[amount%100] }

// decides reports whether a kind is a decision about the charge.
func (k Kind) decides() bool {
	switch k {
	case Declined, Refused, Authorized, LateSettlement, WrongAmount, WrongCurrency:
		return true
	default:
		return false
	}
}
