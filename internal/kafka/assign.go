package kafka

import (
	"context"
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
)

// assign decides for each assigned partition where to start reading: at the
// lower of the committed and the stored offset, at the earliest when there is
// neither.
func (g *generation) assign(ctx context.Context) ([]*partition, error) {
	var parts []*partition
	var fresh []*partition
	for topic, assigned := range g.gen.Assignments {
		for _, a := range assigned {
			tp := topicPartition{topic, a.ID}
			committed := a.Offset
			if committed < 0 {
				committed = -1 // the library says "earliest" where nothing is committed
			}
			start, err := g.startOffset(ctx, tp, committed)
			if err != nil {
				return nil, err
			}
			p := newPartition(g, tp, committed, start, start < 0)
			if start < 0 {
				fresh = append(fresh, p)
			}
			parts = append(parts, p)
		}
	}
	return parts, g.startEarliest(ctx, fresh)
}

func (g *generation) startOffset(ctx context.Context, tp topicPartition, committed int64) (int64, error) {
	hook := g.consumer.cfg.StartOffset
	if hook == nil {
		return committed, nil
	}
	stored, err := hook(ctx, tp.topic, tp.partition, committed)
	if err != nil {
		return 0, fmt.Errorf("ask for the stored offset of topic %s partition %d: %w", tp.topic, tp.partition, err)
	}
	if stored < 0 {
		return committed, nil
	}
	if committed < 0 {
		return stored, nil
	}
	return min(stored, committed), nil
}

// startEarliest looks the earliest offsets up for partitions that nobody has
// read before.
func (g *generation) startEarliest(ctx context.Context, parts []*partition) error {
	if len(parts) == 0 {
		return nil
	}
	want := make(map[string][]int)
	for _, p := range parts {
		want[p.topic] = append(want[p.topic], p.partition)
	}
	got, err := g.client.listOffsets(ctx, want)
	if err != nil {
		return fmt.Errorf("look up earliest offsets: %w", err)
	}
	for _, p := range parts {
		p.next = got[p.topicPartition].earliest
	}
	return nil
}

// offsetRange is what a partition's log holds: from earliest up to, not
// including, latest.
type offsetRange struct{ earliest, latest int64 }

// offsetTries are what listOffsets makes of its time, at refreshEvery.
const offsetTries = 60

// listOffsets asks for the log's ends; latest is the high watermark. A layout
// that is old, or a topic that was just made on a busy broker, whose partitions
// get their leaders one by one, gets more tries.
func (c *Client) listOffsets(ctx context.Context, want map[string][]int) (map[topicPartition]offsetRange, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		got, err := c.tryListOffsets(ctx, want)
		if err == nil || attempt == offsetTries {
			return got, err
		}
		c.refresh()
		if sleep(ctx, refreshEvery) != nil {
			return nil, err
		}
	}
}

func (c *Client) tryListOffsets(ctx context.Context, want map[string][]int) (map[topicPartition]offsetRange, error) {
	req := &kafkago.ListOffsetsRequest{Addr: c.addr, Topics: make(map[string][]kafkago.OffsetRequest)}
	for topic, ids := range want {
		for _, id := range ids {
			req.Topics[topic] = append(req.Topics[topic], kafkago.FirstOffsetOf(id), kafkago.LastOffsetOf(id))
		}
	}
	got, err := c.library().ListOffsets(ctx, req)
	if err != nil {
		return nil, err
	}
	out := make(map[topicPartition]offsetRange)
	for topic, parts := range got.Topics {
		for _, p := range parts {
			if p.Error != nil {
				return nil, fmt.Errorf("topic %s partition %d: %w", topic, p.Partition, p.Error)
			}
			out[topicPartition{topic, p.Partition}] = offsetRange{p.FirstOffset, p.LastOffset}
		}
	}
	for topic, ids := range want {
		for _, id := range ids {
			if _, ok := out[topicPartition{topic, id}]; !ok {
				return nil, fmt.Errorf("topic %s partition %d: %w", topic, id, errLeftOut)
			}
		}
	}
	return out, nil
}

// library is the library's client on the shared connections.
func (c *Client) library() *kafkago.Client {
	return &kafkago.Client{Addr: c.addr, Transport: c.transport}
}
