// Command shop is a small real shop on settleonce: customers order, stock is held
// while they pay, the warehouse packs and receipts are mailed, each exactly as
// often as it should be. It uses the public packages only.
//
//	shop -dsn postgres://localhost/shop -brokers localhost:9092
//
// runs everything in one process, with its page on http://localhost:8070. Each job
// can also run by itself, any number of times: -jobs orders,packing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/examples/shop/mailgate"
	"github.com/settleonce/settleonce/examples/shop/order"
	"github.com/settleonce/settleonce/examples/shop/packing"
	"github.com/settleonce/settleonce/examples/shop/page"
	"github.com/settleonce/settleonce/examples/shop/receipt"
	"github.com/settleonce/settleonce/producer"
)

// The jobs. The mail gateway is somebody else's, and only simulated here.
var jobs = []string{"page", "outbox", "orders", "packing", "receipts", "mailgate"}

type settings struct {
	dsn, brokers, prefix, caller, channel, page, mailgate, jobs string
	patience, reviewAge, session                                time.Duration
	gatewayForgets                                              bool
	lostMails                                                   float64
}

func main() {
	log := zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true}).With().Timestamp().Logger()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], log)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func read(args []string) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	flags.StringVar(&s.dsn, "dsn", "postgres://localhost/shop", "the shop's own `database`")
	flags.StringVar(&s.brokers, "brokers", "localhost:9092", "Kafka `addresses`, separated by commas")
	flags.StringVar(&s.prefix, "prefix", "", "put before the names of all topics")
	flags.StringVar(&s.caller, "caller", order.Caller, "`name` that settleonce knows the shop by")
	flags.StringVar(&s.channel, "channel", "sim", "payment `channel` of all orders")
	flags.StringVar(&s.page, "page", "localhost:8070", "`address` of the page and of the orders")
	flags.StringVar(&s.mailgate, "mailgate", "localhost:8071", "`address` of the mail gateway")
	flags.StringVar(&s.jobs, "jobs", strings.Join(jobs, ","), "what to run here")
	flags.DurationVar(&s.patience, "patience", 30*time.Second, "cancel an order whose payments all failed after so long")
	flags.DurationVar(&s.reviewAge, "review-age", 10*time.Minute, "raise an alert when a payment was with people for so long")
	flags.DurationVar(&s.session, "session-timeout", 0, "how long consumer groups wait for a silent process; 0: 10s")
	flags.BoolVar(&s.gatewayForgets, "gateway-forgets", false, "the mail gateway does not know its Message-Ids: receipts may be sent twice, and say so")
	flags.Float64Var(&s.lostMails, "lost-mail-answers", 0, "share of mails whose answer the simulated gateway loses")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	for job := range strings.SplitSeq(s.jobs, ",") {
		if !slices.Contains(jobs, job) {
			return s, fmt.Errorf("there is no job %q: use some of %s", job, strings.Join(jobs, ","))
		}
	}
	return s, nil
}

// shop is one process of it.
type shop struct {
	settings

	log  zerolog.Logger
	pool *pgxpool.Pool
}

func run(ctx context.Context, args []string, log zerolog.Logger) error {
	s, err := read(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.dsn)
	if err != nil {
		return fmt.Errorf("read the database's address: %w", err)
	}
	defer pool.Close()
	sh := &shop{settings: s, log: log, pool: pool}
	if err := sh.migrate(ctx); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	starts := map[string]func(context.Context) error{
		"page": sh.runPage, "outbox": sh.runOutbox, "orders": sh.runOrders, "packing": sh.runPacking, "receipts": sh.runReceipts, "mailgate": sh.runMailgate,
	}
	group, ctx := errgroup.WithContext(ctx)
	for job := range strings.SplitSeq(s.jobs, ",") {
		group.Go(func() error { return starts[job](ctx) })
	}
	return group.Wait()
}

func (s *shop) migrate(ctx context.Context) error {
	return errors.Join(producer.OutboxMigrate(ctx, s.dsn), inbox.Migrate(ctx, s.dsn),
		order.Migrate(ctx, s.pool), packing.Migrate(ctx, s.pool), receipt.Migrate(ctx, s.pool))
}

func (s *shop) runPage(ctx context.Context) error {
	front := page.Front{Desk: order.NewDesk(s.pool, s.caller, s.channel), Pool: s.pool, Log: s.log}
	return front.Serve(ctx, s.page)
}

// runOutbox brings commands and decisions to Kafka.
func (s *shop) runOutbox(ctx context.Context) error {
	p, err := producer.New(producer.Config{Brokers: s.addresses(), Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return err
	}
	publisher, err := producer.NewOutboxPublisher(s.pool, p, producer.OutboxConfig{Logger: s.log})
	if err == nil {
		err = publisher.Run(ctx)
	}
	return errors.Join(err, p.Close(context.WithoutCancel(ctx)))
}

func (s *shop) runOrders(ctx context.Context) error {
	desk := order.NewDesk(s.pool, s.caller, s.channel)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return s.runInbox(ctx, "shop-orders", order.Hear(s.caller), "payment.events", "payment.replies")
	})
	group.Go(func() error { return desk.Watch(ctx, s.patience, s.reviewAge, s.log) })
	return group.Wait()
}

func (s *shop) runPacking(ctx context.Context) error {
	return s.runInbox(ctx, "shop-packing", packing.Pack, order.Topic)
}

func (s *shop) runReceipts(ctx context.Context) error {
	sender := receipt.Sender{Pool: s.pool, Gateway: "http://" + s.mailgate + "/mails", Dedupes: !s.gatewayForgets, Log: s.log}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.runInbox(ctx, "shop-receipts", receipt.Note, order.Topic) })
	group.Go(func() error { return sender.Run(ctx) })
	return group.Wait()
}

func (s *shop) runInbox(ctx context.Context, name string, handler inbox.Handler, topics ...string) error {
	in, err := inbox.New(inbox.Config{
		Name: name, Topics: topics, Handler: handler, Pool: s.pool, Brokers: s.addresses(), Prefix: s.prefix, SessionTimeout: s.session, Logger: s.log,
	})
	if err != nil {
		return err
	}
	return errors.Join(in.Run(ctx), in.Close(context.WithoutCancel(ctx)))
}

func (s *shop) runMailgate(ctx context.Context) error {
	gateway := &mailgate.Gateway{Dedupes: !s.gatewayForgets, LostAnswers: s.lostMails}
	server := &http.Server{Addr: s.mailgate, Handler: gateway, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the mail gateway: %w", err)
	}
	return nil
}

func (s *shop) addresses() []string { return strings.Split(s.brokers, ",") }
