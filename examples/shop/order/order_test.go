package order_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func migrate(ctx context.Context, dsn string) error {
	if err := producer.OutboxMigrate(ctx, dsn); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return order.Migrate(ctx, pool)
}

// shop is a desk with ten mugs.
type shop struct {
	t    *testing.T
	pool *pgxpool.Pool
	desk *order.Desk
}

func newShop(t *testing.T) *shop {
	t.Helper()
	pool := pgtest.New(t, migrate)
	s := &shop{t: t, pool: pool, desk: order.NewDesk(pool, order.Caller, "sim")}
	require.NoError(t, s.desk.Stock(t.Context(), "mug", 10))
	return s
}

func (s *shop) place(id string, quantity int) uuid.UUID {
	s.t.Helper()
	key, err := s.desk.Place(s.t.Context(), order.Order{
		ID: id, SKU: "mug", Quantity: quantity, Amount: 1999, Currency: "EUR", Customer: "cust-1", PaymentMethod: "tok_visa",
	})
	require.NoError(s.t, err)
	return key
}

func (s *shop) payAgain(id string) uuid.UUID {
	s.t.Helper()
	key, err := s.desk.PayAgain(s.t.Context(), id, "tok_other")
	require.NoError(s.t, err)
	return key
}

func (s *shop) hear(m *inbox.Message) {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(s.t.Context(), s.pool, func(tx pgx.Tx) error { return order.Hear(order.Caller)(s.t.Context(), tx, m) }))
}

// event tells of the payment with the key.
func event(key uuid.UUID, kind payment.EventType, state payment.State, cause string) *inbox.Message {
	id := payment.Identity{Caller: order.Caller, Operation: payment.OperationCharge, Key: key}.PaymentID()
	e := payment.Event{
		PaymentID: id, Caller: order.Caller, Operation: payment.OperationCharge, IdempotencyKey: key, OrderID: "o", Obligation: "o", Amount: 1999,
		Currency: "EUR", Channel: "sim", State: state, Version: 1, Attempt: 1, Cause: cause, OccurredAt: time.Now(),
	}
	return &inbox.Message{ID: uuid.New(), Type: string(kind), Topic: "payment.events", Value: e.AppendJSON(nil)}
}

func succeeded(key uuid.UUID) *inbox.Message {
	return event(key, payment.EventSucceeded, payment.Succeeded, "")
}

func declined(key uuid.UUID) *inbox.Message {
	return event(key, payment.EventDeclined, payment.Declined, "card_declined")
}

// refusal is the reply to a command that was refused.
func refusal(key uuid.UUID, code payment.Code) *inbox.Message {
	r := payment.Reply{
		Kind: payment.ReplyRejected, Code: code, Caller: order.Caller, Operation: payment.OperationCharge, IdempotencyKey: key,
		PaymentID: uuid.New(), State: payment.Rejected,
	}
	return &inbox.Message{ID: uuid.New(), Type: payment.ReplyRejected.CEType(), Topic: "payment.replies", Value: r.AppendJSON(nil)}
}

// stock is what is in the warehouse, held and sold.
func (s *shop) stock() (found [3]int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT on_hand, held, sold FROM shop.stock").Scan(&found[0], &found[1], &found[2]))
	return found
}

func (s *shop) state(id string) (state string) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), "SELECT state FROM shop.orders WHERE id = $1", id).Scan(&state))
	return state
}

func (s *shop) count(sql string, args ...any) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

// told counts the decisions in the shop's outbox.
func (s *shop) told(kind string) int {
	s.t.Helper()
	return s.count("SELECT count(*) FROM settleonce_outbox.commands WHERE type = $1", kind)
}

