package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/review"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
)

// ordered is what these commands print with -o json.
type ordered struct {
	// Action is the word of what was ordered, as in `settleonce review show`.
	Action string `json:"action"`
	// Done says that it was carried out; false for a dry run and for a refusal.
	Done      bool      `json:"done"`
	PaymentID uuid.UUID `json:"paymentId"`
	Item      int64     `json:"item,omitempty"`
	// State is the payment's after it.
	State   string `json:"state,omitempty"`
	Version int    `json:"version,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Cause   string `json:"cause,omitempty"`
	// Refused is why it was not done, PossibleAt when it will be possible.
	Refused    string     `json:"refused,omitempty"`
	PossibleAt *time.Time `json:"possibleAt,omitempty"`
	// Would says what --execute would do.
	Would string `json:"would,omitempty"`
	next  string
}

func (o *ordered) take(p *store.Payment) {
	if p.ID != uuid.Nil {
		o.PaymentID, o.State, o.Version, o.Attempt, o.Cause = p.ID, p.State.String(), p.Version, p.Attempt, p.Cause
	}
}

func orderedTable(t *table, o ordered) {
	if o.PaymentID != uuid.Nil {
		t.row("payment", o.PaymentID)
	}
	if o.Item != 0 {
		t.row("item", o.Item)
	}
	if o.State != "" {
		t.row("state", o.State, o.Cause)
	}
	if o.Attempt > 0 {
		t.row("attempt", o.Attempt)
	}
	switch {
	case o.Done:
		t.row(o.Action, "done")
	case o.Refused != "":
		t.row(o.Action, "refused, nothing was changed: "+o.Refused)
	case o.Would != "":
		t.row("would", o.Would)
	}
	if o.PossibleAt != nil {
		t.row("possible", "at "+o.PossibleAt.Format(time.RFC3339))
	}
	if o.next != "" {
		t.row("next", o.next)
	}
}

// finish prints what came of an order. A refusal is the exit code too.
func finish(cmd *cobra.Command, o ordered, p store.Payment, err error) error {
	var refused *settle.RefusalError
	o.take(&p)
	switch {
	case err == nil:
		o.Done = true
		return show(cmd, o, orderedTable)
	case errors.As(err, &refused):
		o.Refused = refused.Reason
		if !refused.Possible.IsZero() {
			at := refused.Possible.UTC()
			o.PossibleAt = &at
		}
		return errors.Join(show(cmd, o, orderedTable), refused)
	default:
		return err
	}
}

// preview says what an order would do, or why it would be refused.
func (r *reviewer) preview(cmd *cobra.Command, p *store.Payment, name, would string) error {
	found, err := r.Store.Read(cmd.Context(), []uuid.UUID{p.ID})
	if err != nil {
		return err
	}
	o := ordered{Action: name}
	o.take(p)
	for _, l := range found {
		actions := review.Actions(r.Rules, l)
		a := actions[slices.IndexFunc(actions, func(a review.Action) bool { return a.Name == name })]
		if !a.Possible {
			o.Refused, o.PossibleAt = a.Refused, a.PossibleAt
			return errors.Join(show(cmd, o, orderedTable), errors.New(a.Refused))
		}
		o.Would = would
		if a.AsksFirst {
			o.Would = "ask the provider, within the budget; if it confirms that nothing was or will be executed: " + would
		}
	}
	o.next = nothingChanged
	return show(cmd, o, orderedTable)
}

func newReviewRequery(p process) *cobra.Command {
	var by store.Operator
	var caller string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "requery ID", Short: "Ask the provider about an open payment now, within the budget", Args: cobra.ExactArgs(1),
		Example: "  settleonce review requery 42 --actor ada --reason INC-42\n  settleonce review requery 42 --actor ada --reason INC-42 --wait 30s",
		Long:    "The reconciler asks: this makes the payment due, and nothing else. An answer ends the payment, and its item closes by itself.\n" + idHelp,
	}
	flags := cmd.Flags()
	flags.StringVar(&by.Actor, "actor", "", "who asks, for the audit")
	flags.StringVar(&by.Reason, "reason", "", "why, for the audit")
	flags.DurationVar(&wait, "wait", 0, "wait so long for the answer, at most, and print it")
	flags.StringVar(&caller, "caller", "", "the upstream service that the key belongs to")
	offerReview(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(by.Validate(), notNegative("--wait", wait)); err != nil {
			return asUsage(err)
		}
		if _, err := wantsJSON(cmd); err != nil {
			return err
		}
		return withReviewer(cmd, p, func(r *reviewer) error {
			s, err := r.find(cmd.Context(), args[0], caller)
			if err != nil {
				return err
			}
			id, err := s.ofPayment()
			if err != nil {
				return err
			}
			o := ordered{Action: review.Requery, next: "the reconciler asks; see: settleonce review show " + id.String()}
			stored, err := r.desk.Requery(cmd.Context(), id, settle.Order{Actor: by.Actor, Reason: by.Reason})
			if err == nil && wait > 0 {
				stored, o.next, err = r.await(cmd.Context(), id, wait)
			}
			return finish(cmd, o, stored, err)
		})
	}
	return cmd
}

func notNegative(flag string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s %s is negative: give a duration like 30s", flag, d)
	}
	return nil
}

// await waits until the payment has ended, or until time is up.
func (r *reviewer) await(ctx context.Context, id uuid.UUID, patience time.Duration) (store.Payment, string, error) {
	until := time.NewTimer(patience)
	defer until.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		found, err := r.Store.Read(ctx, []uuid.UUID{id})
		switch {
		case err != nil:
			return store.Payment{}, "", err
		case len(found) == 0:
			return store.Payment{}, "", store.ErrNotFound
		case found[0].Open == nil:
			return found[0].Payment, "", nil
		}
		select {
		case <-look.C:
		case <-until.C:
			return found[0].Payment, fmt.Sprintf("no answer that settles it after %s; the next look is at %s: is a reconciler running (settleonce doctor)?",
				patience, found[0].Open.NextCheckAt.UTC().Format(time.RFC3339)), nil
		case <-ctx.Done():
			return found[0].Payment, "", fmt.Errorf("wait for the answer: %w", ctx.Err())
		}
	}
}

func newReviewAttempt(p process) *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use: "attempt ID", Short: "Open a new attempt of a payment in review, with a provider key of its own", Args: cobra.ExactArgs(1),
		Example: "  settleonce review attempt 42                                             what would happen\n" +
			"  settleonce review attempt 42 --execute --actor ada --reason 'token renewed'",
		Long: "Only where every earlier send is dead, and a fresh query shows that nothing came of them. The new attempt is sent when the\n" +
			"channel of the payment admits it; never through another channel.\n" + idHelp,
	}
	f.offer(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.run(cmd, p, args[0], func(r *reviewer, s subject) error {
			id, err := s.ofPayment()
			if err != nil {
				return err
			}
			if !f.execute {
				return r.preview(cmd, s.payment, review.Attempt, fmt.Sprintf("open attempt %d, which is sent when channel %s admits it", s.payment.Attempt+1, s.payment.Channel))
			}
			stored, err := r.desk.OpenAttempt(cmd.Context(), id, f.order())
			return finish(cmd, ordered{Action: review.Attempt, next: "see: settleonce review show " + id.String()}, stored, err)
		})
	}
	return cmd
}

// orderFlags are those of orders that change a payment.
type orderFlags struct {
	execute                             bool
	by                                  store.Operator
	second, evidence, statement, caller string
}

func (f *orderFlags) offer(cmd *cobra.Command) {
	offerAct(cmd, &f.execute, &f.by)
	flags := cmd.Flags()
	flags.StringVar(&f.second, "second-actor", "", "the other person, where two are asked for")
	flags.StringVar(&f.evidence, "evidence", "", "what it rests on, for the record")
	flags.StringVar(&f.caller, "caller", "", "the upstream service that the key belongs to")
	offerReview(cmd)
}

func (f *orderFlags) order() settle.Order {
	return settle.Order{Actor: f.by.Actor, Reason: f.by.Reason, Second: f.second, Evidence: f.evidence, Statement: f.statement}
}

// run judges the flags before it connects.
func (f *orderFlags) run(cmd *cobra.Command, p process, id string, do func(*reviewer, subject) error) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	if f.execute {
		if err := f.order().Validate(f.statement != ""); err != nil {
			return asUsage(err)
		}
	}
	return withReviewer(cmd, p, func(r *reviewer) error {
		if f.execute {
			if err := f.order().Validate(r.desk.TwoPersons); err != nil {
				return asUsage(err)
			}
		}
		s, err := r.find(cmd.Context(), id, f.caller)
		if err != nil {
			return err
		}
		return do(r, s)
	})
}
