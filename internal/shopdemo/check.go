package shopdemo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/check"
)

// Report is what a run came to.
type Report struct {
	Seed   uint64         `json:"seed"`
	Took   time.Duration  `json:"took"`
	Orders map[string]int `json:"orders"`
	// Payments counts the payments that were asked for, Charges what the provider
	// took, Refunds what is to be sent back.
	Payments int            `json:"payments"`
	Charges  int            `json:"charges"`
	Refunds  int            `json:"refunds"`
	Tasks    int            `json:"packingTasks"`
	Receipts int            `json:"receipts"`
	Mails    int            `json:"mails"`
	Twice    int            `json:"receiptsPerhapsTwice"`
	Kills    map[string]int `json:"kills"`
	// Violations are what must not be; empty is well.
	Violations []string `json:"violations"`
	// Kept is where data and logs are, after a violation.
	Kept string `json:"kept,omitempty"`
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

// check holds the shop, the provider and the mail gateway against each other.
func (r *run) check(ctx context.Context) (Report, error) {
	report := Report{Violations: []string{}}
	if err := r.count(ctx, &report); err != nil {
		return report, err
	}
	for _, rule := range rules {
		rows, err := r.pool.Query(ctx, rule.sql)
		if err != nil {
			return report, fmt.Errorf("check the shop: %w", err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return report, fmt.Errorf("check the shop: %w", err)
		}
		for _, what := range found {
			report.Violations = append(report.Violations, rule.says+": "+what)
		}
	}
	if err := r.checkLedger(ctx, &report); err != nil {
		return report, err
	}
	return report, r.checkMails(ctx, &report)
}

func (r *run) count(ctx context.Context, report *Report) error {
	report.Orders = map[string]int{}
	rows, err := r.pool.Query(ctx, "SELECT state, count(*)::int FROM shop.orders GROUP BY 1")
	if err != nil {
		return fmt.Errorf("count orders: %w", err)
	}
	var state string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error {
		report.Orders[state] = n
		return nil
	}); err != nil {
		return fmt.Errorf("count orders: %w", err)
	}
	return r.pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM shop.payments), (SELECT count(*) FROM shop.refunds), (SELECT count(*) FROM shop.packing_tasks),
		(SELECT count(*) FROM shop.receipts), (SELECT count(*) FROM shop.receipts WHERE maybe_twice)`).
		Scan(&report.Payments, &report.Refunds, &report.Tasks, &report.Receipts, &report.Twice)
}

// checkLedger compares what the provider took with what the shop believes.
func (r *run) checkLedger(ctx context.Context, report *Report) error {
	ledger, err := check.ReadLedger(ctx, "sim", r.fleet.SimURL())
	if err != nil {
		return err
	}
	taken := map[string]int{} // by order
	for _, charge := range ledger.Charges {
		taken[charge.Order] += charge.Settled
		report.Charges += charge.Settled
	}
	rows, err := r.pool.Query(ctx, `SELECT o.id, (o.state = 'accepted')::int + (SELECT count(*) FROM shop.refunds f WHERE f.order_id = o.id)::int FROM shop.orders o`)
	if err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	var id string
	var believed int
	_, err = pgx.ForEachRow(rows, []any{&id, &believed}, func() error {
		if taken[id] != believed {
			report.Violations = append(report.Violations, fmt.Sprintf("order %s: the provider took its money %d times, the shop knows of %d", id, taken[id], believed))
		}
		delete(taken, id)
		return nil
	})
	for id, n := range taken {
		if n > 0 {
			report.Violations = append(report.Violations, "the provider took money for "+id+", which is no order")
		}
	}
	return err
}

// checkMails compares what the gateway delivered with the receipts.
func (r *run) checkMails(ctx context.Context, report *Report) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.mailgate+"/mails", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask the mail gateway: %w", err)
	}
	defer response.Body.Close()
	var delivered map[string]int
	if err := json.NewDecoder(response.Body).Decode(&delivered); err != nil {
		return fmt.Errorf("read the mail gateway's answer: %w", err)
	}
	rows, err := r.pool.Query(ctx, "SELECT message_id::text, maybe_twice FROM shop.receipts")
	if err != nil {
		return fmt.Errorf("read receipts: %w", err)
	}
	var id string
	var twice bool
	_, err = pgx.ForEachRow(rows, []any{&id, &twice}, func() error {
		if n := delivered[id]; n < 1 || n > 1 && !twice {
			report.Violations = append(report.Violations, fmt.Sprintf("receipt %s was mailed %d times", id, n))
		}
		report.Mails += delivered[id]
		delete(delivered, id)
		return nil
	})
	for id := range delivered {
		report.Violations = append(report.Violations, "mail "+id+" is no receipt")
	}
	return err
}

// compare finds what the replay changed.
func (r *Report) compare(before Report) {
	was := fmt.Sprint(before.Orders, before.Payments, before.Charges, before.Refunds, before.Tasks, before.Receipts, before.Mails)
	is := fmt.Sprint(r.Orders, r.Payments, r.Charges, r.Refunds, r.Tasks, r.Receipts, r.Mails)
	if was != is {
		r.Violations = append(r.Violations, "the replay changed something: "+was+" became "+is)
	}
}
