package backfill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Config is one run.
type Config struct {
	Source  Source
	Mapping *Mapping
	Store   *store.Store
	// Name is what the source is called: a later run with this name goes on.
	Name string
	// Execute takes the rows. Without it, a run only reports what it would do.
	Execute bool
	// Actor and Reason go into the audit of a run that executes.
	Actor, Reason string
	// Batch is how many rows are stored in one transaction. Defaults to 500.
	Batch int
	// Rate bounds the rows per second. 0 is without bound.
	Rate float64
	// Rejects receives one JSON object per row that was not taken; nil: nobody.
	Rejects io.Writer
	// Progress is called after each batch; nil: nobody.
	Progress func(read, total int64)
}

// Report is what a run came to.
type Report struct {
	Source   string `json:"source"`
	Executed bool   `json:"executed"`
	// Finished is false where the run was stopped.
	Finished bool `json:"finished"`
	// ResumedAfter are the rows that earlier runs of this pass had read, RefusedBefore
	// those of them that were not taken.
	ResumedAfter  int64 `json:"resumedAfter"`
	RefusedBefore int64 `json:"refusedBefore,omitempty"`
	// Read are the rows of this run. Each is one of the following.
	Read      int64 `json:"read"`
	Succeeded int64 `json:"succeeded"`
	Declined  int64 `json:"declined"`
	Review    int64 `json:"review"`
	// Resolved had been imported without an outcome, which their source has now.
	Resolved int64 `json:"resolved"`
	// Unchanged were there as they should be.
	Unchanged int64            `json:"unchanged"`
	Refused   map[string]int64 `json:"refused"`
	// Generated are new payments whose key was derived from their id.
	Generated int64 `json:"generatedKeys"`
	// Examples are the first refusals.
	Examples []Refusal     `json:"examples"`
	Took     time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"`
}

// New are the payments that were not there.
func (r *Report) New() int64 { return r.Succeeded + r.Declined + r.Review }

// NotTaken are the rows of this pass that were not taken.
func (r *Report) NotTaken() int64 { return r.RefusedBefore + r.RefusedRows() }

// RefusedRows are the rows of this run that were not taken.
func (r *Report) RefusedRows() int64 {
	var n int64
	for _, count := range r.Refused {
		n += count
	}
	return n
}

const (
	defaultBatch = 500
	examples     = 20
	// previewed bounds the memory of a dry run: so many rows are also compared with
	// each other, later ones only with what is stored.
	previewed = 5_000_000
)

// Run takes what the source has. An end of ctx stops it between two batches; what
// was read until then is taken, and the next run goes on there. The report is
// returned with an error too.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.Batch <= 0 {
		cfg.Batch = defaultBatch
	}
	r := &runner{
		cfg: cfg, started: time.Now(), seen: make(map[uuid.UUID]uint64),
		report: Report{Source: cfg.Name, Executed: cfg.Execute, Refused: make(map[string]int64), Examples: []Refusal{}},
		limit:  rate.NewLimiter(rate.Inf, cfg.Batch),
	}
	if cfg.Rate > 0 {
		r.limit.SetLimit(rate.Limit(cfg.Rate))
	}
	err := r.run(ctx)
	r.report.Took = time.Since(r.started)
	r.report.Seconds = r.report.Took.Seconds()
	return r.report, err
}

type runner struct {
	cfg      Config
	report   Report
	progress store.Progress
	limit    *rate.Limiter
	started  time.Time
	seen     map[uuid.UUID]uint64 // of a dry run: what earlier rows said
}

