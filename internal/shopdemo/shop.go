package shopdemo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/internal/childproc"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// ShopConfig says what a shop beside a fleet is like, and what its customers do.
type ShopConfig struct {
	// Program is the path of the shop's program. Required.
	Program string
	// Caller is who the shop is for settleonce; the namespace of that name must be
	// repaid by name only. Defaults to order.Caller.
	Caller string
	// Channel has its orders paid. Defaults to that of a fleet with one, "sim".
	Channel string
	// Prefix of all topics and groups. Defaults to none.
	Prefix string
	// Processes are the jobs of each kind of process, separated by commas. Defaults to
	// one kind for each job. Page and mail gateway are a process of their own.
	Processes []string
	// Flags are further ones of its processes.
	Flags []string
	// Network puts something between its processes and database and brokers, and returns
	// the addresses that lead there; nil puts nothing.
	Network func(ctx context.Context, dsn *url.URL, brokers []string) (string, []string, error)
	// Orders is how many orders customers try to place, Length how long they take.
	// Required, both.
	Orders int
	Length time.Duration
	// Faults are what the channel does to the first payments of some orders, where it is a
	// simulator. Defaults to nothing.
	Faults []Fault
	// Random draws what customers do. Required.
	Random *rand.Rand
	// GatewayForgets makes the mail gateway one that delivers a repetition again.
	GatewayForgets bool
}

// Fault is what the channel does to the first payment of so many of a hundred orders.
type Fault struct {
	Share int
	// Script is what the simulator reads, as in "declined@*".
	Script string
}

// WithDefaults returns a copy with unset fields set.
func (c ShopConfig) WithDefaults() ShopConfig {
	c.Caller, c.Channel = cmp.Or(c.Caller, order.Caller), cmp.Or(c.Channel, "sim")
	if len(c.Processes) == 0 {
		c.Processes = []string{"outbox", "orders", "packing", "receipts"}
	}
	if c.Network == nil {
		c.Network = func(_ context.Context, dsn *url.URL, brokers []string) (string, []string, error) {
			return dsn.String(), brokers, nil
		}
	}
	return c
}

// Validate reports the first setting that must be changed.
func (c ShopConfig) Validate() error {
	switch {
	case c.Program == "":
		return errors.New("name the shop's program: go build -o bin/shop ./examples/shop")
	case c.Orders < 1 || c.Length < time.Second:
		return errors.New("let customers place at least one order, in at least a second")
	case c.Random == nil:
		return errors.New("say what draws the shop's customers: set Random")
	}
	return nil
}

// Shop is a shop beside a running fleet: its processes, its database and its
// customers. Its methods go past whatever Network put there.
type Shop struct {
	cfg       ShopConfig
	fleet     *fleet.Fleet
	pool      *pgxpool.Pool
	ledger    string // address of the channel's own books
	front     string // address of the page
	mailgate  string
	customers []customer
	children  []*fleet.Child
}

// Open makes the shop's database and topic, fills its shelves and starts its
// processes. Call Close in any case; the processes end with the fleet.
func Open(ctx context.Context, f *fleet.Fleet, cfg ShopConfig) (*Shop, error) {
	s := &Shop{cfg: cfg.WithDefaults(), fleet: f}
	if err := s.cfg.Validate(); err != nil {
		return s, err
	}
	s.customers = s.plan()
	at := slices.IndexFunc(f.Sims(), func(sim *fleet.Sim) bool { return sim.Channel == s.cfg.Channel })
	if at < 0 {
		return s, fmt.Errorf("the fleet has no channel %q for the shop", s.cfg.Channel)
	}
	s.ledger = f.Sims()[at].URL
	if err := s.makeTopic(ctx); err != nil {
		return s, fmt.Errorf("make the shop's topic: %w", err)
	}
	dsn, err := f.CreateDatabase(ctx, "shop")
	if err != nil {
		return s, err
	}
	if s.pool, err = pgxpool.New(ctx, dsn.String()); err != nil {
		return s, err
	}
	if err := order.Migrate(ctx, s.pool); err != nil {
		return s, fmt.Errorf("make the shop's tables: %w", err)
	}
	if err := s.fillShelves(ctx); err != nil {
		return s, err
	}
	return s, s.start(ctx, dsn)
}

