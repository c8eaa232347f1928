package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func newStatus(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status KEY", Short: "Show a payment, its history, and what repeated or refused deliveries were told", GroupID: sectionStart,
		Example: "  settleonce status 8e03978e-40d5-43e8-bc93-6894a57f9324 --caller shop\n" +
			"  settleonce status 8e03978e-40d5-43e8-bc93-6894a57f9324 -o json",
		Long: "KEY is the idempotencyKey, or the id of the payment. With --caller the payment is found at once;\n" +
			"without it the callers of the configuration are tried, and then the whole table is read.",
		Args: cobra.ExactArgs(1),
	}
	offerOutput(cmd)
	caller := cmd.Flags().String("caller", "", "the upstream service that the key belongs to")
	offer(cmd, config.GroupPostgres, config.GroupCallers)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return status(cmd, p, args[0], *caller) }
	return cmd
}

func status(cmd *cobra.Command, p process, text, caller string) error {
	key, err := uuid.Parse(text)
	if err != nil {
		return asUsage(fmt.Errorf("%q is not a UUID: give the idempotencyKey of the command, or the id of the payment", text))
	}
	var found []store.Status
	err = withStore(cmd, p, "status", func(s *store.Store, c *config.Config) error {
		var err error
		found, err = findPayments(cmd.Context(), s, key, caller, c)
		return err
	})
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return fmt.Errorf("no payment has the key %s: it was not claimed yet, or its key is past its time; check --caller too", key)
	}
	return showPayments(cmd, found)
}

func showPayments(cmd *cobra.Command, found []store.Status) error {
	views := make([]paymentView, 0, len(found))
	for i := range found {
		views = append(views, viewOf(&found[i]))
	}
	return show(cmd, views, func(t *table, views []paymentView) {
		for i := range views {
			views[i].fill(t)
		}
	})
}

// withStore connects for one question.
func withStore(cmd *cobra.Command, p process, name string, ask func(*store.Store, *config.Config) error) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	pool, err := openPool(cmd.Context(), &l.Config, name)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(store.Config{Pool: pool, Topics: topicNames(&l.Config), Logger: zerolog.Nop()})
	return explainPostgres(ask(s, &l.Config))
}

// findPayments tries the ways to a payment, the cheap ones first.
func findPayments(ctx context.Context, s *store.Store, key uuid.UUID, caller string, c *config.Config) ([]store.Status, error) {
	ids := []uuid.UUID{key}
	callers := slices.Sorted(maps.Keys(c.Callers.Namespaces))
	switch {
	case caller != "":
		callers = []string{caller}
	case c.Callers.InDatabase():
		var err error
		if callers, err = s.CallerNames(ctx); err != nil {
			return nil, err
		}
	}
	for _, name := range callers {
		ids = append(ids, payment.Identity{Caller: name, Operation: payment.OperationCharge, Key: key}.PaymentID())
	}
	found, err := statuses(ctx, s, ids)
	if err != nil || len(found) > 0 || caller != "" {
		return found, err
	}
	if ids, err = s.FindByKey(ctx, key); err != nil {
		return nil, err
	}
	return statuses(ctx, s, ids)
}

func statuses(ctx context.Context, s *store.Store, ids []uuid.UUID) ([]store.Status, error) {
	var found []store.Status
	for _, id := range ids {
		st, err := s.Status(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, st)
	}
	return found, nil
}

// paymentView is a payment as people and machines may see it: the token of the
// payment method is masked.
type paymentView struct {
	PaymentID         uuid.UUID          `json:"paymentId"`
	Caller            string             `json:"caller"`
	Operation         string             `json:"operation"`
	Key               uuid.UUID          `json:"idempotencyKey"`
	State             payment.State      `json:"state"`
	Version           int                `json:"version"`
	OrderID           string             `json:"orderId"`
	Obligation        string             `json:"obligation"`
	Namespace         string             `json:"namespace"`
	Amount            int64              `json:"amount"`
	Currency          string             `json:"currency"`
	CustomerID        string             `json:"customerId"`
	PaymentMethod     string             `json:"paymentMethod"`
	Channel           string             `json:"channel"`
	ChannelIdentity   string             `json:"channelIdentity"`
	Attempt           int                `json:"attempt"`
	Sends             int                `json:"sends"`
	ProviderKey       uuid.UUID          `json:"providerKey"`
	ProviderReference string             `json:"providerReference,omitempty"`
	Cause             string             `json:"cause,omitempty"`
	Detail            string             `json:"detail,omitempty"`
	BlockedBy         *uuid.UUID         `json:"blockedBy,omitempty"`
	Follows           *uuid.UUID         `json:"follows,omitempty"`
	IssuedAt          time.Time          `json:"issuedAt"`
	CreatedAt         time.Time          `json:"createdAt"`
	EndedAt           *time.Time         `json:"endedAt,omitempty"`
	Open              *openView          `json:"open,omitempty"`
	History           []store.Transition `json:"history"`
	Deliveries        []store.Told       `json:"deliveries"`
}

