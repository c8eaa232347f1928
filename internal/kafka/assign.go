package kafka

import (
	"context"
	"fmt"
	"maps"

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
// get their leaders one by one, gets more tries. What was answered is not asked
// again, and begins the time anew: each try is two requests for each partition, and
// a broker that is slow to answer some of them may never answer all of them at once.
func (c *Client) listOffsets(ctx context.Context, want map[string][]int) (map[topicPartition]offsetRange, error) {
	all := make(map[topicPartition]offsetRange)
	for {
		got, err := c.listSomeOffsets(ctx, want)
		maps.Copy(all, got)
		if err == nil {
			return all, nil
		}
		if len(got) == 0 {
			return nil, err
		}
		want = leftOf(want, got)
	}
}

// listSomeOffsets tries until at least one partition was answered. The error says
// what is missing.
func (c *Client) listSomeOffsets(ctx context.Context, want map[string][]int) (map[topicPartition]offsetRange, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		got, err := c.tryListOffsets(ctx, want)
		if err == nil || attempt == offsetTries {
			return got, err
		}
		c.refresh()
		if len(got) > 0 || sleep(ctx, refreshEvery) != nil {
			return got, err
		}
	}
}

// leftOf is what was wanted and not got.
func leftOf(want map[string][]int, got map[topicPartition]offsetRange) map[string][]int {
	left := make(map[string][]int)
	for topic, ids := range want {
		for _, id := range ids {
			if _, ok := got[topicPartition{topic, id}]; !ok {
				left[topic] = append(left[topic], id)
			}
		}
	}
	return left
}

// tryListOffsets returns what was answered, and why something is missing.
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
				err = fmt.Errorf("topic %s partition %d: %w", topic, p.Partition, p.Error)
				continue
			}
			out[topicPartition{topic, p.Partition}] = offsetRange{p.FirstOffset, p.LastOffset}
		}
	}
	for topic, ids := range leftOf(want, out) {
		if err == nil {
			err = fmt.Errorf("topic %s partition %d: %w", topic, ids[0], errLeftOut)
		}
	}
	return out, err
}

// library is the library's client on the shared connections.
func (c *Client) library() *kafkago.Client {
	return &kafkago.Client{Addr: c.addr, Transport: c.transport}
}
