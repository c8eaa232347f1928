// Package backfill brings in the payments that a team already has.
//
// A Source yields rows of text, from a CSV file or a query. A Mapping makes a
// payment of each row, or says why not. Run takes them in short batches at a
// bounded rate, remembers how far it came, and reports what was taken and what
// was not. What the rows mean to payments is in internal/store.
package backfill

import (
	"context"
	"errors"
	"fmt"
)

// Record is one row of a source. Fields stand in the order of its columns; null
// and empty are the same.
type Record struct {
	// Row is its number in the source, from 1, for people.
	Row int64
	// Position is where the source goes on after it.
	Position string
	Fields   []string
	// Broken says why the row cannot be read, and the next one can.
	Broken string
}

// Source yields rows in an order that is the same in every run.
type Source interface {
	// Columns are the names of the fields.
	Columns() []string
	// Content names what is being read: a position is of no use in another one.
	Content() string
	// Total is about how many rows there are, for a progress bar.
	Total() int64
	// Skip goes on after the row with this position, of which there were so many.
	Skip(ctx context.Context, position string, rows int64) error
	// Next returns the next rows, at least one, or io.EOF.
	Next(ctx context.Context) ([]Record, error)
	// Close gives everything back.
	Close(ctx context.Context) error
}

// ErrInput marks what is wrong with a source or its mapping as a whole.
var ErrInput = errors.New("cannot be brought in")

// inputError keeps one sentence and adds the mark.
type inputError struct{ error }

func (e inputError) Unwrap() []error { return []error{e.error, ErrInput} }

func inputf(format string, arguments ...any) error {
	return inputError{fmt.Errorf(format, arguments...)}
}
