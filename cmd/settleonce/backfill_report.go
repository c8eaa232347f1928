package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/backfill"
)

func showBackfill(cmd *cobra.Command, report backfill.Report, f *backfillFlags) error {
	return show(cmd, report, func(t *table, r backfill.Report) {
		fillBackfill(t, &r)
		for i := range r.Examples {
			t.row("  row", r.Examples[i].Row, r.Examples[i].ID, r.Examples[i].Problem)
		}
		t.row("")
		t.row(nextStep(&r, f))
	})
}

func fillBackfill(t *table, r *backfill.Report) {
	verb := "would be taken"
	if r.Executed {
		verb = "taken"
	}
	t.row("source", r.Source)
	if r.ResumedAfter > 0 {
		t.row("went on after", r.ResumedAfter)
	}
	if r.RefusedBefore > 0 {
		t.row("  of them not taken", r.RefusedBefore, "by the run that was stopped; the next full run lists them again")
	}
	t.row("rows read", r.Read)
	t.row(verb, r.New(), fmt.Sprintf("%d succeeded, %d declined, %d without an outcome", r.Succeeded, r.Declined, r.Review))
	if r.Generated > 0 {
		t.row("  keys made", r.Generated, "from the id, for rows without a UUID of their own")
	}
	if r.Resolved > 0 {
		t.row("resolved", r.Resolved, "had come without an outcome, which their source has now")
	}
	t.row("unchanged", r.Unchanged, "were there")
	for _, code := range slices.Sorted(maps.Keys(r.Refused)) {
		t.row("not taken", r.Refused[code], code)
	}
	t.row("time", fmt.Sprintf("%.1f s", r.Seconds), fmt.Sprintf("%.0f rows/s", float64(r.Read)/max(r.Seconds, 0.001)))
}

// nextStep is the last line of the report.
func nextStep(r *backfill.Report, f *backfillFlags) string {
	switch {
	case !r.Finished:
		return "stopped; the same command goes on from here"
	case r.NotTaken() > 0 && (f.rejects == "" || r.RefusedBefore > 0):
		return "run it again with --rejects FILE, which lists all rows that are not taken"
	case r.NotTaken() > 0:
		return "correct what " + f.rejects + " lists, and run it again: what is there stays"
	case !r.Executed:
		return "nothing was changed: add --execute --reason TEXT to do it"
	case r.New()+r.Resolved == 0:
		return "everything was there already: nothing changed"
	default:
		return "done; run it again whenever the source may have more"
	}
}
