package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Installation says where to look. Everything is only read.
type Installation struct {
	Client   *kafka.Client
	Database Queryer
	Topics   payment.Topics
	// CommandTopics defaults to the one of Topics.
	CommandTopics []string
	// Group is the consumers' group.
	Group string
	// Ledgers are where the channels show their ledgers, by name.
	Ledgers map[string]string
	// Grace is how old something may be that has no end yet, where the installation
	// is at work. Zero means that all work has ended, so that everything must be
	// settled.
	Grace time.Duration
	Rules Rules
}

// ErrNothing says that there is nothing that could be judged.
var ErrNothing = errors.New("there is nothing to check")

// Inspect looks at an installation and judges. What changes while it looks is no
// violation: places are read in an order in which each knows what the one before
// it tells of. An error says that it could not look, or that there is nothing to
// look at (ErrNothing).
func Inspect(ctx context.Context, in Installation) (Verdict, error) {
	tail := NewTail(in.Client, in.Topics)
	if len(in.CommandTopics) > 0 {
		tail.CommandTopics = in.CommandTopics
	}
	if err := tail.Offsets(ctx, in.Group); err != nil {
		return Verdict{}, err
	}
	db, err := ReadDatabase(ctx, in.Database, in.Group)
	if err != nil {
		return Verdict{}, err
	}
	if err := tail.All(ctx); err != nil {
		return Verdict{}, err
	}
	e := tail.Evidence()
	if len(e.arrivals)+len(db.Payments) == 0 {
		return Verdict{}, fmt.Errorf("%w: no command in %s, no payment in the database", ErrNothing, strings.Join(tail.CommandTopics, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(in.Ledgers)) {
		ledger, err := ReadLedger(ctx, name, in.Ledgers[name])
		if err != nil {
			return Verdict{}, fmt.Errorf("channel %s: %w", name, err)
		}
		e.Ledgers = append(e.Ledgers, ledger)
	}
	// Again, for what came in meanwhile: the ledger may tell of it.
	if err := tail.Commands(ctx); err != nil {
		return Verdict{}, err
	}
	rules := in.Rules
	rules.Database, rules.Topics = db, &in.Topics
	rules.Incomplete = rules.Incomplete || e.incomplete()
	if in.Grace > 0 {
		rules.Running = db.running(in.Grace)
	}
	return Judge(e, rules), nil
}

// running reports whether a payment is open, or a record was written lately.
func (d *Database) running(grace time.Duration) func(uuid.UUID, time.Time) bool {
	since := d.At.Add(-grace)
	return func(id uuid.UUID, at time.Time) bool {
		_, open := d.Open[id]
		return open || at.After(since)
	}
}
