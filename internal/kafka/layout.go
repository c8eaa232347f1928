package kafka

import (
	"context"
	"fmt"

	metadataapi "github.com/segmentio/kafka-go/protocol/metadata"
)

// leaders returns the leading broker of every partition of the topics that has
// one, from the transport's cache.
func (c *Client) leaders(ctx context.Context, topics []string) (map[topicPartition]int32, error) {
	meta, err := c.metadata(ctx, topics)
	if err != nil {
		return nil, err
	}
	out := make(map[topicPartition]int32)
	for _, t := range meta.Topics {
		for _, p := range t.Partitions {
			if p.LeaderID >= 0 {
				out[topicPartition{t.Name, int(p.PartitionIndex)}] = p.LeaderID
			}
		}
	}
	return out, nil
}

func (c *Client) metadata(ctx context.Context, topics []string) (*metadataapi.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := c.transport.RoundTrip(ctx, c.addr, &metadataapi.Request{TopicNames: topics})
	if err != nil {
		return nil, fmt.Errorf("read cluster layout: %w", err)
	}
	meta, ok := res.(*metadataapi.Response)
	if !ok {
		return nil, fmt.Errorf("read cluster layout: unexpected answer %T", res)
	}
	return meta, nil
}
