package shopdemo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/check"
)

// Books are what a shop came to.
type Books struct {
	Orders map[string]int `json:"orders"`
	// Payments counts the payments that were asked for, InReview those of them that are
	// with people, Charges what the provider took, Refunds what is to be sent back.
	Payments int `json:"payments"`
	InReview int `json:"inReview"`
	Charges  int `json:"charges"`
	Refunds  int `json:"refunds"`
	Tasks    int `json:"packingTasks"`
	Receipts int `json:"receipts"`
	Mails    int `json:"mails"`
	Twice    int `json:"receiptsPerhapsTwice"`
	// Violations are what must not be; empty is well.
	Violations []string `json:"violations"`
}

// rules are statements that find what must not be, each with what it means.
var rules = []struct{ says, sql string }{
	{
		"stock does not add up: held units are not those of open orders, or sold ones not those of accepted orders",
		`SELECT s.sku FROM shop.stock s WHERE s.held <> (SELECT coalesce(sum(quantity), 0) FROM shop.orders o WHERE o.sku = s.sku AND o.state = 'open')
			OR s.sold <> (SELECT coalesce(sum(quantity), 0) FROM shop.orders o WHERE o.sku = s.sku AND o.state = 'accepted')
			OR s.on_hand < 0 OR s.held < 0 OR s.held > s.on_hand`,
	},
	{
		"a paid order was cancelled, and not by its customer",
		`SELECT o.id FROM shop.orders o WHERE o.state = 'cancelled' AND o.reason <> 'given up by the customer'
			AND EXISTS (SELECT FROM shop.payments p WHERE p.order_id = o.id AND p.state = 'succeeded')`,
	},
	{
		"an order was cancelled, and not by its customer, though a payment of it has no outcome",
		`SELECT o.id FROM shop.orders o WHERE o.state = 'cancelled' AND o.reason <> 'given up by the customer'
			AND EXISTS (SELECT FROM shop.payments p WHERE p.order_id = o.id AND p.state NOT IN ('succeeded', 'declined', 'rejected'))`,
	},
	{
		"an order was given up, money came, and nobody sends it back",
		`SELECT o.id FROM shop.orders o JOIN shop.payments p ON p.order_id = o.id AND p.state = 'succeeded'
			WHERE o.state = 'cancelled' AND NOT EXISTS (SELECT FROM shop.refunds f WHERE f.order_id = o.id)`,
	},
	{
		"an accepted order was not paid exactly once",
		`SELECT o.id FROM shop.orders o WHERE o.state = 'accepted' AND 1 <>
			(SELECT count(*) FROM shop.payments p WHERE p.order_id = o.id AND p.state = 'succeeded') - (SELECT count(*) FROM shop.refunds f WHERE f.order_id = o.id)`,
	},
	{
		"an accepted order does not have exactly one packing task",
		`SELECT o.id FROM shop.orders o WHERE (o.state = 'accepted')::int <> (SELECT count(*) FROM shop.packing_tasks t WHERE t.order_id = o.id)`,
	},
	{
		"an accepted order does not have exactly one receipt",
		`SELECT o.id FROM shop.orders o WHERE (o.state = 'accepted')::int <> (SELECT count(*) FROM shop.receipts t WHERE t.order_id = o.id)`,
	},
}

