package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/review"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func newReviewList(p process) *cobra.Command {
	var f store.ReviewFilter
	var kind string
	cmd := &cobra.Command{
		Use: "list", Short: "List what waits for a person, the oldest first", Args: cobra.NoArgs,
		Example: "  settleonce review list\n  settleonce review list --kind conflict\n" +
			"  settleonce review list --channel sim --caller shop --older-than 1h --limit 20 -o json",
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "", "only unresolved, conflict, imported or callback")
	flags.StringVar(&f.Channel, "channel", "", "only this channel's")
	flags.StringVar(&f.Caller, "caller", "", "only this caller's")
	flags.DurationVar(&f.OlderThan, "older-than", 0, "only what was opened longer ago than this, like 1h")
	flags.IntVar(&f.Limit, "limit", 50, "so many, at most")
	offerReview(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.Kind = store.ReviewKind(kind)
		if err := checkFilter(f); err != nil {
			return asUsage(err)
		}
		if _, err := wantsJSON(cmd); err != nil {
			return err
		}
		return withReviewer(cmd, p, func(r *reviewer) error {
			entries, err := r.List(cmd.Context(), f)
			if err != nil {
				return err
			}
			return show(cmd, entries, entryTable)
		})
	}
	return cmd
}

func checkFilter(f store.ReviewFilter) error {
	kinds := []store.ReviewKind{"", store.ReviewUnresolved, store.ReviewConflict, store.ReviewImported, store.ReviewCallback}
	switch {
	case !slices.Contains(kinds, f.Kind):
		return fmt.Errorf("--kind %s is not known: use unresolved, conflict, imported or callback", f.Kind)
	case f.OlderThan < 0:
		return fmt.Errorf("--older-than %s is negative: give an age like 1h", f.OlderThan)
	case f.Limit < 1:
		return fmt.Errorf("--limit %d shows nothing: give at least 1", f.Limit)
	default:
		return nil
	}
}

func entryTable(t *table, entries []review.Entry) {
	if len(entries) == 0 {
		t.row("nothing waits for a person")
		return
	}
	t.row("ID", "KIND", "PAYMENT", "ORDER", "AMOUNT", "CHANNEL", "SINCE", "MAY", "REASON")
	for i := range entries {
		e := &entries[i]
		id, money := e.Payment.String(), "-"
		if e.Key == "" {
			id = "-"
		}
		if e.Currency != "" {
			money = payment.Money{Amount: e.Amount, Currency: e.Currency}.String()
		}
		t.row(e.ID, e.Kind, id, dash(e.OrderID), money, dash(e.Channel), e.OpenedAt.Format(time.RFC3339), dash(strings.Join(e.May, " ")), e.Reason)
	}
	t.row("")
	t.row("more about one: settleonce review show ID")
}

func newReviewShow(p process) *cobra.Command {
	var caller string
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one payment with every send, what was said, and what may be done now", Args: cobra.ExactArgs(1),
		Example: "  settleonce review show 42\n  settleonce review show 8e03978e-40d5-43e8-bc93-6894a57f9324 --caller shop -o json",
		Long:    idHelp,
	}
	cmd.Flags().StringVar(&caller, "caller", "", "the upstream service that the key belongs to")
	offerReview(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := wantsJSON(cmd); err != nil {
			return err
		}
		return withReviewer(cmd, p, func(r *reviewer) error {
			s, err := r.find(cmd.Context(), args[0], caller)
			if err != nil {
				return err
			}
			if s.payment == nil {
				return r.showCallback(cmd, s.item.ID)
			}
			c, err := r.Show(cmd.Context(), s.payment.ID)
			if err != nil {
				return err
			}
			return show(cmd, caseOf(&c), caseTable)
		})
	}
	return cmd
}

// showCallback shows an item that is about no payment.
func (r *reviewer) showCallback(cmd *cobra.Command, item int64) error {
	entries, err := r.List(cmd.Context(), store.ReviewFilter{ID: item})
	if err != nil {
		return err
	}
	return show(cmd, entries, func(t *table, entries []review.Entry) {
		for i := range entries {
			fillItem(t, &entries[i].ReviewItem)
		}
	})
}