// Success sells, an explicit decline frees, and what is unknown is kept.
func TestP6_StockIsHeldWhileTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	paid, refused, unknown := s.place("paid", 2), s.place("refused", 3), s.place("unknown", 4)
	require.Equal(t, [3]int{10, 9, 0}, s.stock())
	_, err := s.desk.Place(t.Context(), order.Order{
		ID: "late", SKU: "mug", Quantity: 2, Amount: 1, Currency: "EUR", Customer: "cust-2", PaymentMethod: "tok_visa",
	})
	require.ErrorIs(t, err, order.ErrSoldOut)
	s.hear(event(unknown, payment.EventUnknown, payment.Unknown, ""))
	s.hear(event(unknown, payment.EventReviewRequired, payment.Review, ""))
	s.hear(succeeded(paid))
	s.hear(declined(refused))
	require.Equal(t, [3]int{8, 4, 2}, s.stock())
	require.Equal(t, []string{"accepted", "cancelled", "open"}, []string{s.state("paid"), s.state("refused"), s.state("unknown")})
	require.Equal(t, 1, s.told(order.TypeAccepted))
	require.Equal(t, 1, s.told(order.TypeCancelled))

	// The same news again changes nothing; nor does older news that comes late.
	s.hear(succeeded(paid))
	s.hear(event(paid, payment.EventUnknown, payment.Unknown, ""))
	s.hear(declined(refused))
	require.Equal(t, [3]int{8, 4, 2}, s.stock())
	require.Equal(t, 1, s.told(order.TypeAccepted))
}

// A second payment that was refused because of the first says nothing about the
// order, in whatever order the news comes.
func TestP6_RefusedSecondPaymentReleasesNothing(t *testing.T) {
	t.Parallel()
	for _, code := range []payment.Code{payment.CodePriorAttemptUnresolved, payment.CodeObligationAlreadyPaid, payment.CodeStaleCommand} {
		s := newShop(t)
		s.place("order", 1)
		second := s.payAgain("order")
		s.hear(refusal(second, code))
		require.Equal(t, "open", s.state("order"), code)
		require.Equal(t, [3]int{10, 1, 0}, s.stock(), code)
	}
	s := newShop(t)
	first := s.place("order", 1)
	second := s.payAgain("order")
	s.hear(declined(first))
	require.Equal(t, "open", s.state("order"), "the second may still succeed")
	s.hear(refusal(second, payment.CodeChannelUnavailable))
	require.Equal(t, "cancelled", s.state("order"))
	require.Equal(t, [3]int{10, 0, 0}, s.stock())
}

// Money for an order that was given up is sent back, once, under an id of its own.
func TestP20_MoneyForAnOrderThatWasGivenUp(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	key := s.place("order", 1)
	require.NoError(t, s.desk.GiveUp(t.Context(), "order"))
	require.ErrorIs(t, s.desk.GiveUp(t.Context(), "order"), order.ErrNotOpen)
	s.hear(succeeded(key))
	s.hear(succeeded(key))
	require.Equal(t, "cancelled", s.state("order"))
	require.Equal(t, [3]int{10, 0, 0}, s.stock())
	require.Equal(t, 1, s.count("SELECT count(*) FROM shop.refunds WHERE order_id = 'order'"))
	require.Equal(t, 1, s.told(order.TypeRefund))
	require.Zero(t, s.told(order.TypeAccepted))
	require.Equal(t, 1, s.count("SELECT count(*) FROM shop.alerts WHERE text LIKE 'refund%'"))
}

// The order and its command are one transaction: neither is there without the other.
func TestPlaceIsOneTransaction(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.desk.Place(t.Context(), order.Order{ID: "bad", SKU: "mug", Quantity: 1, Amount: 1999, Currency: "eur", Customer: "c", PaymentMethod: "tok"})
	require.ErrorContains(t, err, "currency")
	require.Equal(t, [3]int{10, 0, 0}, s.stock())
	require.Zero(t, s.count("SELECT count(*) FROM shop.orders"))
	s.place("good", 1)
	require.Equal(t, 1, s.told("payment.command"))
}

// A customer who did not hear of an order and places it again has one, and pays once.
func TestPlaceAgainIsTheSameOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.place("order", 3)
	require.Equal(t, first, s.place("order", 3))
	require.Equal(t, [3]int{10, 3, 0}, s.stock())
	require.Equal(t, 1, s.told("payment.command"))
}

