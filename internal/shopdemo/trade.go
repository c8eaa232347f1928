package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// The articles, and how many of each there are for every hundred orders: the last
// one is sold out.
var articles = []struct {
	sku   string
	units int
}{{"mug", 120}, {"shirt", 90}, {"poster", 60}, {"rare-print", 8}}

func (r *run) trade(ctx context.Context) error {
	desk := order.NewDesk(r.pool, "sim")
	for _, a := range articles {
		if err := desk.Stock(ctx, a.sku, a.units*max(r.Orders, 100)/100); err != nil {
			return fmt.Errorf("stock the shop: %w", err)
		}
	}
	customers, kills := r.plan(), r.planKills()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.kill(ctx, kills) })
	group.Go(func() error { return r.customers(ctx, customers) })
	return group.Wait()
}

// customer is one customer's plan.
type customer struct {
	order    order.Order
	at       time.Duration
	again    []time.Duration // presses the button again
	givesUp  time.Duration   // 0: never
	impolite bool            // sends the order twice
}

func (r *run) plan() []customer {
	plan := make([]customer, r.Orders)
	for i := range plan {
		c := customer{at: time.Duration(r.random.Int64N(int64(r.Length)))}
		c.order = order.Order{
			ID: fmt.Sprintf("order-%05d", i), SKU: articles[r.random.IntN(len(articles))].sku, Quantity: 1 + r.random.IntN(2),
			Customer: fmt.Sprintf("cust-%d", r.random.IntN(200)), PaymentMethod: "tok_visa",
		}
		for r.random.IntN(5) == 0 {
			c.again = append(c.again, time.Duration(r.random.Int64N(int64(3*time.Second))))
		}
		if r.random.IntN(12) == 0 {
			c.givesUp = 1 + time.Duration(r.random.Int64N(int64(4*time.Second)))
		}
		c.impolite = r.random.IntN(10) == 0
		plan[i] = c
	}
	return plan
}