// caseView is what -o json prints. The token of the payment method is masked.
type caseView struct {
	Payment      paymentView         `json:"payment"`
	Obligation   review.Obligation   `json:"obligation"`
	Items        []store.ReviewItem  `json:"items"`
	Sends        []review.Send       `json:"sends"`
	PastAttempts []store.PastAttempt `json:"pastAttempts"`
	Orders       []store.Ordered     `json:"orders"`
	Actions      []review.Action     `json:"actions"`
	Now          time.Time           `json:"now"`
}

func caseOf(c *review.Case) caseView {
	return caseView{
		Payment: viewOf(&c.Status), Obligation: c.Obligation, Items: append([]store.ReviewItem{}, c.Items...),
		Sends: append([]review.Send{}, c.Sends...), PastAttempts: append([]store.PastAttempt{}, c.Past...),
		Orders: append([]store.Ordered{}, c.Orders...), Actions: c.Actions, Now: c.Now,
	}
}

func caseTable(t *table, v caseView) {
	v.Payment.fillContent(t)
	v.Payment.fillProgress(t)
	t.row("obligation", fmt.Sprintf("%s of %s: %s", v.Obligation.Name, v.Obligation.Namespace, v.Obligation.Meaning))
	fillSends(t, &v)
	v.Payment.fillHistory(t)
	for i := range v.Items {
		t.row("")
		fillItem(t, &v.Items[i])
	}
	if len(v.Orders) > 0 {
		t.row("")
		t.row("BY HAND", "WHO", "WHAT", "WHY")
		for _, o := range v.Orders {
			t.row(clock(o.At), o.Actor, o.Action, o.Reason)
		}
	}
	fillActions(t, v.Actions)
}

func fillSends(t *table, v *caseView) {
	t.row("")
	if len(v.Sends) == 0 {
		t.row("nothing was sent")
	} else {
		t.row("SEND", "PROVIDER KEY", "PERMITTED", "DEADLINE", "CAN STILL BE EXECUTED")
	}
	for _, s := range v.Sends {
		alive := "nobody knows: the channel's longest execution is not documented"
		switch {
		case s.Dead:
			alive = "no, since " + clock(*s.DeadAfter)
		case s.DeadAfter != nil:
			alive = "yes, until " + clock(*s.DeadAfter)
		}
		t.row(fmt.Sprintf("attempt %d, %d", s.Attempt, s.Number), s.ProviderKey, clock(s.PermittedAt), clock(s.Deadline), alive)
	}
	for _, a := range v.PastAttempts {
		t.row(fmt.Sprintf("attempt %d", a.Attempt), a.ProviderKey, "closed "+clock(a.ClosedAt), "by "+a.Actor, a.Evidence)
	}
}

func fillItem(t *table, i *store.ReviewItem) {
	t.row("item "+strconv.FormatInt(i.ID, 10), string(i.Kind)+" since "+clock(i.OpenedAt))
	t.row("reason", i.Reason)
	var said map[string]any
	if json.Unmarshal(i.Evidence, &said) == nil {
		for _, name := range slices.Sorted(maps.Keys(said)) {
			if text := fmt.Sprint(said[name]); text != "" {
				t.row(name, text)
			}
		}
	}
	if i.ClosedAt != nil {
		t.row("closed", fmt.Sprintf("%s by %s: %s", clock(*i.ClosedAt), i.Actor, i.Resolution))
	}
}

func fillActions(t *table, actions []review.Action) {
	t.row("")
	t.row("MAY BE DONE", "NOW")
	for _, a := range actions {
		switch {
		case a.AsksFirst:
			t.row(a.Name, "yes, if the provider confirms it: it is asked first")
		case a.Possible:
			t.row(a.Name, "yes")
		case a.PossibleAt != nil:
			t.row(a.Name, fmt.Sprintf("at %s: %s", a.PossibleAt.Format(time.RFC3339), a.Refused))
		default:
			t.row(a.Name, "no: "+a.Refused)
		}
	}
	for _, a := range actions {
		if a.Possible {
			t.row("")
			t.row("next: " + a.Command + " --actor NAME --reason TEXT")
			return
		}
	}
}