// openView is what an unresolved payment waits for.
type openView struct {
	NextCheckAt time.Time `json:"nextCheckAt"`
	LeaseUntil  time.Time `json:"leaseUntil"`
	Queries     int       `json:"queries"`
	Watches     int       `json:"watches"`
	NoMoreSends bool      `json:"noMoreSends"`
	Decline     string    `json:"decline,omitempty"`
}

func viewOf(s *store.Status) paymentView {
	p := &s.Payment
	v := paymentView{
		PaymentID: p.ID, Caller: p.Identity.Caller, Operation: p.Identity.Operation, Key: p.Identity.Key,
		State: p.State, Version: p.Version, OrderID: p.OrderID, Obligation: p.Obligation, Namespace: p.Namespace,
		Amount: p.Amount, Currency: p.Currency, CustomerID: p.CustomerID, PaymentMethod: payment.MaskToken(p.PaymentMethod),
		Channel: p.Channel, ChannelIdentity: p.ChannelIdentity, Attempt: p.Attempt, Sends: p.Sends, ProviderKey: p.ProviderKey,
		ProviderReference: p.ProviderReference, Cause: p.Cause, Detail: p.Detail, BlockedBy: p.BlockedBy, Follows: p.Follows,
		IssuedAt: p.IssuedAt.UTC(), CreatedAt: p.CreatedAt.UTC(),
		History: append([]store.Transition{}, s.History...), Deliveries: append([]store.Told{}, s.Deliveries...),
	}
	if !p.EndedAt.IsZero() {
		ended := p.EndedAt.UTC()
		v.EndedAt = &ended
	}
	if o := s.Open; o != nil {
		v.Open = &openView{
			NextCheckAt: o.NextCheckAt.UTC(), LeaseUntil: o.LeaseUntil.UTC(), Queries: o.Queries, Watches: o.Watches,
			NoMoreSends: o.NoMoreSends, Decline: o.DeclineCause,
		}
	}
	return v
}

func (v *paymentView) fill(t *table) {
	v.fillContent(t)
	v.fillProgress(t)
	v.fillHistory(t)
	v.fillDeliveries(t)
}

func (v *paymentView) fillContent(t *table) {
	t.row("payment", v.PaymentID)
	t.row("key", v.Key)
	t.row("caller", v.Caller)
	t.row("state", v.State)
	t.row("order", v.OrderID)
	if v.Obligation != v.OrderID {
		t.row("obligation", v.Obligation)
	}
	t.row("amount", payment.Money{Amount: v.Amount, Currency: v.Currency})
	t.row("channel", fmt.Sprintf("%s (%s)", v.Channel, v.ChannelIdentity))
}

func (v *paymentView) fillProgress(t *table) {
	t.row("provider key", fmt.Sprintf("%s, attempt %d, %d sent", v.ProviderKey, v.Attempt, v.Sends))
	for _, optional := range [][2]string{{"reference", v.ProviderReference}, {"cause", v.Cause}, {"detail", v.Detail}} {
		if optional[1] != "" {
			t.row(optional[0], optional[1])
		}
	}
	if v.BlockedBy != nil {
		t.row("blocked by", v.BlockedBy)
	}
	if v.Open != nil {
		t.row("next check", fmt.Sprintf("%s, %d queries made", clock(v.Open.NextCheckAt), v.Open.Queries))
	}
}

func (v *paymentView) fillHistory(t *table) {
	t.row("")
	t.row("HISTORY", "STATE", "ATTEMPT", "SEND", "REFERENCE", "CAUSE", "ACTOR")
	for _, h := range v.History {
		t.row(clock(h.At), h.State, h.Attempt, h.Send, dash(h.ProviderReference), dash(h.Cause), h.Actor)
	}
}

// fillDeliveries lists what was answered at once; the first delivery of a payment
// is answered by its outcome.
func (v *paymentView) fillDeliveries(t *table) {
	t.row("")
	if len(v.Deliveries) == 0 {
		t.row("no repeats were delivered")
		return
	}
	t.row("DELIVERY", "TOLD", "CODE", "STATE", "VERSION", "WHERE")
	for _, d := range v.Deliveries {
		t.row(clock(d.At), d.Kind, dash(string(d.Code)), d.State, d.Version, fmt.Sprintf("%s/%d@%d", d.Topic, d.Partition, d.Offset))
	}
}

func clock(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000Z") }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
