package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// A mistake is found before anything is sent, and says what to change.
func ExampleNewCommand() {
	intent := producer.Intent{
		Caller: "shop", OrderID: "order-1001", Amount: 1999, Currency: "eur",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
	}
	_, err := producer.NewCommand(intent)
	fmt.Println(err)

	intent.Currency = "EUR"
	command, err := producer.NewCommand(intent)
	fmt.Println(command.Amount, command.Currency, err)
	// Output:
	// invalid command: currency: must be a current ISO 4217 code in capitals, like EUR
	// 1999 EUR <nil>
}

// Commands are made once and kept; what is unknown is published again.
func ExampleProducer_Publish() {
	brokers, _, stop := exampleServices()
	defer stop()
	ctx := context.Background()
	p, err := producer.New(producer.Config{Brokers: brokers})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = p.Close(ctx) }()

	command, err := producer.NewCommand(producer.Intent{
		Caller: "shop", OrderID: "order-1001", Amount: 1999, Currency: "EUR",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	commands := []payment.Command{command} // kept with the order, before this
	for range 5 {
		err = p.Publish(ctx, commands...)
		unknown, ok := errors.AsType[*producer.UnknownError](err)
		if !ok {
			break
		}
		commands = unknown.Again(commands) // the same ones, with the same keys
	}
	fmt.Println("published:", err == nil)
	// Output: published: true
}

// The order and the command to pay it are stored together; the publisher brings
// the command to Kafka, whatever is killed in between.
func ExampleEnqueueTx() {
	brokers, dsn, stop := exampleServices()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := producer.OutboxMigrate(ctx, dsn); err != nil {
		fmt.Println(err)
		return
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		command, err := producer.NewCommand(producer.Intent{
			Caller: "shop", OrderID: "order-1001", Amount: 1999, Currency: "EUR",
			CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
		})
		if err != nil {
			return err
		}
		const order = "CREATE TABLE orders AS SELECT $1::text AS id, $2::uuid AS payment_key"
		if _, err := tx.Exec(ctx, order, command.OrderID, command.IdempotencyKey); err != nil {
			return err
		}
		return producer.EnqueueTx(ctx, tx, command)
	})
	fmt.Println("stored:", err == nil)

	p, err := producer.New(producer.Config{Brokers: brokers})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = p.Close(ctx) }()
	outbox, err := producer.NewOutboxPublisher(pool, p, producer.OutboxConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- outbox.Run(running) }()
	waitUntilEmpty(ctx, pool) // a service runs on
	end()
	fmt.Println("published:", <-ended == nil)
	// Output:
	// stored: true
	// published: true
}

func waitUntilEmpty(ctx context.Context, pool *pgxpool.Pool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for left := 1; left > 0; <-tick.C {
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM settleonce_outbox.commands").Scan(&left); err != nil {
			return
		}
	}
}
