package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/review"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func newReviewResolve(p process) *cobra.Command {
	f := resolveFlags{}
	cmd := &cobra.Command{
		Use: "resolve ID", Short: "Close what waits for a person, with evidence", Args: cobra.ExactArgs(1),
		Example: "  settleonce review resolve 42 --as declined --evidence 'not in their books'                                  what would happen\n" +
			"  settleonce review resolve 42 --as declined --evidence 'not in their books' --execute --actor ada --reason INC-42\n" +
			"  settleonce review resolve 42 --as declined --statement letter.pdf --execute --actor ada --second-actor bob --reason INC-42\n" +
			"  settleonce review resolve 43 --as settled --evidence re_5501 --execute --actor ada --reason INC-42",
		Long: "--as declined: it was not executed. Possible where nothing was ever sent; or where every send is dead and the provider, asked\n" +
			"again now, answers declined or proves that it does not know the payment; or where it says so in writing (--statement), which\n" +
			"takes two persons. A success that shows up later opens a conflict item.\n" +
			"--as succeeded: the provider says in writing that it was executed, and cannot be asked. Takes its reference and two persons.\n" +
			"--as settled: a conflict, or a callback that matches nothing, was dealt with. The outcome of the payment stays.\n" + idHelp,
	}
	f.offer(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.as, "as", "", "declined, succeeded or settled")
	flags.StringVar(&f.statement, "statement", "", "the provider's written statement: a file, whose digest is kept, or where it is kept")
	flags.IntVar(&f.attempt, "attempt", 0, "with --as succeeded: the attempt that was executed; the latest by default")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return asUsage(err)
		}
		if err := f.readStatement(); err != nil {
			return err
		}
		return f.run(cmd, p, args[0], func(r *reviewer, s subject) error { return f.resolve(cmd, r, s) })
	}
	return cmd
}

type resolveFlags struct {
	orderFlags

	as      string
	attempt int
}

// The words of --as.
const (
	asDeclined  = "declined"
	asSucceeded = "succeeded"
	asSettled   = "settled"
)

func (f *resolveFlags) check() error {
	switch {
	case f.as == "":
		return errors.New("say what it was: --as declined, --as succeeded or --as settled")
	case f.as != asDeclined && f.as != asSucceeded && f.as != asSettled:
		return fmt.Errorf("--as %s is not known: use declined, succeeded or settled", f.as)
	case f.as == asSettled && f.statement != "":
		return errors.New("--statement does not go with --as settled: name what shows it with --evidence")
	case f.as != asSucceeded && f.attempt != 0 || f.attempt < 0:
		return errors.New("--attempt counts from 1, and goes with --as succeeded only")
	default:
		return f.checkEvidence()
	}
}

func (f *resolveFlags) checkEvidence() error {
	switch {
	case f.as == asSucceeded && (f.evidence == "" || f.statement == ""):
		return errors.New("a success takes the provider's reference and its written statement: --evidence REFERENCE --statement FILE")
	case f.execute && f.evidence == "" && f.statement == "":
		return errors.New("nothing is closed without evidence: --evidence TEXT, or --statement FILE")
	default:
		return nil
	}
}

// readStatement replaces a file by its name and digest, so that it can be told later
// whether it is the one.
func (f *resolveFlags) readStatement() error {
	info, err := os.Stat(f.statement)
	if f.statement == "" || err != nil || !info.Mode().IsRegular() {
		return nil //nolint:nilerr // then it is no file, but says where the statement is
	}
	text, err := os.ReadFile(f.statement)
	if err != nil {
		return asUsage(fmt.Errorf("read the statement: %w", err))
	}
	sum := sha256.Sum256(text)
	f.statement = fmt.Sprintf("file %s, sha256 %s", filepath.Base(f.statement), hex.EncodeToString(sum[:]))
	return nil
}

func (f *resolveFlags) resolve(cmd *cobra.Command, r *reviewer, s subject) error {
	if f.as == asSettled {
		return f.settle(cmd, r, s)
	}
	id, err := s.ofPayment()
	if err != nil {
		return err
	}
	name, would := review.Declined, "close the payment as declined, not executed: with an event, a reply, and its obligation free again"
	carryOut := func() (store.Payment, error) { return r.desk.Resolve(cmd.Context(), id, f.order()) }
	switch {
	case f.as == asSucceeded:
		name, would = review.Succeeded, "end the payment as succeeded; if it ended otherwise, open a conflict item"
		carryOut = func() (store.Payment, error) {
			return r.desk.Confirm(cmd.Context(), id, f.order(), settle.Success{Attempt: f.attempt, Reference: f.evidence})
		}
	case f.statement != "":
		name = review.Statement
		carryOut = func() (store.Payment, error) { return r.desk.Attest(cmd.Context(), id, f.order()) }
	}
	if !f.execute {
		return r.preview(cmd, s.payment, name, would)
	}
	stored, err := carryOut()
	o := ordered{Action: name}
	if err == nil && f.as == asSucceeded && stored.State != payment.Succeeded {
		o.next = "its state stays until the contradiction is settled; see: settleonce review show " + id.String()
	}
	return finish(cmd, o, stored, err)
}

// settle closes a conflict item, or one of a callback.
func (f *resolveFlags) settle(cmd *cobra.Command, r *reviewer, s subject) error {
	if s.item == nil {
		item, err := r.conflictOf(cmd, s)
		if err != nil {
			return err
		}
		s.item = &item
	}
	o := ordered{Action: review.Settled, Item: s.item.ID}
	if s.payment != nil {
		o.take(s.payment)
	}
	if !f.execute {
		if err := settleable(s.item); err != nil {
			return err
		}
		o.Would, o.next = "close the item; the payment's outcome stays what it is", nothingChanged
		return show(cmd, o, orderedTable)
	}
	err := r.Store.SettleItem(cmd.Context(), s.item.ID, store.Settlement{Operator: f.by, Second: f.second, Evidence: f.evidence})
	if errors.Is(err, store.ErrItemOfPayment) {
		return settleable(s.item)
	}
	if err != nil {
		return err
	}
	o.Done = true
	return show(cmd, o, orderedTable)
}

// settleable refuses the items that nobody settles.
func settleable(i *store.ReviewItem) error {
	switch {
	case i.ClosedAt != nil:
		return fmt.Errorf("%w: %s, by %s", store.ErrItemClosed, i.Resolution, i.Actor)
	case i.Kind != store.ReviewConflict && i.Kind != store.ReviewCallback:
		return fmt.Errorf("review item %d is of a payment without an outcome, %w: use --as declined, or ask again with `settleonce review requery`",
			i.ID, store.ErrItemOfPayment)
	default:
		return nil
	}
}

// conflictOf finds the one open conflict item of a payment.
func (r *reviewer) conflictOf(cmd *cobra.Command, s subject) (store.ReviewItem, error) {
	items, err := r.Store.ReviewItems(cmd.Context(), store.ReviewFilter{Payment: s.payment.ID, Kind: store.ReviewConflict})
	if err != nil {
		return store.ReviewItem{}, err
	}
	var open []store.ReviewItem
	for _, i := range items {
		if i.ClosedAt == nil {
			open = append(open, i)
		}
	}
	switch len(open) {
	case 0:
		return store.ReviewItem{}, fmt.Errorf("payment %s has no open conflict item: nothing is to be settled", s.payment.ID)
	case 1:
		return open[0], nil
	default:
		return store.ReviewItem{}, asUsage(fmt.Errorf("payment %s has %d open conflict items: name one by its number, see `settleonce review show`", s.payment.ID, len(open)))
	}
}