// Close leaves the shop's database.
func (s *Shop) Close() {
	if s.pool != nil {
		s.pool.Close()
	}
}

// Children are the processes that may be broken: the page is what customers need to
// place an order, and the mail gateway is somebody else's.
func (s *Shop) Children() []*fleet.Child { return s.children }

// partitions is how many the shop gives its topic.
const partitions = 8

func (s *Shop) makeTopic(ctx context.Context) error {
	const enough = 2 // copies that a record must have to be acknowledged
	spec := kafka.TopicSpec{Name: s.cfg.Prefix + order.Topic, Partitions: partitions, Replication: s.fleet.Copies()}
	if spec.Replication > enough {
		spec.Config = map[string]string{"min.insync.replicas": strconv.Itoa(enough)}
	}
	results, err := s.fleet.Client().EnsureTopics(ctx, []kafka.TopicSpec{spec})
	if err == nil {
		err = results[0].Err
	}
	return err
}

// each is how many processes of a kind there are.
const each = 2

func (s *Shop) start(ctx context.Context, dsn *url.URL) error {
	through, brokers, err := s.cfg.Network(ctx, dsn, s.fleet.Brokers())
	if err != nil {
		return err
	}
	ports, err := childproc.FreePorts(ctx, 2)
	if err != nil {
		return fmt.Errorf("find free ports: %w", err)
	}
	s.front, s.mailgate = fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	flags := append([]string{
		"-dsn", through, "-brokers", strings.Join(brokers, ","), "-prefix", s.cfg.Prefix, "-page", s.front, "-mailgate", s.mailgate, "-patience", "5s",
		"-lost-mail-answers", "0.1", fmt.Sprintf("-gateway-forgets=%t", s.cfg.GatewayForgets), "-caller", s.cfg.Caller, "-channel", s.cfg.Channel,
	}, s.cfg.Flags...)
	ready := "http://" + s.front + "/healthz"
	if _, err := s.fleet.StartProgram(ctx, "shop-front-0", s.cfg.Program, ready, append([]string{"-jobs", "page,mailgate"}, flags...)...); err != nil {
		return err
	}
	for _, jobs := range s.cfg.Processes {
		for number := range each {
			child, err := s.fleet.StartProgram(ctx, s.processName(jobs, number), s.cfg.Program, "", append([]string{"-jobs", jobs}, flags...)...)
			if err != nil {
				return err
			}
			s.children = append(s.children, child)
		}
	}
	return nil
}

// processName tells those that have one job from those of the others.
func (s *Shop) processName(jobs string, number int) string {
	if strings.Contains(jobs, ",") {
		return fmt.Sprintf("shop-%d", number)
	}
	return fmt.Sprintf("shop-%s-%d", jobs, number)
}

// Group is a consumer group of the shop's.
type Group struct {
	// Name is the whole one, Job whose it is.
	Name, Job string
	// Topics are what it reads, without prefix.
	Topics []string
}

// Groups are those of a shop with the prefix.
func Groups(prefix string) []Group {
	names := payment.NewTopics("")
	return []Group{
		{prefix + "shop-orders", "orders", []string{names.Events, names.Replies}},
		{prefix + "shop-packing", "packing", []string{order.Topic}},
		{prefix + "shop-receipts", "receipts", []string{order.Topic}},
	}
}

// unread is how many records its groups have not read.
func (s *Shop) unread(ctx context.Context) (all int64, err error) {
	for _, g := range Groups(s.cfg.Prefix) {
		for _, topic := range g.Topics {
			n, err := s.fleet.Lag(ctx, g.Name, s.cfg.Prefix+topic)
			if err != nil {
				return 0, err
			}
			all += n
		}
	}
	return all, nil
}
