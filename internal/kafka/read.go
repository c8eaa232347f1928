package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// EndOffsets returns the offset behind the last record of every partition.
func (c *Client) EndOffsets(ctx context.Context, topic string) (map[int]int64, error) {
	ids, err := c.partitionIDs(ctx, topic)
	if err != nil {
		return nil, err
	}
	got, err := c.listOffsets(ctx, map[string][]int{topic: ids})
	if err != nil {
		return nil, fmt.Errorf("read end offsets of topic %s: %w", topic, err)
	}
	out := make(map[int]int64, len(ids))
	for tp, r := range got {
		out[tp.partition] = r.latest
	}
	return out, nil
}

// CommittedOffsets returns the offsets that a consumer group has committed for a
// topic, -1 where it has none.
func (c *Client) CommittedOffsets(ctx context.Context, group, topic string) (map[int]int64, error) {
	ids, err := c.partitionIDs(ctx, topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	res, err := c.library().OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: ids}})
	if err == nil {
		err = res.Error
	}
	out := make(map[int]int64, len(ids))
	for _, id := range ids {
		out[id] = -1
	}
	if errors.Is(err, kafkago.GroupIdNotFound) {
		return out, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read offsets of group %s: %w", group, err)
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("read offsets of group %s, partition %d: %w", group, p.Partition, p.Error)
		}
		out[p.Partition] = p.CommittedOffset
	}
	return out, nil
}

// partitionIDs asks the cluster, not a cache.
func (c *Client) partitionIDs(ctx context.Context, topic string) ([]int, error) {
	lib, done := c.fresh()
	defer done()
	meta, err := lib.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("look up topic %s: %w", topic, c.explain(err))
	}
	for _, t := range meta.Topics {
		if t.Name != topic {
			continue
		}
		if t.Error != nil {
			return nil, fmt.Errorf("look up topic %s: %w", topic, classify(t.Error))
		}
		ids := make([]int, 0, len(t.Partitions))
		for _, p := range t.Partitions {
			ids = append(ids, p.ID)
		}
		slices.Sort(ids)
		return ids, nil
	}
	return nil, fmt.Errorf("look up topic %s: %w", topic, ErrUnknownTopic)
}

// ReadAll calls fn for every committed record that the topic holds when a
// partition's turn comes, partition by partition in offset order. An error of fn
// ends it and is returned.
func (c *Client) ReadAll(ctx context.Context, topic string, fn func(Record) error) error {
	ids, err := c.partitionIDs(ctx, topic)
	if err != nil {
		return err
	}
	got, err := c.listOffsets(ctx, map[string][]int{topic: ids})
	if err != nil {
		return fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, id := range ids {
		tp := topicPartition{topic, id}
		if err := c.readPartition(ctx, tp, got[tp], fn); err != nil {
			return fmt.Errorf("read topic %s partition %d: %w", topic, id, err)
		}
	}
	return nil
}

func (c *Client) readPartition(ctx context.Context, tp topicPartition, r offsetRange, fn func(Record) error) error {
	end := r.latest
	for next, failures := r.earliest, 0; next < end; {
		got, err := c.fetchOne(ctx, tp, next)
		if err != nil {
			if failures++; failures == 5 || ctx.Err() != nil {
				return err
			}
			c.refresh()
			if err := sleep(ctx, refreshEvery); err != nil {
				return err
			}
			continue
		}
		failures = 0
		end = min(end, max(got.stable, next)) // an open transaction ends the range
		for _, rec := range got.records {
			if rec.Offset >= end {
				break
			}
			if err := fn(rec); err != nil {
				return err
			}
		}
		next = got.next
	}
	return nil
}

func (c *Client) fetchOne(ctx context.Context, tp topicPartition, offset int64) (fetched, error) {
	const maxBytes = 4 << 20
	req := newFetchRequest(100*time.Millisecond, maxBytes)
	addFetch(req, tp, offset, maxBytes)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.transport.RoundTrip(ctx, c.addr, req)
	if err != nil {
		return fetched{}, err
	}
	answer, ok := res.(*fetchapi.Response)
	if !ok || len(answer.Topics) == 0 || len(answer.Topics[0].Partitions) == 0 {
		return fetched{}, errors.Join(errLeftOut)
	}
	part := &answer.Topics[0].Partitions[0]
	if err := protocolError(part.ErrorCode); err != nil {
		return fetched{}, err
	}
	return decode(tp, part, offset)
}
