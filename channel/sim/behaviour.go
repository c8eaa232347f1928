package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/settleonce/settleonce/channel"
)

// executionMargin is what a request may take beside the configured latency.
const executionMargin = 2 * time.Second

// Behaviour is what the server promises and how it misbehaves. In JSON,
// durations are strings ("50ms"). The zero value promises nothing.
type Behaviour struct {
	// IdempotentSubmit executes a provider key once, as long as it is remembered.
	IdempotentSubmit bool `json:"idempotentSubmit"`
	// KeyMemory is how long a key is remembered after its first execution. Zero means for ever.
	KeyMemory time.Duration `json:"-"`
	// PinsFailures answers a repeat of a declined or refused key the same; without
	// it the repeat is executed anew.
	PinsFailures bool `json:"pinsFailures"`
	// Query offers the lookup by provider key.
	Query bool `json:"query"`
	// VisibilityLag lets the lookup show the books as they were that long ago.
	VisibilityLag time.Duration `json:"-"`
	// QueryReach hides charges first seen longer ago. Zero means no limit.
	QueryReach time.Duration `json:"-"`
	// NotFoundIsProof is told in the record; the server's lookup never loses a charge.
	NotFoundIsProof bool `json:"notFoundIsProof"`
	// Latency is the time between the arrival of a request and its execution.
	Latency time.Duration `json:"-"`
	// LongestExecution bounds how long after its arrival a request may be executed:
	// one that is held longer is dropped. Defaults to Latency plus 2 s.
	LongestExecution time.Duration `json:"-"`
	// MaxInFlight is the number of requests under way beyond which it answers 429. Zero means no limit.
	MaxInFlight int `json:"maxInFlight"`
	// RateLimit is the submits per second beyond which it answers 429. Zero means no limit.
	RateLimit float64 `json:"rateLimit"`
	// ThrottleNotApplied keeps the promise that a request answered 429 is not
	// executed. Without it a scripted 429 comes after the execution.
	ThrottleNotApplied bool `json:"throttleNotApplied"`
	// AmountFaults switches the faults by amount on; see AmountFault.
	AmountFaults bool `json:"amountFaults"`
	// Rates gives each kind of fault the share of sends (or queries) it strikes, 0 to 1.
	Rates map[Kind]float64 `json:"rates,omitempty"`
	// Seed makes the choice by rate repeatable: it depends on seed, key, send and kind only.
	Seed uint64 `json:"seed"`
}

// DefaultBehaviour is a provider at its best: idempotent for 24 hours, failures
// pinned, a lookup without lag whose "not found" is proof, no latency, no limits.
func DefaultBehaviour() Behaviour {
	return Behaviour{
		IdempotentSubmit: true, KeyMemory: 24 * time.Hour, PinsFailures: true,
		Query: true, NotFoundIsProof: true, ThrottleNotApplied: true,
	}
}

// WithDefaults returns a copy with LongestExecution set.
func (b Behaviour) WithDefaults() Behaviour {
	if b.LongestExecution == 0 {
		b.LongestExecution = b.Latency + executionMargin
	}
	return b
}

// Validate reports every rule the behaviour breaks, one sentence each.
func (b Behaviour) Validate() error {
	b = b.WithDefaults()
	var errs []error
	if b.KeyMemory < 0 || b.VisibilityLag < 0 || b.QueryReach < 0 || b.Latency < 0 || b.MaxInFlight < 0 || b.RateLimit < 0 {
		errs = append(errs, errors.New("a duration, limit or rate is negative: use 0"))
	}
	if b.LongestExecution < b.Latency {
		errs = append(errs, errors.New("longestExecution is shorter than latency: no request would be executed"))
	}
	for kind, rate := range b.Rates {
		if !kind.known() {
			errs = append(errs, fmt.Errorf("rates name the fault %q, which does not exist: use one of %v", kind, Kinds()))
		}
		if !(rate >= 0 && rate <= 1) {
			errs = append(errs, fmt.Errorf("the rate of %q is not between 0 and 1", kind))
		}
	}
	return errors.Join(errs...)
}

// Capabilities is the record that matches the behaviour, under the identity the
// caller gives the channel. Timeouts are the caller's own: they are left to the
// defaults.
func (b Behaviour) Capabilities(identity string) channel.Capabilities {
	b = b.WithDefaults()
	c := channel.Capabilities{
		Identity:           identity,
		IdempotentSubmit:   b.IdempotentSubmit,
		PinsFailures:       b.PinsFailures && b.IdempotentSubmit,
		Query:              b.Query,
		NotFoundIsProof:    b.NotFoundIsProof && b.Query,
		LongestExecution:   b.LongestExecution,
		MaxInFlight:        b.MaxInFlight,
		RateLimit:          b.RateLimit,
		ThrottleNotApplied: b.ThrottleNotApplied,
	}
	if c.IdempotentSubmit {
		c.KeyMemory = orElse(b.KeyMemory, channel.Forever)
	}
	if c.Query {
		c.VisibilityLag = orElse(b.VisibilityLag, channel.Immediate)
		c.QueryReach = orElse(b.QueryReach, channel.Forever)
	}
	return c.WithDefaults()
}

// MarshalJSON writes durations as strings.
func (b Behaviour) MarshalJSON() ([]byte, error) { return json.Marshal(b.shape()) }

// UnmarshalJSON changes the fields that are given and keeps the others. A field
// that it does not know is an error, since it may be a misspelled one.
func (b *Behaviour) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(b.shape())
}

type plainBehaviour Behaviour // without the methods above

// behaviourShape is Behaviour as JSON shows it; its fields point into one.
type behaviourShape struct {
	*plainBehaviour

	KeyMemory        *durationText `json:"keyMemory"`
	VisibilityLag    *durationText `json:"visibilityLag"`
	QueryReach       *durationText `json:"queryReach"`
	Latency          *durationText `json:"latency"`
	LongestExecution *durationText `json:"longestExecution"`
}

func (b *Behaviour) shape() *behaviourShape {
	return &behaviourShape{
		plainBehaviour:   (*plainBehaviour)(b),
		KeyMemory:        (*durationText)(&b.KeyMemory),
		VisibilityLag:    (*durationText)(&b.VisibilityLag),
		QueryReach:       (*durationText)(&b.QueryReach),
		Latency:          (*durationText)(&b.Latency),
		LongestExecution: (*durationText)(&b.LongestExecution),
	}
}

// durationText is a duration that is written as people write it.
type durationText time.Duration

// MarshalText writes the duration as time.Duration prints it.
func (d durationText) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration as time.ParseDuration does.
func (d *durationText) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	*d = durationText(parsed)
	return nil
}

func orElse(d, other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return d
}
