package check

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Offset is how far a consumer group is in a partition.
type Offset struct {
	Topic     string
	Partition int
	// Committed is -1 where nothing is; End follows the last record.
	Committed, End int64
}

// Installation says where to look. Everything is only read.
type Installation struct {
	Client   *kafka.Client
	Database Queryer
	Topics   payment.Topics
	// CommandTopics defaults to the one of Topics.
	CommandTopics []string
	// Group is the consumers' group.
	Group string
	// ChannelURL is where the channel shows its ledger.
	ChannelURL string
	// Grace is how old something may be that has no end yet, where the installation
	// is at work. Zero means that all work has ended, so that everything must be
	// settled.
	Grace time.Duration
	Rules Rules
}

// Inspect looks at an installation and judges. What changes while it looks is no
// violation: places are read in an order in which each knows what the one before
// it tells of. An error says that it could not look.
func Inspect(ctx context.Context, in Installation) (Verdict, error) {
	tail := NewTail(in.Client, in.Topics)
	if len(in.CommandTopics) > 0 {
		tail.CommandTopics = in.CommandTopics
	}
	if err := tail.Offsets(ctx, in.Group); err != nil {
		return Verdict{}, err
	}
	db, err := ReadDatabase(ctx, in.Database, in.Group)
	if err != nil {
		return Verdict{}, err
	}
	if err := tail.All(ctx); err != nil {
		return Verdict{}, err
	}
	e := tail.Snapshot()
	if err := ReadLedger(ctx, in.ChannelURL, &e); err != nil {
		return Verdict{}, err
	}
	// Again, for what came in meanwhile: the ledger may tell of it.
	if err := tail.readCommands(ctx); err != nil {
		return Verdict{}, err
	}
	e.Commands = tail.Snapshot().Commands
	rules := in.Rules
	rules.Database = db
	rules.Incomplete = rules.Incomplete || incomplete(e.Commands)
	if in.Grace > 0 {
		rules.Running = db.running(in.Grace)
	}
	return Judge(&e, rules), nil
}

// running reports whether a payment is open, or a record was written lately.
func (d *Database) running(grace time.Duration) func(uuid.UUID, time.Time) bool {
	since := d.At.Add(-grace)
	return func(id uuid.UUID, at time.Time) bool {
		_, open := d.Open[id]
		return open || at.After(since)
	}
}

// incomplete reports whether a partition's first records are gone.
func incomplete(commands []kafka.Record) bool {
	first := map[place]int64{}
	for i := range commands {
		p := placeOf(&commands[i])
		p.offset = 0
		if at, ok := first[p]; !ok || commands[i].Offset < at {
			first[p] = commands[i].Offset
		}
	}
	for _, at := range first {
		if at > 0 {
			return true
		}
	}
	return false
}

// Offsets reads how far the group is.
func (t *Tail) Offsets(ctx context.Context, group string) error {
	for _, topic := range t.CommandTopics {
		committed, err := t.client.CommittedOffsets(ctx, group, topic)
		if err != nil {
			return fmt.Errorf("read the offsets of %s: %w", group, err)
		}
		ends, err := t.client.EndOffsets(ctx, topic)
		if err != nil {
			return fmt.Errorf("read the end of %s: %w", topic, err)
		}
		for partition, end := range ends {
			at, ok := committed[partition]
			if !ok {
				at = -1
			}
			t.Evidence.Offsets = append(t.Evidence.Offsets, Offset{Topic: topic, Partition: partition, Committed: at, End: end})
		}
	}
	return nil
}
