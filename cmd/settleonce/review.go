package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/review"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
)

func newReview(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "review", Short: "Payments that wait for a person: list, show, ask again, close, or open a new attempt", GroupID: sectionOperators, Args: cobra.NoArgs,
		Example: "  settleonce review list --older-than 1h\n" +
			"  settleonce review show 42\n" +
			"  settleonce review requery 42 --actor ada --reason INC-42 --wait 30s\n" +
			"  settleonce review resolve 42 --as declined --evidence 'not in their books' --actor ada --reason INC-42      what would happen\n" +
			"  settleonce review attempt 42 --execute --actor ada --reason 'token renewed'",
		Long: "Nothing here guesses: a payment is closed only where its provider's own evidence allows it. What is not possible is\n" +
			"refused with the reason, and the time at which it will be.",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReviewList(p), newReviewShow(p), newReviewRequery(p), newReviewResolve(p), newReviewAttempt(p))
	return cmd
}

// offerReview gives a command what it takes to judge a payment as the roles do.
func offerReview(cmd *cobra.Command) {
	offerOutput(cmd)
	offer(cmd, config.GroupPostgres, config.GroupCallers, config.GroupChannel)
	for _, name := range []string{
		"topic-prefix", "window", "skew", "lease", "drain-timeout", "query-share", "query-floor", "parked-limit", "review-after", "watch-first", "watch-max",
		"review-second-person",
	} {
		offerOne(cmd, name)
	}
}

// reviewer is what these commands work with. They need no Kafka: what they publish
// goes through the outbox.
type reviewer struct {
	*review.Reader

	cfg  *config.Config
	desk *settle.Desk
}

// withReviewer connects to the database, and hands over what judges.
func withReviewer(cmd *cobra.Command, p process, do func(*reviewer) error) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	w := &worker{cfg: &l.Config, log: zerolog.Nop(), topics: topicNames(&l.Config)}
	defer func() { w.close() }()
	if w.channels, err = w.openChannels(); err != nil {
		return err
	}
	if w.pool, err = openPool(cmd.Context(), w.cfg, "review"); err != nil {
		return err
	}
	w.closers = append(w.closers, w.pool.Close)
	if err := checkMigrations(cmd.Context(), w.pool); err != nil {
		return err
	}
	w.store = store.New(store.Config{Pool: w.pool, Topics: w.topics, Named: w.named, Logger: w.log})
	settler, err := (&roleSet{worker: w}).settler()
	if err != nil {
		return asUsage(err)
	}
	budget := store.QueryPolicy{Share: w.cfg.Reconciler.QueryShare, Floor: w.cfg.Reconciler.QueryFloor}
	return explainPostgres(do(&reviewer{
		Reader: &review.Reader{Store: w.store, Rules: settler.Rules()}, cfg: w.cfg,
		desk: &settle.Desk{Store: w.store, Settler: settler, Budget: budget, TwoPersons: w.cfg.Reconciler.ReviewSecondPerson},
	}))
}

// subject is what an ID on the command line means.
type subject struct {
	// payment is nil where the item is about none.
	payment *store.Payment
	// item is the one that was named by its number; nil where a payment was.
	item *store.ReviewItem
}

const idHelp = "ID is the number of a review item, the id of a payment, or an idempotencyKey (with --caller where several callers use it)."

// find reads an ID.
func (r *reviewer) find(ctx context.Context, text, caller string) (subject, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return r.findItem(ctx, n)
	}
	id, err := uuid.Parse(text)
	if err != nil {
		return subject{}, asUsage(fmt.Errorf("%q is neither the number of a review item nor a UUID: see `settleonce review list`", text))
	}
	found, err := findPayments(ctx, r.Store, id, caller, r.cfg)
	switch {
	case err != nil:
		return subject{}, err
	case len(found) == 0:
		return subject{}, fmt.Errorf("no payment has the id or key %s: check --caller too", id)
	case len(found) > 1:
		return subject{}, asUsage(fmt.Errorf("%d payments have the key %s: add --caller", len(found), id))
	}
	return subject{payment: &found[0].Payment}, nil
}

func (r *reviewer) findItem(ctx context.Context, n int64) (subject, error) {
	items, err := r.Store.ReviewItems(ctx, store.ReviewFilter{ID: n})
	switch {
	case err != nil:
		return subject{}, err
	case len(items) == 0 || n < 1:
		return subject{}, fmt.Errorf("%w: see `settleonce review list`", store.ErrNoItem)
	}
	s := subject{item: &items[0]}
	st, err := r.Store.Status(ctx, items[0].Payment)
	if errors.Is(err, store.ErrNotFound) {
		return s, nil
	}
	s.payment = &st.Payment
	return s, err
}

// ofPayment refuses an item that is about no payment.
func (s subject) ofPayment() (uuid.UUID, error) {
	if s.payment == nil {
		return uuid.Nil, fmt.Errorf("review item %d is a callback that matches no payment: settle it with `settleonce review resolve %d --as settled`", s.item.ID, s.item.ID)
	}
	return s.payment.ID, nil
}
