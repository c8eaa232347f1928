package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/demo"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/shopdemo"
)

// storefront is who the shop is for settleonce. "shop" is somebody of the stories.
const storefront = "storefront"

// opening is the shop of a run: before it is open, while customers come, and what it came
// to.
type opening struct {
	*shopdemo.Shop

	cfg     shopdemo.ShopConfig
	network *guest
	books   *shopdemo.Books
}

// newOpening is the shop that a run wants; nil where it wants none.
func newOpening(cfg *Config, of []mix) *opening {
	if cfg.Shop == "" {
		return nil
	}
	o := &opening{cfg: shopdemo.ShopConfig{
		Program: cfg.Shop, Caller: storefront, Channel: tillOf(of).name, Prefix: cfg.Fleet.Prefix,
		Processes: []string{"outbox,orders,packing,receipts"}, Flags: []string{"-session-timeout", lease.String()},
		Orders: ordersOf(cfg.Payments), Length: cfg.Length, Faults: shopFaults, Random: rand.New(rand.NewPCG(cfg.Seed, 71)),
	}}
	o.network = newGuest(demo.RoleShop, o.groups()...)
	o.cfg.Network = o.network.lead
	return o
}

// shopFaults are what the channel does to orders: it declines some at first, authorises
// others and never takes the money, and takes another amount for others, which is for a
// person to say. (Many that it never gave an answer about would be many that it is hardly
// asked about: it would pass for out of service.)
var shopFaults = []shopdemo.Fault{{Share: 10, Script: "declined@*"}, {Share: 3, Script: "authorized@*"}, {Share: 2, Script: "wrong_amount@*"}}

// ordersOf is how many orders customers place beside so many payments.
func ordersOf(payments int) int {
	const share, fewest, most = 10, 60, 3000
	return min(max(payments/share, fewest), most)
}

// tillOf is the channel that the shop has its orders paid through: the first one that can
// be asked and sent to again or, where there is none, the first.
func tillOf(of []mix) mix {
	at := slices.IndexFunc(of, func(m mix) bool { return m.promises["idempotent-submit"] != no && m.promises["query"] != no })
	return of[max(at, 0)]
}

// groups are its consumer groups, each with each of its topics.
func (o *opening) groups() (out []group) {
	for _, g := range shopdemo.Groups(o.cfg.Prefix) {
		for _, topic := range g.Topics {
			out = append(out, group{g.Name, topic})
		}
	}
	return out
}

// beside is what the run knows of it.
func (o *opening) beside() *demo.Shop {
	if o == nil {
		return nil
	}
	return &demo.Shop{Caller: storefront, Open: o.open, Left: func(ctx context.Context) (int64, error) { return o.Left(ctx) }, Check: o.check}
}

func (o *opening) open(ctx context.Context, f *fleet.Fleet) (children []*fleet.Child, err error) {
	if o.Shop, err = shopdemo.Open(ctx, f, o.cfg); err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	return o.Children(), nil
}

// trade has the customers come; none come where there is no shop.
func (o *opening) trade(ctx context.Context) {
	if o != nil {
		_ = o.Trade(ctx) // it fails where the run ends
	}
}

// check holds its books against those of the channel and of the mail gateway (G7).
func (o *opening) check(ctx context.Context) (found []check.Violation, err error) {
	books, err := o.Check(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the shop: %w", err)
	}
	o.books = &books
	for _, what := range books.Violations {
		found = append(found, check.Violation{Guarantee: "G7", Text: "the shop: " + what})
	}
	return found, nil
}

// leave ends what the run itself has of it.
func (o *opening) leave() {
	if o != nil && o.Shop != nil {
		o.Close()
	}
}