func (r *runner) run(ctx context.Context) error {
	if !r.cfg.Execute {
		return r.takeAll(ctx)
	}
	progress, end, err := r.cfg.Store.BeginBackfill(ctx, r.cfg.Name, r.cfg.Source.Content(), r.cfg.Actor, r.cfg.Reason)
	if err != nil {
		return err
	}
	defer end()
	r.progress = progress
	if progress.Position != "" {
		r.report.ResumedAfter, r.report.RefusedBefore = progress.Read, progress.Refused
		if err := r.cfg.Source.Skip(ctx, progress.Position, progress.Read); err != nil {
			return err
		}
	}
	err = r.takeAll(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r.report.Seconds = time.Since(r.started).Seconds()
	return errors.Join(err, r.cfg.Store.EndBackfill(ctx, r.cfg.Actor, r.cfg.Reason, &r.report))
}

// takeAll goes through the source, batch by batch.
func (r *runner) takeAll(ctx context.Context) error {
	for {
		page, err := r.cfg.Source.Next(ctx)
		if errors.Is(err, io.EOF) {
			return r.finish(ctx)
		}
		if err != nil {
			return err
		}
		for len(page) > 0 {
			n := min(len(page), r.cfg.Batch)
			if err := r.limit.WaitN(ctx, n); err != nil {
				return fmt.Errorf("stopped: %w", errors.Join(ctx.Err(), err))
			}
			if err := r.take(ctx, page[:n]); err != nil {
				return err
			}
			page = page[n:]
		}
	}
}

func (r *runner) finish(ctx context.Context) error {
	if r.report.Read+r.report.ResumedAfter == 0 {
		return inputf("the source has no rows: look at the query or the file")
	}
	r.report.Finished = true
	if !r.cfg.Execute {
		return nil
	}
	r.progress.Finished = true
	_, err := r.cfg.Store.Import(ctx, nil, &r.progress)
	return err
}

// take brings one batch in. Counts are those of a batch that is stored.
func (r *runner) take(ctx context.Context, records []Record) error {
	var rows []store.Imported
	var of []*Record
	var own []bool
	var refusals []Refusal
	for i := range records {
		row, generated, err := r.cfg.Mapping.payment(&records[i])
		if broken, ok := errors.AsType[fault](err); ok {
			refusals = append(refusals, r.refusal(&records[i], broken.code, broken.problem))
			continue
		}
		rows, of, own = append(rows, row), append(of, &records[i]), append(own, !generated)
	}
	r.progress.Read += int64(len(records))
	r.progress.Refused += int64(len(refusals))
	r.progress.Position = records[len(records)-1].Position
	taken, err := r.store(ctx, rows)
	if err != nil {
		return err
	}
	for i := range taken {
		if code, problem := refused(taken[i]); code != "" {
			refusals = append(refusals, r.refusal(of[i], code, problem))
			r.progress.Refused++
			continue
		}
		r.count(taken[i], rows[i].State, own[i])
	}
	r.report.Read += int64(len(records))
	if r.cfg.Progress != nil {
		r.cfg.Progress(r.report.ResumedAfter+r.report.Read, r.cfg.Source.Total())
	}
	return r.reject(refusals)
}

func (r *runner) refusal(record *Record, code, problem string) Refusal {
	return Refusal{Row: record.Row, ID: r.cfg.Mapping.name(record), Code: code, Problem: problem}
}

func (r *runner) store(ctx context.Context, rows []store.Imported) ([]store.Taken, error) {
	if r.cfg.Execute {
		// A batch that was begun is ended: a signal stops the run before the next one.
		return r.cfg.Store.Import(context.WithoutCancel(ctx), rows, &r.progress)
	}
	taken, err := r.cfg.Store.ImportPreview(ctx, rows)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if taken[i] == store.TakenNew {
			taken[i] = r.seenBefore(&rows[i])
		}
	}
	return taken, nil
}

// seenBefore compares a row of a dry run with earlier ones of its key.
func (r *runner) seenBefore(row *store.Imported) store.Taken {
	id, said := row.Command.Identity().PaymentID(), digest(row)
	switch known, ok := r.seen[id]; {
	case !ok && len(r.seen) < previewed:
		r.seen[id] = said
		return store.TakenNew
	case !ok:
		return store.TakenNew
	case known == said:
		return store.TakenBefore
	default:
		return store.RefusedContent
	}
}

func (r *runner) count(taken store.Taken, state payment.State, own bool) {
	if taken == store.TakenNew && !own {
		r.report.Generated++
	}
	switch {
	case taken == store.TakenBefore:
		r.report.Unchanged++
	case taken == store.TakenOutcome:
		r.report.Resolved++
	case state == payment.Succeeded:
		r.report.Succeeded++
	case state == payment.Declined:
		r.report.Declined++
	default:
		r.report.Review++
	}
}

// refused says why a row met something that stays; the code is empty for one that
// was taken.
func refused(taken store.Taken) (code, problem string) {
	switch taken {
	case store.RefusedContent:
		return CodeContent, "another payment with other content has its key, and stays as it is"
	case store.RefusedOutcome:
		return CodeDiffers, "it was imported with another outcome or reference, which stays: look at both, one of them is wrong"
	case store.RefusedLive:
		return CodeLive, "its key was used here with another outcome or reference, which stays: look at both, it may have been charged twice"
	case store.RefusedUnstorable:
		return CodeUnstorable, "the database does not take it: look for unusual characters"
	case store.TakenNew, store.TakenBefore, store.TakenOutcome:
	}
	return "", ""
}

func (r *runner) reject(refusals []Refusal) error {
	for i := range refusals {
		r.report.Refused[refusals[i].Code]++
		if len(r.report.Examples) < examples {
			r.report.Examples = append(r.report.Examples, refusals[i])
		}
		if r.cfg.Rejects == nil {
			continue
		}
		line, err := json.Marshal(&refusals[i])
		if err == nil {
			_, err = r.cfg.Rejects.Write(append(line, '\n'))
		}
		if err != nil {
			return fmt.Errorf("write the rows that were not taken: %w", err)
		}
	}
	return nil
}
