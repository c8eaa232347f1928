package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/examples/shop/mailgate"
	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/examples/shop/packing"
	"github.com/settleonce/settleonce/examples/shop/receipt"
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
	for _, tables := range []func(context.Context, *pgxpool.Pool) error{order.Migrate, packing.Migrate, receipt.Migrate} {
		if err := tables(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// world is a shop without its processes: what they do the test does, with their code.
type world struct {
	t    *testing.T
	shop *Shop
	desk *order.Desk
}

func newWorld(t *testing.T) *world {
	t.Helper()
	books, err := sim.NewServer(filepath.Join(t.TempDir(), "ledger"), sim.DefaultBehaviour())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, books.Close()) })
	channel, mails := httptest.NewServer(books), httptest.NewServer(&mailgate.Gateway{})
	t.Cleanup(channel.Close)
	t.Cleanup(mails.Close)
	w := &world{t: t, shop: &Shop{
		cfg: ShopConfig{Orders: 100}.WithDefaults(), pool: pgtest.New(t, migrate), ledger: channel.URL, mailgate: strings.TrimPrefix(mails.URL, "http://"),
	}}
	w.desk = order.NewDesk(w.shop.pool, w.shop.cfg.Caller, w.shop.cfg.Channel)
	require.NoError(t, w.shop.fillShelves(t.Context()))
	return w
}

// place places an order of two mugs, with a name like those of customers.
func (w *world) place(name string) (id string, key uuid.UUID) {
	w.t.Helper()
	id = w.shop.orders() + name
	key, err := w.desk.Place(w.t.Context(), order.Order{
		ID: id, SKU: "mug", Quantity: 2, Amount: 3998, Currency: "EUR", Customer: "cust-1", PaymentMethod: "tok_visa",
	})
	require.NoError(w.t, err)
	return id, key
}

// charge has the channel take the money for an order.
func (w *world) charge(id string) {
	w.t.Helper()
	body, err := json.Marshal(sim.Content{Amount: 3998, Currency: "EUR", Customer: "cust-1", Method: "tok_visa", Order: id, PaymentID: uuid.NewString()})
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, w.post(w.shop.ledger+"/v1/charges", sim.KeyHeader, uuid.NewString(), body))
}

func (w *world) mail(id string) {
	w.t.Helper()
	require.Equal(w.t, http.StatusAccepted, w.post("http://"+w.shop.mailgate+"/mails", "Message-Id", id, nil))
}

func (w *world) post(url, header, value string, body []byte) int {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set(header, value)
	response, err := http.DefaultClient.Do(request)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	return response.StatusCode
}

// hear tells the shop what became of a payment, and packing and receipts what it decided.
func (w *world) hear(key uuid.UUID, kind payment.EventType, state payment.State) {
	w.t.Helper()
	id := payment.Identity{Caller: w.shop.cfg.Caller, Operation: payment.OperationCharge, Key: key}.PaymentID()
	e := payment.Event{
		PaymentID: id, Caller: w.shop.cfg.Caller, Operation: payment.OperationCharge, IdempotencyKey: key, OrderID: "o", Obligation: "o", Amount: 3998,
		Currency: "EUR", Channel: w.shop.cfg.Channel, State: state, Version: 1, Attempt: 1, Cause: "no_cause", OccurredAt: time.Now(),
	}
	w.handle(order.Hear(w.shop.cfg.Caller), &inbox.Message{ID: uuid.New(), Type: string(kind), Topic: "payment.events", Value: e.AppendJSON(nil)})
	rows, err := w.shop.pool.Query(w.t.Context(), "DELETE FROM settleonce_outbox.commands RETURNING id, type, payload")
	require.NoError(w.t, err)
	var m inbox.Message
	var decisions []inbox.Message
	_, err = pgx.ForEachRow(rows, []any{&m.ID, &m.Type, &m.Value}, func() error {
		decisions = append(decisions, inbox.Message{ID: m.ID, Type: m.Type, Topic: order.Topic, Value: bytes.Clone(m.Value)})
		return nil
	})
	require.NoError(w.t, err)
	for i := range decisions {
		if d := &decisions[i]; d.Type == order.TypeAccepted {
			w.handle(packing.Pack, d)
			w.handle(receipt.Note, d)
			w.mail(d.ID.String())
		}
	}
	w.exec("UPDATE shop.receipts SET sent_at = clock_timestamp()")
}

func (w *world) handle(h inbox.Handler, m *inbox.Message) {
	w.t.Helper()
	require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.shop.pool, func(tx pgx.Tx) error { return h(w.t.Context(), tx, m) }))
}

func (w *world) exec(sql string) {
	w.t.Helper()
	_, err := w.shop.pool.Exec(w.t.Context(), sql)
	require.NoError(w.t, err)
}

