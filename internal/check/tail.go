package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Tail reads topics from where it stopped, and files what it reads.
type Tail struct {
	client *kafka.Client
	// Topics are the names it reads, CommandTopics those of commands.
	Topics        payment.Topics
	CommandTopics []string
	// Seen is told of each record that was read of the topics of results; nil is told
	// nothing.
	Seen     func(*kafka.Record)
	next     map[string]map[int]int64
	evidence *Evidence
}

// NewTail reads the topics from their start.
func NewTail(client *kafka.Client, topics payment.Topics) *Tail {
	return &Tail{
		client: client, Topics: topics, CommandTopics: []string{topics.Commands}, next: map[string]map[int]int64{}, evidence: NewEvidence(),
	}
}

// Evidence is what was read so far; further reads add to it.
func (t *Tail) Evidence() *Evidence { return t.evidence }

// Read files what is new in a topic of results. What was read before an error is
// filed.
func (t *Tail) Read(ctx context.Context, topic string) error {
	add := t.evidence.AddRequery
	switch {
	case slices.Contains(t.Topics.AllReplies(), topic):
		add = t.evidence.AddReply
	case slices.Contains(t.Topics.AllEvents(), topic):
		add = t.evidence.AddEvent
	case topic == t.Topics.DeadLetter:
		add = t.evidence.AddDeadLetter
	}
	return t.read(ctx, topic, func(r *kafka.Record) {
		add(r)
		if t.Seen != nil {
			t.Seen(r)
		}
	})
}

func (t *Tail) read(ctx context.Context, topic string, each func(*kafka.Record)) error {
	next, err := t.client.ReadFrom(ctx, topic, t.next[topic], func(r kafka.Record) error {
		each(&r)
		return nil
	})
	t.next[topic] = next
	return err
}

// All brings everything up to date.
func (t *Tail) All(ctx context.Context) error {
	topics := slices.Concat(t.Topics.AllReplies(), t.Topics.AllEvents(), []string{t.Topics.DeadLetter}, t.Topics.Requery[:])
	for _, topic := range topics {
		if err := t.Read(ctx, topic); err != nil {
			return err
		}
	}
	return t.Commands(ctx)
}

// Commands reads the command topics. They come last: whatever the other topics
// tell of was asked for before.
func (t *Tail) Commands(ctx context.Context) error {
	for _, topic := range t.CommandTopics {
		if err := t.read(ctx, topic, t.evidence.AddCommand); err != nil {
			return err
		}
	}
	return nil
}

// Offset is how far a consumer group is in a partition.
type Offset struct {
	Topic     string
	Partition int
	// Committed is -1 where nothing is; End follows the last record.
	Committed, End int64
}

// Offsets reads how far the group is.
func (t *Tail) Offsets(ctx context.Context, group string) error {
	t.evidence.Offsets = nil
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
			t.evidence.Offsets = append(t.evidence.Offsets, Offset{Topic: topic, Partition: partition, Committed: at, End: end})
		}
	}
	return nil
}
