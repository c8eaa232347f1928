package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// commandType is the CloudEvents type of a command.
const commandType = "payment.command"

// Producer publishes commands. It is safe for concurrent use; concurrent calls
// share batches. Make one per process and close it.
type Producer struct {
	client    *kafka.Client
	publisher *kafka.Publisher
	prefix    string
	topic     string
	signing   SigningKey
	closed    atomic.Bool
}

// New validates cfg and returns a producer. It does not connect: the first
// Publish does, and Ping tells whether that works. The error says which setting
// to change.
func New(cfg Config) (*Producer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure producer: %w", err)
	}
	client, err := kafka.NewClient(cfg.client())
	if err != nil {
		return nil, fmt.Errorf("configure producer: %w", err)
	}
	publisher, err := client.NewPublisher(cfg.publisher())
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("configure producer: %w", err)
	}
	return &Producer{client: client, publisher: publisher, prefix: cfg.Prefix, topic: cfg.Prefix + cfg.Topic, signing: cfg.SigningKey}, nil
}

// Ping reaches one of the brokers and authenticates. The error says what to
// change when credentials or TLS settings do not match the broker's.
func (p *Producer) Ping(ctx context.Context) error { return p.client.Ping(ctx) }

// Publish returns nil when all in-sync replicas have every command. All are
// validated before the first is sent.
//
// Errors: ErrInvalid (an *InvalidError: nothing was sent), ErrClosed (nothing was
// sent), else ErrUnknown (an *UnknownError: those it names may or may not be in
// Kafka; publish the same ones again). A context that ends makes commands
// unknown, it does not take them back.
func (p *Producer) Publish(ctx context.Context, cmds ...payment.Command) error {
	if err := validate(cmds); err != nil {
		return err
	}
	messages := make([]kafka.Message, len(cmds))
	for i := range cmds {
		messages[i] = p.message(&cmds[i], cmds[i].AppendJSON(nil))
	}
	err := p.publisher.Publish(ctx, messages...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kafka.ErrClosed):
		return ErrClosed
	default:
		return unknown(cmds, err)
	}
}

// Close waits for commands under way, at most until ctx ends, and closes the
// connections. Calls of Publish that have not returned by then report ErrUnknown.
// Only the first call does anything.
func (p *Producer) Close(ctx context.Context) error {
	if p.closed.Swap(true) {
		return nil
	}
	defer p.client.Close()
	if err := p.publisher.Close(ctx); err != nil {
		return fmt.Errorf("close producer: %w", err)
	}
	return nil
}

// message wraps a command for Kafka. The ce_id is the payment's id, so that every
// retry of a command is the same CloudEvent; its signature is the same too.
func (p *Producer) message(cmd *payment.Command, value []byte) kafka.Message {
	id := cmd.Identity().PaymentID().String()
	m := kafka.Message{
		Topic:   p.topic,
		Key:     []byte(cmd.IdempotencyKey.String()),
		Value:   value,
		Headers: cloudEvent(id, "/settleonce/producer/"+cmd.Caller, commandType, id, cmd.IssuedAt),
	}
	p.signing.sign(&m)
	return m
}

func validate(cmds []payment.Command) error {
	var invalid []CommandError
	for i := range cmds {
		if err := cmds[i].Validate(); err != nil {
			invalid = append(invalid, CommandError{Index: i, Key: cmds[i].IdempotencyKey, Err: err})
		}
	}
	if invalid == nil {
		return nil
	}
	return &InvalidError{Commands: invalid}
}

// unknown turns any error of the publisher into one that names the commands it
// concerns; one that names none concerns all.
func unknown(cmds []payment.Command, err error) error {
	var each kafka.PublishErrors
	positional := errors.As(err, &each) && len(each) == len(cmds)
	result := &UnknownError{}
	for i := range cmds {
		reason := err
		if positional {
			reason = each[i]
		}
		if reason != nil {
			result.Commands = append(result.Commands, CommandError{Index: i, Key: cmds[i].IdempotencyKey, Err: reason})
		}
	}
	return result
}
