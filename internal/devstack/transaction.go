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
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return fmt.Errorf("connect for a transaction: %w", err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	batch := make([]*kgo.Record, len(records))
	for i := range records {
		batch[i] = &kgo.Record{Key: records[i].Key, Value: records[i].Value}
	}
	written := client.ProduceSync(ctx, batch...).FirstErr()
	end := kgo.TryAbort
	if commit && written == nil {
		end = kgo.TryCommit
	}
	if err := errors.Join(written, client.EndTransaction(ctx, end)); err != nil {
		return fmt.Errorf("write a transaction: %w", err)
	}
	return nil
}
