package channel

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// Forever is the duration of a promise that never ends: a key that is never
	// forgotten, a lookup that reaches back to the beginning.
	Forever = time.Duration(math.MaxInt64)
	// Immediate is the lag of a lookup that is documented to have none. A lag of
	// zero says that nobody documented it.
	Immediate = time.Nanosecond
)

// The defaults of what is ours to choose; promises of the provider have none.
const (
	DefaultMaxInFlight   = 256
	DefaultSubmitTimeout = 10 * time.Second
	DefaultQueryTimeout  = 5 * time.Second
)

// Capabilities is what a channel is known to promise. It drives every policy:
// whether an attempt may be sent again, when a decline counts, what "not found"
// proves. The zero value promises nothing, and so does each field that is zero:
// a duration nobody documented is not "at once", it is "nobody knows".
type Capabilities struct {
	// Identity names account, endpoint and mode, without credentials (those
	// rotate). It is recorded when a payment is claimed; a query or resume under
	// another identity is refused. Required.
	Identity string
	// EquivalentIdentities are earlier identities that configuration declares to
	// be the same account. Defaults to none.
	EquivalentIdentities []string

	// IdempotentSubmit says that a provider key is executed once, as long as it
	// is remembered. Without it an attempt is sent at most once, ever.
	IdempotentSubmit bool
	// KeyMemory is how long the provider remembers a key, counted from its first
	// sight of it. No send may be executed later than that (memory rule).
	KeyMemory time.Duration
	// PinsFailures says that every failure the adapter classes as declined or
	// refused is answered again to a repeat of its key, as long as it is
	// remembered. A provider that pins declines but validates anew does not pin.
	PinsFailures bool

	// Query says that a charge can be looked up by our provider key.
	Query bool
	// VisibilityLag is how far the lookup may lag behind an execution; Immediate
	// when it is documented never to. Zero: a decline that needs a query cannot
	// be concluded, and "not found" means nothing.
	VisibilityLag time.Duration
	// QueryReach is how far back the lookup reaches, counted from the attempt's
	// first permit; Forever when there is no limit.
	QueryReach time.Duration
	// NotFoundIsProof says that "not found", past the lag and with no send
	// alive, proves that nothing was and will be executed.
	NotFoundIsProof bool

	// LongestExecution is how long after a send's deadline the provider, or the
	// network before it, may still execute the request. Zero: a send is never
	// known to be dead.
	LongestExecution time.Duration

	// MaxInFlight bounds the submits under way at once in each consumer and reconciler
	// process: divide what the provider allows by their number.
	// Defaults to 256.
	MaxInFlight int
	// RateLimit bounds submits per second over all instances. Zero means no limit.
	RateLimit float64
	// SubmitTimeout is the deadline of one send. Defaults to 10 s.
	SubmitTimeout time.Duration
	// QueryTimeout is the deadline of one query. Defaults to 5 s.
	QueryTimeout time.Duration
	// ThrottleNotApplied says that a request answered 429 was not executed and
	// will not be. Without it such an answer is unknown.
	ThrottleNotApplied bool
}

// WithDefaults returns a copy with the limits and timeouts that were left zero
// set to their defaults. Promises of the provider are never defaulted.
func (c Capabilities) WithDefaults() Capabilities {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, DefaultMaxInFlight)
	c.SubmitTimeout = cmp.Or(c.SubmitTimeout, DefaultSubmitTimeout)
	c.QueryTimeout = cmp.Or(c.QueryTimeout, DefaultQueryTimeout)
	return c
}

// SameIdentity reports whether a payment claimed under the given identity may be
// queried or resumed here. An empty claim is never the same.
func (c Capabilities) SameIdentity(claimed string) bool {
	return claimed != "" && (claimed == c.Identity || slices.Contains(c.EquivalentIdentities, claimed))
}
