package jsonl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// Publisher sends commands; *producer.Producer is one.
type Publisher interface {
	// Publish returns nil when all commands are in Kafka, a
	// *producer.UnknownError for those that may or may not be, else an error that
	// means that nothing was sent.
	Publish(ctx context.Context, cmds ...payment.Command) error
}

// Options tune Publish. The zero value is usable.
type Options struct {
	// SkipInvalid publishes the valid lines of an input that has problems.
	// Defaults to publishing nothing of it.
	SkipInvalid bool
	// BatchSize is the most commands sent at once. Defaults to 500.
	BatchSize int
	// Progress is told after each batch how many of the commands were handled.
	// Defaults to nobody.
	Progress func(handled, total int)
}

// Status is what became of a line.
type Status string

// The statuses of lines.
const (
	// Published: all in-sync replicas have the command.
	Published Status = "published"
	// Unknown: the command may or may not be in Kafka.
	Unknown Status = "unknown"
	// NotSent: the command was not sent, because of something else.
	NotSent Status = "not sent"
	// Invalid: the line is no command.
	Invalid Status = "invalid"
)

// MaxDetails bounds Report.Details.
const MaxDetails = 1000

// Detail is what became of a line that was not published.
type Detail struct {
	Line   int    `json:"line"`
	Status Status `json:"status"`
	// Key is the command's idempotencyKey; nil for an invalid line.
	Key *uuid.UUID `json:"idempotencyKey,omitempty"`
	// Problem says what is wrong and what to change.
	Problem string `json:"problem"`
}

// Report counts what became of the lines. Published + Unknown + NotSent + Invalid
// is all of them.
type Report struct {
	Published int `json:"published"`
	Unknown   int `json:"unknown"`
	NotSent   int `json:"notSent"`
	Invalid   int `json:"invalid"`
	// Details are the first MaxDetails lines that were invalid, then unknown, then
	// not sent.
	Details []Detail `json:"details,omitempty"`
	// Next says what to do now; empty when everything was published.
	Next string `json:"next,omitempty"`
}

// Complete reports whether every line was published.
func (r *Report) Complete() bool { return r.Unknown == 0 && r.NotSent == 0 && r.Invalid == 0 }

// batchTimeout is longer than a producer's own attempts take by default.
const batchTimeout = 30 * time.Second

// Publish sends the commands of an input in their order, and stops after a batch
// of which nothing is known to have arrived, or when ctx ends; the batch under way
// is finished first, within 30 s. Publishing an input
// again is safe: a command that is in Kafka already is not charged again (G1).
func Publish(ctx context.Context, p Publisher, in Input, opts Options) Report {
	run := &run{publisher: p, total: len(in.Lines), opts: opts}
	if run.opts.BatchSize < 1 {
		run.opts.BatchSize = 500
	}
	for _, problem := range in.Problems {
		run.report.Invalid++
		run.detail(Detail{Line: problem.Line, Status: Invalid, Problem: problem.String()})
	}
	if len(in.Problems) > 0 && !opts.SkipInvalid {
		run.notSent(in.Lines, "other lines are invalid")
	} else {
		run.send(ctx, in.Lines)
	}
	run.report.Next = run.advice(opts.SkipInvalid)
	return run.report
}

type run struct {
	publisher Publisher
	opts      Options
	total     int
	handled   int
	report    Report
}

func (r *run) send(ctx context.Context, lines []Line) {
	for len(lines) > 0 {
		if ctx.Err() != nil {
			r.notSent(lines, "interrupted before it was sent")
			return
		}
		batch := lines[:min(len(lines), r.opts.BatchSize)]
		lines = lines[len(batch):]
		if err := r.batch(ctx, batch); err != nil {
			r.notSent(lines, "stopped because the lines before it could not be published")
			return
		}
	}
}

// batch sends some lines. It returns an error when none of them is known to have
// arrived: going on would only make more lines unknown.
func (r *run) batch(ctx context.Context, lines []Line) error {
	cmds := make([]payment.Command, len(lines))
	for i := range lines {
		cmds[i] = lines[i].Command
	}
	// Ending in the middle would make all of it unknown for no reason.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	err := r.publisher.Publish(ctx, cmds...)
	var unknown *producer.UnknownError
	if err != nil && !errors.As(err, &unknown) {
		r.notSent(lines, err.Error())
		return err
	}
	if unknown != nil {
		for _, c := range unknown.Commands {
			r.unknown(lines[c.Index], c.Err)
		}
	}
	published := len(lines)
	if unknown != nil {
		published -= len(unknown.Commands)
	}
	r.report.Published += published
	r.progress(len(lines))
	if published == 0 {
		return err
	}
	return nil
}

func (r *run) unknown(line Line, err error) {
	r.report.Unknown++
	r.detail(Detail{Line: line.Number, Status: Unknown, Key: &line.Command.IdempotencyKey, Problem: err.Error()})
}

func (r *run) notSent(lines []Line, why string) {
	r.report.NotSent += len(lines)
	for i := range lines {
		r.detail(Detail{Line: lines[i].Number, Status: NotSent, Key: &lines[i].Command.IdempotencyKey, Problem: why})
	}
	r.progress(len(lines))
}

func (r *run) progress(lines int) {
	r.handled += lines
	if r.opts.Progress != nil {
		r.opts.Progress(r.handled, r.total)
	}
}

func (r *run) detail(d Detail) {
	if len(r.report.Details) < MaxDetails {
		r.report.Details = append(r.report.Details, d)
	}
}

func (r *run) advice(skipInvalid bool) string {
	switch {
	case r.report.Complete():
		return ""
	case r.report.Invalid > 0 && !skipInvalid:
		return "Nothing was published. Correct the invalid lines and publish again, or publish the others with --skip-invalid."
	case r.report.Unknown+r.report.NotSent > 0:
		return "Publish the same commands again, with the same keys: those that are in Kafka already are not charged again."
	default:
		return fmt.Sprintf("Correct the %d invalid lines and publish them.", r.report.Invalid)
	}
}