// trade has one order of each kind. Whether the channel took the money for a payment in
// review nobody knows.
func (w *world) trade() {
	w.t.Helper()
	id, key := w.place("paid")
	w.charge(id)
	w.hear(key, payment.EventSucceeded, payment.Succeeded)
	_, key = w.place("declined")
	w.hear(key, payment.EventDeclined, payment.Declined)
	id, key = w.place("given-up")
	require.NoError(w.t, w.desk.GiveUp(w.t.Context(), id))
	w.charge(id)
	w.hear(key, payment.EventSucceeded, payment.Succeeded)
	id, key = w.place("review-taken")
	w.charge(id)
	w.hear(key, payment.EventReviewRequired, payment.Review)
	_, key = w.place("review-not-taken")
	w.hear(key, payment.EventReviewRequired, payment.Review)
	id, key = w.place("review-given-up")
	require.NoError(w.t, w.desk.GiveUp(w.t.Context(), id))
	w.charge(id)
	w.hear(key, payment.EventReviewRequired, payment.Review)
}

// Books that add up have nothing wrong with them; what is with people is neither under
// way nor wrong.
func TestCheck_PassesWhatAddsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.trade()
	busy, err := w.shop.underWay(t.Context())
	require.NoError(t, err)
	require.Zero(t, busy)
	books, err := w.shop.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, Books{
		Orders: map[string]int{"accepted": 1, "cancelled": 3, "open": 2}, Payments: 6, InReview: 3, Charges: 4, Refunds: 1, Tasks: 1, Receipts: 1, Mails: 1,
		Violations: []string{},
	}, books)
	w.place("open")
	busy, err = w.shop.underWay(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, busy, "its order, its payment and its command")
}

// Each violation that is planted into the tables, at the channel or at the mail gateway
// is found.
func TestCheck_FindsPlantedViolations(t *testing.T) {
	t.Parallel()
	sql := func(text string) func(*world) { return func(w *world) { w.exec(text) } }
	for _, plant := range []struct {
		says string
		do   func(w *world)
	}{
		{"stock does not add up", sql("UPDATE shop.stock SET held = held + 1 WHERE sku = 'mug'")},
		{"stock does not add up", sql("UPDATE shop.stock SET sold = sold - 2 WHERE sku = 'mug'")},
		{"a paid order was cancelled", sql("UPDATE shop.orders SET state = 'cancelled', reason = 'not paid: X' WHERE id = 'shop-order-paid'")},
		{"a payment of it has no outcome", sql("UPDATE shop.orders SET state = 'cancelled', reason = 'not paid: X' WHERE id = 'shop-order-review-taken'")},
		{"nobody sends it back", sql("DELETE FROM shop.refunds")},
		{"not paid exactly once", sql("UPDATE shop.payments SET state = 'declined' WHERE order_id = 'shop-order-paid'")},
		{"exactly one packing task: shop-order-paid", sql("INSERT INTO shop.packing_tasks (order_id, sku, quantity) SELECT order_id, sku, quantity FROM shop.packing_tasks")},
		{"exactly one packing task: shop-order-declined", sql("UPDATE shop.packing_tasks SET order_id = 'shop-order-declined'")},
		{"exactly one receipt: shop-order-paid", sql("DELETE FROM shop.receipts")},
		{"shop-order-paid: the provider took its money 2 times, the shop knows of 1", func(w *world) { w.charge("shop-order-paid") }},
		{"shop-order-declined: the provider took its money 1 times, the shop knows of 0", func(w *world) { w.charge("shop-order-declined") }},
		{"shop-order-review-taken: the provider took its money 2 times, the shop knows of 0", func(w *world) { w.charge("shop-order-review-taken") }},
		{"the provider took money for shop-order-none, which is no order", func(w *world) { w.charge("shop-order-none") }},
		{"is no receipt", func(w *world) { w.mail(uuid.NewString()) }},
		{"was mailed 2 times", func(w *world) {
			var id string
			require.NoError(w.t, w.shop.pool.QueryRow(w.t.Context(), "SELECT message_id::text FROM shop.receipts").Scan(&id))
			w.mail(id)
		}},
		{"was mailed 0 times", sql("UPDATE shop.receipts SET message_id = gen_random_uuid()")},
	} {
		t.Run(plant.says, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.trade()
			plant.do(w)
			books, err := w.shop.Check(t.Context())
			require.NoError(t, err)
			require.Contains(t, strings.Join(books.Violations, "\n"), plant.says)
		})
	}
}

// Charges of others at the same channel are nothing to the shop.
func TestCheck_LeavesOthersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.charge("order-of-somebody-else")
	books, err := w.shop.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, books.Violations)
	require.Zero(t, books.Charges)
}