// What nothing can pay any more is cancelled after a while; what may be paid is not.
func TestAbandonedOrdersAreCancelled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	first := s.place("abandoned", 1)
	second := s.payAgain("abandoned")
	s.hear(declined(first))
	s.hear(refusal(second, payment.CodePriorAttemptUnresolved))
	s.place("open", 1)
	paid := s.place("paid elsewhere", 1)
	s.hear(refusal(paid, payment.CodeObligationAlreadyPaid))
	late := s.place("late", 1)
	s.hear(event(late, payment.EventReviewRequired, payment.Review, ""))
	ctx, cancel := context.WithCancel(t.Context())
	var group errgroup.Group
	group.Go(func() error { return s.desk.Watch(ctx, 0, 0, zerolog.Nop()) })
	require.Eventually(t, func() bool {
		return s.state("abandoned") == "cancelled" && s.count("SELECT count(*) FROM shop.alerts WHERE text LIKE '%too long%'") == 1
	}, time.Minute, 20*time.Millisecond)
	cancel()
	require.NoError(t, group.Wait())
	require.Equal(t, []string{"open", "open", "open"}, []string{s.state("open"), s.state("paid elsewhere"), s.state("late")})
	require.Equal(t, [3]int{10, 3, 0}, s.stock())
}

// Many customers, many payments and many news at once, each twice and in any
// order: the stock adds up and nothing is sold twice.
func TestStockAddsUpUnderConcurrency(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.NoError(t, s.desk.Stock(t.Context(), "mug", 20))
	var group errgroup.Group
	group.SetLimit(16)
	for i := range 60 {
		group.Go(func() error { return s.customer(i) })
	}
	require.NoError(t, group.Wait())
	stock := s.stock()
	require.Equal(t, 30, stock[0]+stock[2])
	require.Equal(t, s.count("SELECT coalesce(sum(quantity), 0) FROM shop.orders WHERE state = 'accepted'"), stock[2])
	require.Equal(t, s.count("SELECT coalesce(sum(quantity), 0) FROM shop.orders WHERE state = 'open'"), stock[1])
	require.Equal(t, s.count("SELECT count(*) FROM shop.orders WHERE state = 'accepted'"), s.told(order.TypeAccepted))
	require.Equal(t, s.count("SELECT count(*) FROM shop.orders WHERE state = 'cancelled'"), s.told(order.TypeCancelled))
}

func (s *shop) customer(i int) error {
	ctx, id := s.t.Context(), fmt.Sprintf("order-%d", i)
	key, err := s.desk.Place(ctx, order.Order{ID: id, SKU: "mug", Quantity: 1, Amount: 1999, Currency: "EUR", Customer: "c", PaymentMethod: "tok"})
	if err != nil {
		return nil //nolint:nilerr // sold out, which is fine
	}
	news := []*inbox.Message{succeeded(key), event(key, payment.EventUnknown, payment.Unknown, "")}
	if i%3 == 0 {
		news[0] = declined(key)
	}
	if i%5 == 0 {
		if err := s.desk.GiveUp(ctx, id); err != nil {
			return err
		}
	}
	news = append(news, news...)
	rand.Shuffle(len(news), func(a, b int) { news[a], news[b] = news[b], news[a] })
	var group errgroup.Group
	for _, m := range news {
		group.Go(func() error {
			return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error { return order.Hear(order.Caller)(ctx, tx, m) })
		})
	}
	return group.Wait()
}

// G14: a payment that waited for its channel until it was stale ends rejected with an event of its own. That is
// the same news as the reply's: it was not judged, and nothing is released.
func TestG14_StaleEventReleasesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	key := s.place("order", 3)
	s.hear(event(key, payment.EventRejected, payment.Rejected, string(payment.CodeStaleCommand)))
	require.Equal(t, "open", s.state("order"))
	require.Equal(t, [3]int{10, 3, 0}, s.stock())
	s.hear(refusal(key, payment.CodeStaleCommand))
	s.hear(succeeded(key))
	require.Equal(t, "accepted", s.state("order"))
	require.Equal(t, [3]int{7, 0, 3}, s.stock())
}
