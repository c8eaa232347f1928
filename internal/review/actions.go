package review

import (
	"fmt"
	"time"

	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
)

// Action is one thing an operator may want to do.
type Action struct {
	// Name is a word: requery, attempt, declined, statement, succeeded or settled.
	Name string `json:"action"`
	// Possible says that it may be done now.
	Possible bool `json:"possible"`
	// AsksFirst says that the provider is asked first, and its answer decides.
	AsksFirst bool `json:"asksFirst,omitempty"`
	// Refused is why it may not be done.
	Refused string `json:"refused,omitempty"`
	// PossibleAt is when it will be; nil when waiting does not help, or nobody knows.
	PossibleAt *time.Time `json:"possibleAt,omitempty"`
	// Command is what to type.
	Command string `json:"command"`
}

// The names of actions.
const (
	Requery   = "requery"
	Attempt   = "attempt"
	Declined  = "declined"
	Statement = "statement"
	Succeeded = "succeeded"
	Settled   = "settled"
)

// Actions say what may be done with a payment.
func Actions(rules *settle.Rules, l store.Locked) []Action {
	id := l.Payment.ID.String()
	return []Action{
		action(Requery, "settleonce review requery "+id, rules.MayRequery(l)),
		action(Declined, "settleonce review resolve "+id+" --as declined --evidence TEXT", rules.MayResolve(l, nil)),
		action(Statement, "settleonce review resolve "+id+" --as declined --statement FILE --second-actor NAME", rules.MayAttest(l)),
		action(Succeeded, "settleonce review resolve "+id+" --as succeeded --evidence REFERENCE --statement FILE --second-actor NAME",
			rules.MayConfirm(l, settle.Success{Reference: "any"})),
		action(Attempt, "settleonce review attempt "+id, rules.MayOpenAttempt(l, nil)),
	}
}

func action(name, command string, refusal *settle.RefusalError) Action {
	a := Action{Name: name, Command: command, Possible: refusal == nil}
	switch {
	case refusal == nil:
	case refusal.Asks() && refusal.Possible.IsZero():
		a.Possible, a.AsksFirst = true, true
	default:
		a.Refused = refusal.Reason
		if !refusal.Possible.IsZero() {
			at := refusal.Possible.UTC()
			a.PossibleAt = &at
		}
	}
	return a
}

func settled(item store.ReviewItem) Action {
	return Action{Name: Settled, Possible: true, Command: fmt.Sprintf("settleonce review resolve %d --as settled --evidence REFERENCE", item.ID)}
}
