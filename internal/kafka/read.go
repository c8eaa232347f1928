package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	lib, done := c.fresh() // a pooled connection may have died with a broker
	defer done()
	res, err := lib.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: ids}})
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
	_, err := c.ReadFrom(ctx, topic, nil, fn)
	return err
}

// ReadFrom is ReadAll from the given offset of each partition on; partitions
// without one are read from their start. It returns where the next call goes on,
// also beside an error.
func (c *Client) ReadFrom(ctx context.Context, topic string, from map[int]int64, fn func(Record) error) (map[int]int64, error) {
	next := maps.Clone(from)
	if next == nil {
		next = map[int]int64{}
	}
	ids, err := c.partitionIDs(ctx, topic)
	if err != nil {
		return next, err
	}
	got, err := c.listOffsets(ctx, map[string][]int{topic: ids})
	if err != nil {
		return next, fmt.Errorf("read topic %s: %w", topic, err)
	}
	for _, id := range ids {
		tp := topicPartition{topic, id}
		r := got[tp]
		r.earliest = max(r.earliest, next[id])
		at, err := c.readPartition(ctx, tp, r, fn)
		next[id] = at
		if err != nil {
			return next, fmt.Errorf("read topic %s partition %d: %w", topic, id, err)
		}
	}
	return next, nil
}

// readPatience is how long a partition may be without a leader before a read of
// it gives up.
const readPatience = 30 * time.Second

// readPartition returns the offset behind the last record that fn took.
func (c *Client) readPartition(ctx context.Context, tp topicPartition, r offsetRange, fn func(Record) error) (int64, error) {
	end, next, progress := r.latest, r.earliest, time.Now()
	for next < end {
		got, err := c.fetchOne(ctx, tp, next)
		if err != nil {
			if time.Since(progress) > readPatience || ctx.Err() != nil {
				return next, err
			}
			c.refresh()
			if err := sleep(ctx, refreshEvery); err != nil {
				return next, err
			}
			continue
		}
		progress = time.Now()
		end = min(end, max(got.stable, next)) // an open transaction ends the range
		for _, rec := range got.records {
			if rec.Offset >= end {
				break
			}
			if err := fn(rec); err != nil {
				return next, err
			}
			next = rec.Offset + 1
		}
		next = max(next, min(got.next, end))
	}
	return next, nil
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
