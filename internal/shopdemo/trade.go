package shopdemo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/internal/fleet"
)

// The articles, and how many of each there are for every hundred orders: the last
// one is sold out.
var articles = []struct {
	sku   string
	units int
}{{"mug", 120}, {"shirt", 90}, {"poster", 60}, {"rare-print", 8}}

func (s *Shop) fillShelves(ctx context.Context) error {
	desk := order.NewDesk(s.pool, s.cfg.Caller, s.cfg.Channel)
	for _, a := range articles {
		if err := desk.Stock(ctx, a.sku, a.units*max(s.cfg.Orders, 100)/100); err != nil {
			return fmt.Errorf("stock the shop: %w", err)
		}
	}
	return nil
}

// customer is one customer's plan.
type customer struct {
	order    order.Order
	at       time.Duration
	again    []time.Duration // presses the button again
	givesUp  time.Duration   // 0: never
	impolite bool            // sends the order twice
}

func (s *Shop) plan() []customer {
	random := s.cfg.Random
	plan := make([]customer, s.cfg.Orders)
	for i := range plan {
		c := customer{at: time.Duration(random.Int64N(int64(s.cfg.Length)))}
		c.order = order.Order{
			ID: fmt.Sprintf("%s%05d", s.orders(), i), SKU: articles[random.IntN(len(articles))].sku, Quantity: 1 + random.IntN(2),
			Customer: fmt.Sprintf("cust-%d", random.IntN(200)), PaymentMethod: "tok_visa",
		}
		for random.IntN(5) == 0 {
			c.again = append(c.again, time.Duration(random.Int64N(int64(3*time.Second))))
		}
		if random.IntN(12) == 0 {
			c.givesUp = 1 + time.Duration(random.Int64N(int64(4*time.Second)))
		}
		c.impolite = random.IntN(10) == 0
		c.order.Metadata = s.fault()
		plan[i] = c
	}
	return plan
}

// fault draws what the channel does to an order's first payment.
func (s *Shop) fault() map[string]string {
	if len(s.cfg.Faults) == 0 {
		return nil
	}
	n := s.cfg.Random.IntN(100)
	for _, f := range s.cfg.Faults {
		if n -= f.Share; n < 0 {
			return map[string]string{"sim": f.Script}
		}
	}
	return nil
}

// orders is how the names of its orders begin, and no others at its channel.
func (s *Shop) orders() string { return s.cfg.Caller + "-order-" }

// Trade has the customers come, each at its time, and ends when the last one has
// gone. Refusals are part of it: sold out, not open any more, try again.
func (s *Shop) Trade(ctx context.Context) error {
	var all sync.WaitGroup
	for _, c := range s.customers {
		all.Go(func() {
			if fleet.Pause(ctx, c.at) {
				s.serve(ctx, &c)
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// serve does what a customer does.
func (s *Shop) serve(ctx context.Context, c *customer) {
	body, err := json.Marshal(c.order)
	if err != nil {
		return
	}
	if !s.place(ctx, body) {
		return
	}
	if c.impolite {
		s.post(ctx, "/orders", body)
	}
	var all sync.WaitGroup
	for _, wait := range c.again {
		all.Go(func() {
			if fleet.Pause(ctx, wait) {
				s.post(ctx, "/orders/"+c.order.ID+"/pay", []byte(`{"paymentMethod":"tok_other"}`))
			}
		})
	}
	if c.givesUp > 0 && fleet.Pause(ctx, c.givesUp) {
		s.post(ctx, "/orders/"+c.order.ID+"/cancel", nil)
	}
	all.Wait()
}

// place sends an order until the shop takes it or is sold out, a few times.
func (s *Shop) place(ctx context.Context, body []byte) bool {
	const tries = 10
	for range tries {
		switch s.post(ctx, "/orders", body) {
		case http.StatusAccepted:
			return true
		case http.StatusConflict:
			return false
		}
		if !fleet.Pause(ctx, time.Second/2) {
			break
		}
	}
	return false
}

// post returns the status of the answer, 0 for none.
func (s *Shop) post(ctx context.Context, path string, body []byte) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.front+path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
