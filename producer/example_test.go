package producer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/internal/devstack"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// exampleBrokers starts an embedded broker, where a service would name its own.
func exampleBrokers() (brokers []string, stop func(), err error) {
	kafka, err := devstack.StartKafka(devstack.KafkaConfig{})
	if err != nil {
		return nil, nil, err
	}
	return kafka.Brokers(), func() { _ = kafka.Close() }, nil
}

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
	fmt.Println(command.Amount, command.Currency, command.IdempotencyKey.Version(), err)
	// Output:
	// invalid command: currency: must be a current ISO 4217 code in capitals, like EUR
	// 1999 EUR VERSION_4 <nil>
}

// The command is made once and kept; what is unknown is published again.
func ExampleProducer_Publish() {
	brokers, stop, err := exampleBrokers()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	ctx := context.Background()
	p, err := producer.New(producer.Config{Brokers: brokers, Attempts: 1})
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
	// Nobody has made the topic yet, so Kafka cannot confirm.
	err = p.Publish(ctx, command)
	var unknown *producer.UnknownError
	if errors.As(err, &unknown) {
		again := unknown.Again([]payment.Command{command})
		fmt.Println(len(again), "to publish again, with the same key:", again[0].IdempotencyKey == command.IdempotencyKey)
	}
	// Output: 1 to publish again, with the same key: true
}

// The order and the command to pay it are stored together; the publisher brings
// the command to Kafka, whatever is killed in between.
func ExampleEnqueueTx() {
	ctx := context.Background()
	const dsn = "postgres://shop@localhost/shop"
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
		const insert = "INSERT INTO orders (id, payment_key) VALUES ($1, $2)"
		if _, err := tx.Exec(ctx, insert, command.OrderID, command.IdempotencyKey); err != nil {
			return err
		}
		return producer.EnqueueTx(ctx, tx, command)
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	p, err := producer.New(producer.Config{Brokers: []string{"localhost:9092"}})
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
	_ = outbox.Run(ctx) // until ctx ends
}
