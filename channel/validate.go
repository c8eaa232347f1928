package channel

import (
	"errors"
	"slices"
)

// rule is one demand on a capability record and the sentence that says what to change.
type rule struct {
	broken   func(c Capabilities) bool
	sentence string
}

// rules are all demands on a record. They refuse what contradicts itself, since
// a promise that silently counts for nothing surprises its owner in an outage.
var rules = []rule{
	{
		func(c Capabilities) bool { return c.Identity == "" },
		"Identity is empty: set it to the account, endpoint and mode of the channel",
	},
	{
		func(c Capabilities) bool { return slices.Contains(c.EquivalentIdentities, "") },
		"EquivalentIdentities holds an empty identity: remove it",
	},
	{
		func(c Capabilities) bool { return c.negative() },
		"a duration, limit or rate is negative: use 0 for not documented or no limit",
	},
	{
		func(c Capabilities) bool { return c.MaxInFlight == 0 || c.SubmitTimeout == 0 || c.QueryTimeout == 0 },
		"MaxInFlight, SubmitTimeout or QueryTimeout is 0: set them or use WithDefaults",
	},
	{
		func(c Capabilities) bool { return c.IdempotentSubmit && c.KeyMemory == 0 },
		"IdempotentSubmit without KeyMemory permits no second send: set KeyMemory (Forever if keys are never forgotten) or switch IdempotentSubmit off",
	},
	{
		func(c Capabilities) bool { return c.IdempotentSubmit && c.LongestExecution == 0 },
		"IdempotentSubmit without LongestExecution permits no second send: set LongestExecution or switch IdempotentSubmit off",
	},
	{
		func(c Capabilities) bool { return !c.IdempotentSubmit && c.KeyMemory != 0 },
		"KeyMemory without IdempotentSubmit promises nothing: set it to 0 or switch IdempotentSubmit on",
	},
	{
		func(c Capabilities) bool { return c.PinsFailures && !c.IdempotentSubmit },
		"PinsFailures needs IdempotentSubmit: switch PinsFailures off",
	},
	{
		func(c Capabilities) bool { return c.Query && c.QueryReach == 0 },
		"Query without QueryReach sees nothing: set QueryReach (Forever if there is no limit) or switch Query off",
	},
	{
		func(c Capabilities) bool { return !c.Query && (c.VisibilityLag != 0 || c.QueryReach != 0) },
		"VisibilityLag or QueryReach without Query promises nothing: set them to 0 or switch Query on",
	},
	{
		func(c Capabilities) bool { return c.NotFoundIsProof && !c.Query },
		"NotFoundIsProof needs Query: switch NotFoundIsProof off",
	},
	{
		func(c Capabilities) bool {
			return c.NotFoundIsProof && (c.VisibilityLag == 0 || c.LongestExecution == 0)
		},
		"NotFoundIsProof needs VisibilityLag (Immediate if there is none) and LongestExecution: set them or switch NotFoundIsProof off",
	},
}

// Validate reports every rule the record breaks, one sentence each that says
// what to change; nil when it is sound.
func (c Capabilities) Validate() error {
	var errs []error
	for _, r := range rules {
		if r.broken(c) {
			errs = append(errs, errors.New(r.sentence))
		}
	}
	return errors.Join(errs...)
}

func (c Capabilities) negative() bool {
	return c.KeyMemory < 0 || c.VisibilityLag < 0 || c.QueryReach < 0 || c.LongestExecution < 0 ||
		c.MaxInFlight < 0 || c.RateLimit < 0 || c.SubmitTimeout < 0 || c.QueryTimeout < 0
}
