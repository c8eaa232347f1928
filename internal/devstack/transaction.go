package devstack

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TransactionRecord is a record to write in a transaction.
type TransactionRecord struct{ Key, Value []byte }

// PublishTransaction writes records to a topic in one Kafka transaction, as many
// Java services do, and commits or aborts it. Our own publisher has no
// transactions: this one is for showing that aborted records are never processed
// (G16). The id must not be in use by another producer.
func PublishTransaction(ctx context.Context, brokers []string, id, topic string, commit bool, records []TransactionRecord) error {
	t, err := NewTransactor(brokers, id, topic)
	if err != nil {
		return err
	}
	defer t.Close()
	written := t.Write(ctx, records)
	if err := errors.Join(written, t.End(ctx, commit && written == nil)); err != nil {
		return fmt.Errorf("write a transaction: %w", err)
	}
	return nil
}

// Transactor writes transactions under one transactional id, one after the other. It
// is for one goroutine.
type Transactor struct {
	client *kgo.Client
	within bool
}

// NewTransactor connects; what an earlier producer of the id left open is aborted once
// this one writes. Close it in any case.
func NewTransactor(brokers []string, id, topic string) (*Transactor, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return nil, fmt.Errorf("connect for transactions: %w", err)
	}
	return &Transactor{client: client}, nil
}

// Write writes records in the transaction that is open, and begins one if there is
// none. They are in the log when it returns, and not decided yet.
func (t *Transactor) Write(ctx context.Context, records []TransactionRecord) error {
	if !t.within {
		if err := t.client.BeginTransaction(); err != nil {
			return fmt.Errorf("begin a transaction: %w", err)
		}
		t.within = true
	}
	batch := make([]*kgo.Record, len(records))
	for i := range records {
		batch[i] = &kgo.Record{Key: records[i].Key, Value: records[i].Value}
	}
	if err := t.client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return fmt.Errorf("write in a transaction: %w", err)
	}
	return nil
}

// End commits or aborts the transaction that is open; without one it does nothing.
func (t *Transactor) End(ctx context.Context, commit bool) error {
	if !t.within {
		return nil
	}
	if err := t.client.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return fmt.Errorf("end a transaction: %w", err)
	}
	t.within = false
	return nil
}

// Close disconnects. A transaction that is open stays so until its timeout, or until
// another producer of the id comes.
func (t *Transactor) Close() { t.client.Close() }
