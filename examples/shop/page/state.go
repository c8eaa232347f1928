package page

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// State is what the page shows.
type State struct {
	Stock []Stock `json:"stock"`
	// Orders and Payments count by state; Jobs by name.
	Orders   map[string]int `json:"orders"`
	Payments map[string]int `json:"payments"`
	Jobs     map[string]int `json:"jobs"`
	// Uncertain is what not knowing costs: units that are held for payments
	// without an outcome.
	Uncertain Uncertain `json:"uncertain"`
	Latest    []Latest  `json:"latest"`
	Alerts    []Alert   `json:"alerts"`
}

// Stock is one article.
type Stock struct {
	SKU    string `json:"sku"`
	OnHand int    `json:"onHand"`
	Held   int    `json:"held"`
	Sold   int    `json:"sold"`
}

// Uncertain are units held while a payment is unknown or in review.
type Uncertain struct {
	Units int `json:"units"`
	// Seconds is for how long the first of them has been held.
	Seconds float64 `json:"seconds"`
}

// Latest is one of the latest orders.
type Latest struct {
	ID       string `json:"id"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	State    string `json:"state"`
	Reason   string `json:"reason"`
	// Payments are the states of its payments, the first one first.
	Payments []string `json:"payments"`
}

// Alert is what a person should know.
type Alert struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

const (
	stockSQL    = `SELECT sku, on_hand, held, sold FROM shop.stock ORDER BY sku`
	ordersSQL   = `SELECT state, count(*)::int FROM shop.orders GROUP BY 1`
	paymentsSQL = `SELECT state, count(*)::int FROM shop.payments GROUP BY 1`
	jobsSQL     = `SELECT 'packing tasks', count(*)::int FROM shop.packing_tasks
		UNION ALL SELECT 'receipts sent', count(*)::int FROM shop.receipts WHERE sent_at IS NOT NULL
		UNION ALL SELECT 'receipts waiting', count(*)::int FROM shop.receipts WHERE sent_at IS NULL
		UNION ALL SELECT 'receipts perhaps twice', count(*)::int FROM shop.receipts WHERE maybe_twice
		UNION ALL SELECT 'refunds', count(*)::int FROM shop.refunds`
	uncertainSQL = `SELECT coalesce(sum(h.quantity), 0)::int, coalesce(extract(epoch FROM clock_timestamp() - min(h.since)), 0)::float8
		FROM shop.holds h WHERE EXISTS (SELECT FROM shop.payments p WHERE p.order_id = h.order_id AND p.state IN ('unknown', 'review', 'not_judged'))`
	latestSQL = `SELECT o.id, o.sku, o.quantity, o.state, o.reason,
		ARRAY(SELECT p.state || CASE WHEN p.code = '' THEN '' ELSE ' ' || p.code END FROM shop.payments p WHERE p.order_id = o.id ORDER BY p.asked_at)
		FROM shop.orders o ORDER BY o.created_at DESC LIMIT 15`
	alertsSQL = `SELECT at, text FROM shop.alerts ORDER BY n DESC LIMIT 8`
)

// Look reads the state in one round trip.
func Look(ctx context.Context, pool *pgxpool.Pool) (*State, error) {
	s := &State{Orders: map[string]int{}, Payments: map[string]int{}, Jobs: map[string]int{}}
	batch := &pgx.Batch{}
	batch.Queue(stockSQL).Query(func(rows pgx.Rows) (err error) {
		s.Stock, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Stock])
		return err
	})
	for sql, into := range map[string]map[string]int{ordersSQL: s.Orders, paymentsSQL: s.Payments, jobsSQL: s.Jobs} {
		batch.Queue(sql).Query(counts(into))
	}
	batch.Queue(uncertainSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&s.Uncertain.Units, &s.Uncertain.Seconds) })
	batch.Queue(latestSQL).Query(func(rows pgx.Rows) (err error) {
		s.Latest, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Latest])
		return err
	})
	batch.Queue(alertsSQL).Query(func(rows pgx.Rows) (err error) {
		s.Alerts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Alert])
		return err
	})
	return s, pool.SendBatch(ctx, batch).Close()
}

func counts(into map[string]int) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var name string
		var n int
		_, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			into[name] = n
			return nil
		})
		return err
	}
}