func (r *run) customers(ctx context.Context, plan []customer) error {
	var all sync.WaitGroup
	for _, c := range plan {
		all.Go(func() {
			if fleet.Pause(ctx, c.at) {
				r.serve(ctx, &c)
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// serve does what a customer does. Refusals are part of it: sold out, not open any more.
func (r *run) serve(ctx context.Context, c *customer) {
	body, err := json.Marshal(c.order)
	if err != nil {
		return
	}
	if !r.post(ctx, "/orders", body) {
		return
	}
	if c.impolite {
		r.post(ctx, "/orders", body)
	}
	var all sync.WaitGroup
	for _, wait := range c.again {
		all.Go(func() {
			if fleet.Pause(ctx, wait) {
				r.post(ctx, "/orders/"+c.order.ID+"/pay", []byte(`{"paymentMethod":"tok_other"}`))
			}
		})
	}
	if c.givesUp > 0 && fleet.Pause(ctx, c.givesUp) {
		r.post(ctx, "/orders/"+c.order.ID+"/cancel", nil)
	}
	all.Wait()
}

// post reports whether the shop took the request.
func (r *run) post(ctx context.Context, path string, body []byte) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.front+path, bytes.NewReader(body))
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusAccepted
}

// kill is the end of one process, and how long it stays away.
type kill struct {
	at, away time.Duration
	which    int // of the children
}

func (r *run) planKills() []kill {
	plan := make([]kill, max(r.Kills, 0))
	for i := range plan {
		plan[i] = kill{
			at: time.Duration(r.random.Int64N(int64(r.Length))), away: time.Duration(r.random.Int64N(int64(time.Second))),
			which: r.random.IntN(len(r.children)),
		}
		r.kills[role(r.children[plan[i].which])]++
	}
	return plan
}

// kill ends processes of shop and workers, and starts them again.
func (r *run) kill(ctx context.Context, plan []kill) error {
	group, ctx := errgroup.WithContext(ctx)
	locks := make([]sync.Mutex, len(r.children))
	for _, k := range plan {
		group.Go(func() error {
			if !fleet.Pause(ctx, k.at) {
				return nil
			}
			locks[k.which].Lock()
			defer locks[k.which].Unlock()
			child := r.children[k.which]
			r.Say("killed " + child.Name)
			if err := child.Kill(); err != nil {
				return err
			}
			fleet.Pause(ctx, k.away)
			return child.Restart(context.WithoutCancel(ctx))
		})
	}
	return group.Wait()
}

// role is a child's name without its number.
func role(c *fleet.Child) string { return c.Name[:strings.LastIndexByte(c.Name, '-')] }

// drain waits until nothing is under way in the shop. Orders whose payment is with
// people stay open; with this provider there are none.
func (r *run) drain(ctx context.Context) error {
	const busy = `SELECT (SELECT count(*) FROM shop.orders WHERE state = 'open') + (SELECT count(*) FROM settleonce_outbox.commands)
		+ (SELECT count(*) FROM shop.receipts WHERE sent_at IS NULL)
		+ (SELECT count(*) FROM shop.payments WHERE state NOT IN ('succeeded', 'declined', 'rejected'))
		+ (SELECT abs((SELECT count(*) FROM shop.orders WHERE state = 'accepted') - (SELECT count(*) FROM shop.packing_tasks)))
		+ (SELECT abs((SELECT count(*) FROM shop.orders WHERE state = 'accepted') - (SELECT count(*) FROM shop.receipts)))`
	deadline := time.Now().Add(r.Patience)
	for {
		var left int
		if err := r.pool.QueryRow(ctx, busy).Scan(&left); err != nil {
			return fmt.Errorf("look at the shop: %w", err)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d things are still under way after %s", left, r.Patience)
		}
		if !fleet.Pause(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// replay publishes every record of every topic again, as an operator would who
// does not know what was lost, and waits until all is read.
func (r *run) replay(ctx context.Context) error {
	client := r.fleet.Client()
	publisher, err := client.NewPublisher(kafka.PublisherConfig{})
	if err != nil {
		return err
	}
	defer func() { _ = publisher.Close(context.WithoutCancel(ctx)) }()
	for _, topic := range r.topics() {
		var again []kafka.Message
		if err := client.ReadAll(ctx, topic, func(record kafka.Record) error {
			again = append(again, kafka.Message{Topic: topic, Key: record.Key, Value: record.Value, Headers: record.Headers})
			return nil
		}); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		if err := publisher.Publish(ctx, again...); err != nil {
			return fmt.Errorf("publish %s again: %w", topic, err)
		}
	}
	if err := r.awaitReaders(ctx); err != nil {
		return err
	}
	return r.resetGroups(ctx)
}

// resetGroups sets the shop's groups back to the oldest message, with the
// operator's tool, while their processes are stopped.
func (r *run) resetGroups(ctx context.Context) error {
	for job, topic := range map[string]string{"orders": payment.NewTopics("").Events, "packing": order.Topic, "receipts": order.Topic} {
		var members []*fleet.Child
		for _, child := range r.children {
			if role(child) == "shop-"+job {
				members = append(members, child)
			}
		}
		for _, m := range members {
			if err := m.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			<-m.Done()
		}
		r.Say("set group shop-" + job + " back to the start of " + topic)
		_, err := r.fleet.Command(ctx, "replay", "--topic", topic, "--group", "shop-"+job, "--execute", "--actor", "shop-demo", "--reason", "make shop")
		if err != nil {
			return fmt.Errorf("set group shop-%s back: %w", job, err)
		}
		for _, m := range members {
			if err := m.Restart(ctx); err != nil {
				return err
			}
		}
	}
	return r.awaitReaders(ctx)
}

// awaitReaders waits until every group has read all there is, twice in a row: what
// they do may make more.
func (r *run) awaitReaders(ctx context.Context) error {
	prefix := r.Fleet.Prefix
	topics := r.topics()
	groups := map[string][]string{
		prefix + "settleonce-consumer": topics[:1], prefix + "shop-orders": topics[1:3], prefix + "shop-packing": topics[3:], prefix + "shop-receipts": topics[3:],
	}
	deadline := time.Now().Add(r.Patience)
	for quiet := 0; quiet < 2; {
		lag, err := r.lag(ctx, groups)
		if err != nil {
			return err
		}
		quiet++
		if lag > 0 {
			quiet = 0
		}
		if time.Now().After(deadline) {
			return errors.New("the replayed records are not read in time")
		}
		if !fleet.Pause(ctx, time.Second) {
			return ctx.Err()
		}
	}
	return r.drain(ctx)
}

func (r *run) lag(ctx context.Context, groups map[string][]string) (lag int64, err error) {
	for group, topics := range groups {
		for _, topic := range topics {
			ends, err := r.fleet.Client().EndOffsets(ctx, topic)
			if err != nil {
				return 0, err
			}
			committed, err := r.fleet.Client().CommittedOffsets(ctx, group, topic)
			if err != nil {
				return 0, err
			}
			for partition, end := range ends {
				lag += end - max(committed[partition], 0)
			}
		}
	}
	return lag, nil
}

func join(list []string) string { return strings.Join(list, ",") }
