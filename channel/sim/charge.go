package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Status is what the provider's books say about a charge.
type Status string

// The statuses of a charge; empty while nothing was executed.
const (
	StatusSettled    Status = "settled"
	StatusDeclined   Status = "declined"
	StatusRefused    Status = "refused"
	StatusProcessing Status = "processing"
	StatusAuthorized Status = "authorized"
)

func (s Status) failed() bool { return s == StatusDeclined || s == StatusRefused }

// Content is what is asked for in a charge.
type Content struct {
	Amount    int64             `json:"amount"`
	Currency  string            `json:"currency"`
	Customer  string            `json:"customer,omitempty"`
	Method    string            `json:"method,omitempty"`
	Order     string            `json:"order,omitempty"`
	PaymentID string            `json:"paymentId,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

func (c *Content) equal(other *Content) bool {
	return c.Amount == other.Amount && c.Currency == other.Currency && c.Customer == other.Customer &&
		c.Method == other.Method && c.Order == other.Order && c.PaymentID == other.PaymentID &&
		maps.Equal(c.Metadata, other.Metadata)
}

// Charge is everything the ledger knows about one provider key.
type Charge struct {
	Content

	ProviderKey uuid.UUID `json:"providerKey"`
	// Status is the truth of the books. A settlement is never overwritten.
	Status Status `json:"status"`
	// Reference is the provider's id of the execution the status comes from.
	Reference string `json:"reference,omitempty"`
	// BookedAmount and BookedCurrency are what was really charged.
	BookedAmount   int64  `json:"bookedAmount,omitempty"`
	BookedCurrency string `json:"bookedCurrency,omitempty"`
	// Requests counts the submits that arrived, Executions those that were executed.
	Requests   int `json:"requests"`
	Executions int `json:"executions"`
	// Settled counts how often the money was taken: more than once is a double charge.
	Settled int `json:"settled"`
	// Declined counts executions that ended declined or refused.
	Declined int `json:"declined"`
	// Queries counts lookups since the server started.
	Queries int `json:"queries"`
	// QueriedAt are the times of the first of them, a few at most.
	QueriedAt []time.Time `json:"queriedAt,omitempty"`
	// FirstAt and LastAt are the times of the first and latest line about the key.
	FirstAt time.Time `json:"firstAt"`
	LastAt  time.Time `json:"lastAt"`
	// SettledAt is when the money was taken first.
	SettledAt *time.Time `json:"settledAt,omitempty"`
}

// lineKind says what a line of the ledger records.
type lineKind string

const (
	lineExecuted lineKind = "executed" // a request was executed, with the status it ended in
	lineRepeated lineKind = "repeated" // a remembered answer was given again
	lineDropped  lineKind = "dropped"  // a request was not executed
	lineSettled  lineKind = "settled"  // a charge in processing was settled
)

// line is one line of the ledger. Everything the books know comes from lines, so
// that a restart knows the same.
type line struct {
	At   time.Time `json:"at"`
	Kind lineKind  `json:"kind"`
	Key  uuid.UUID `json:"key"`
	// Send is the number of the request under its key.
	Send int `json:"send,omitempty"`
	// Why is the fault or limit behind it.
	Why       string   `json:"why,omitempty"`
	Status    Status   `json:"status,omitempty"`
	Reference string   `json:"reference,omitempty"`
	Amount    int64    `json:"booked,omitempty"`
	Currency  string   `json:"bookedCurrency,omitempty"`
	Forgot    bool     `json:"forgot,omitempty"`
	Lag       int64    `json:"lagNanos,omitempty"`
	SettleAt  int64    `json:"settleAt,omitempty"` // Unix nanoseconds
	Content   *Content `json:"content,omitempty"`
}

// entry is one provider key in the books; its shard's lock guards it.
type entry struct {
	Charge

	// remembered is the status the key is answered with, empty when it is unknown.
	remembered Status
	// rememberedFrom is when the memory of the key began.
	rememberedFrom time.Time
	// answer is the reference and booking a repeat is answered with.
	answer booking
	// underWay counts requests between arrival and execution.
	underWay int
	// history is the books over time, for lookups that lag.
	history []change
	// settleAt is when a charge in processing settles.
	settleAt time.Time
}

// booking is what one execution charged.
type booking struct {
	reference string
	amount    int64
	currency  string
}

// change is one state of the books and since when lookups can see it.
type change struct {
	visible time.Time
	status  Status
	booking booking
}

// apply changes the entry as a line says. It is used for new lines and at start.
func (e *entry) apply(l *line) {
	if e.FirstAt.IsZero() {
		e.FirstAt = l.At
	}
	e.LastAt = l.At
	e.Requests = max(e.Requests, l.Send)
	if l.Content != nil && e.Content.Currency == "" {
		e.Content = *l.Content
	}
	switch l.Kind {
	case lineExecuted:
		e.executed(l)
	case lineSettled:
		e.remembered = StatusSettled
		e.answer = booking{l.Reference, l.Amount, l.Currency}
		e.book(l)
	case lineRepeated, lineDropped:
	}
}

func (e *entry) executed(l *line) {
	e.Executions++
	if e.remembered == "" || l.Forgot {
		e.rememberedFrom = l.At
	}
	e.remembered = l.Status
	e.answer = booking{l.Reference, l.Amount, l.Currency}
	if l.Status.failed() {
		e.Declined++
	}
	if l.SettleAt > 0 {
		e.settleAt = time.Unix(0, l.SettleAt)
	}
	e.book(l)
}

// book writes the truth: what was settled stays settled, whatever comes later.
func (e *entry) book(l *line) {
	if l.Status == StatusSettled {
		e.Settled++
	}
	if e.Status == StatusSettled {
		return
	}
	if l.Status == StatusSettled {
		at := l.At
		e.SettledAt = &at
	}
	e.Status, e.Reference, e.BookedAmount, e.BookedCurrency = l.Status, l.Reference, l.Amount, l.Currency
	e.history = append(e.history, change{
		visible: l.At.Add(time.Duration(l.Lag)), status: l.Status,
		booking: booking{l.Reference, l.Amount, l.Currency},
	})
}

// seen is what a lookup shows with a lag: the latest state that is old enough.
func (e *entry) seen(now time.Time, lag time.Duration) (change, bool) {
	for _, c := range slices.Backward(e.history) {
		if !c.visible.Add(lag).After(now) {
			return c, true
		}
	}
	return change{}, false
}
