package payment

import (
	"fmt"
	"slices"
)

// State is where a payment stands. The numbers are stored; never renumber.
type State int16

// The states of a payment. Pending, Unknown and Review are unresolved: the
// payment holds its obligation. Succeeded, Declined and Rejected are terminal
// and never change again (G9).
const (
	// Pending: claimed; a send may be under way, or the payment is parked
	// because its channel does not admit it now.
	Pending State = 1
	// Unknown: we sent, or may have sent, and have no authoritative answer.
	Unknown State = 2
	// Review: a person is told; unresolved until there is evidence.
	Review State = 3
	// Succeeded: the provider's own evidence says the money was taken.
	Succeeded State = 4
	// Declined: the provider's own evidence says it was not and will not be.
	Declined State = 5
	// Rejected: refused before any send, remembered under its key (G2).
	Rejected State = 6
)

var stateNames = map[State]string{
	Pending: "pending", Unknown: "unknown", Review: "review",
	Succeeded: "succeeded", Declined: "declined", Rejected: "rejected",
}

// String returns the state's name as messages and tables show it.
func (s State) String() string {
	if name, ok := stateNames[s]; ok {
		return name
	}
	return fmt.Sprintf("state(%d)", int16(s))
}

// MarshalText writes the state's name; an unknown state is an error.
func (s State) MarshalText() ([]byte, error) {
	name, ok := stateNames[s]
	if !ok {
		return nil, fmt.Errorf("state %d has no name", int16(s))
	}
	return []byte(name), nil
}

// UnmarshalText reads a state's name.
func (s *State) UnmarshalText(text []byte) error {
	for state, name := range stateNames {
		if name == string(text) {
			*s = state
			return nil
		}
	}
	return fmt.Errorf("unknown payment state %q", text)
}

// Terminal reports whether the state never changes again (G9).
func (s State) Terminal() bool { return s == Succeeded || s == Declined || s == Rejected }

// Unresolved reports whether a payment in this state holds its obligation.
func (s State) Unresolved() bool { return s == Pending || s == Unknown || s == Review }

// transitions is the one table of state changes. Zero is "no row yet". Only a
// payment that is still pending may have been never sent, so only that one can
// end as Rejected; one in review that was never sent is closed as Declined.
var transitions = map[State][]State{
	0:       {Pending, Rejected, Review, Succeeded, Declined},
	Pending: {Unknown, Review, Succeeded, Declined, Rejected},
	Unknown: {Review, Succeeded, Declined},
	Review:  {Succeeded, Declined},
}

// CanBecome reports whether the table allows the change. Terminal states allow
// none (G4, G9).
func (s State) CanBecome(next State) bool {
	return slices.Contains(transitions[s], next)
}