// Check holds the shop, the provider and the mail gateway against each other, while
// nothing is under way.
func (s *Shop) Check(ctx context.Context) (Books, error) {
	books := Books{Violations: []string{}}
	if err := s.count(ctx, &books); err != nil {
		return books, err
	}
	for _, rule := range rules {
		rows, err := s.pool.Query(ctx, rule.sql)
		if err != nil {
			return books, fmt.Errorf("check the shop: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return books, fmt.Errorf("check the shop: %w", err)
		}
		for _, what := range found {
			books.brokenf("%s: %s", rule.says, what)
		}
	}
	if err := s.checkLedger(ctx, &books); err != nil {
		return books, err
	}
	return books, s.checkMails(ctx, &books)
}

// counts reads named counts.
func (s *Shop) counts(ctx context.Context, sql string) (map[string]int, error) {
	out := map[string]int{}
	var name string
	var n int
	rows, err := s.pool.Query(ctx, sql)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error {
			out[name] = n
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("count what the shop has: %w", err)
	}
	return out, nil
}

func (b *Books) brokenf(format string, args ...any) {
	b.Violations = append(b.Violations, fmt.Sprintf(format, args...))
}

func (s *Shop) count(ctx context.Context, books *Books) (err error) {
	if books.Orders, err = s.counts(ctx, "SELECT state, count(*)::int FROM shop.orders GROUP BY 1"); err != nil {
		return err
	}
	return s.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM shop.payments), (SELECT count(*) FROM shop.payments WHERE state = 'review'),
		(SELECT count(*) FROM shop.refunds), (SELECT count(*) FROM shop.packing_tasks),
		(SELECT count(*) FROM shop.receipts), (SELECT count(*) FROM shop.receipts WHERE maybe_twice)`).
		Scan(&books.Payments, &books.InReview, &books.Refunds, &books.Tasks, &books.Receipts, &books.Twice)
}

// checkLedger compares what the provider took with what the shop believes. Of a payment
// that is with people, it may have taken the money.
func (s *Shop) checkLedger(ctx context.Context, books *Books) error {
	ledger, err := check.ReadLedger(ctx, s.cfg.Channel, s.ledger)
	if err != nil {
		return err
	}
	taken := map[string]int{} // by order
	for _, charge := range ledger.Charges {
		if strings.HasPrefix(charge.Order, s.orders()) {
			taken[charge.Order] += charge.Settled
			books.Charges += charge.Settled
		}
	}
	rows, err := s.pool.Query(ctx, `SELECT o.id, (o.state = 'accepted')::int + (SELECT count(*) FROM shop.refunds f WHERE f.order_id = o.id)::int,
		(SELECT count(*) FROM shop.payments p WHERE p.order_id = o.id AND p.state = 'review')::int FROM shop.orders o`)
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	var id string
	var believed, unresolved int
	_, err = pgx.ForEachRow(rows, []any{&id, &believed, &unresolved}, func() error {
		if n := taken[id]; n < believed || n > believed+unresolved {
			books.brokenf("order %s: the provider took its money %d times, the shop knows of %d", id, n, believed)
		}
		delete(taken, id)
		return nil
	})
	for id, n := range taken {
		if n > 0 {
			books.brokenf("the provider took money for %s, which is no order", id)
		}
	}
	return err
}

// checkMails compares what the gateway delivered with the receipts.
func (s *Shop) checkMails(ctx context.Context, books *Books) error {
	delivered, err := s.delivered(ctx)
	if err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, "SELECT message_id::text, maybe_twice FROM shop.receipts")
	if err != nil {
		return fmt.Errorf("read receipts: %w", err)
	}
	var id string
	var twice bool
	_, err = pgx.ForEachRow(rows, []any{&id, &twice}, func() error {
		if n := delivered[id]; n < 1 || n > 1 && !twice {
			books.brokenf("receipt %s was mailed %d times", id, n)
		}
		books.Mails += delivered[id]
		delete(delivered, id)
		return nil
	})
	for id := range delivered {
		books.brokenf("mail %s is no receipt", id)
	}
	return err
}

// delivered is how often each mail went out, by the gateway's own count.
func (s *Shop) delivered(ctx context.Context) (mails map[string]int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.mailgate+"/mails", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the mail gateway: %w", err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&mails); err != nil {
		return nil, fmt.Errorf("read the mail gateway's answer: %w", err)
	}
	return mails, nil
}

// compare finds what the replay changed.
func (b *Books) compare(before *Books) {
	was := fmt.Sprint(before.Orders, before.Payments, before.Charges, before.Refunds, before.Tasks, before.Receipts, before.Mails)
	is := fmt.Sprint(b.Orders, b.Payments, b.Charges, b.Refunds, b.Tasks, b.Receipts, b.Mails)
	if was != is {
		b.brokenf("the replay changed something: %s became %s", was, is)
	}
}
