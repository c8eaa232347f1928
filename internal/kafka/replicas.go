package kafka

import (
	"context"
	"fmt"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
	metadataapi "github.com/segmentio/kafka-go/protocol/metadata"
)

// Replicas says where the copies of a partition are, by the ids of the brokers.
type Replicas struct {
	Partition int
	// Leader is -1 while there is none.
	Leader int
	// Brokers have a copy, the preferred leader first; those InSync have every
	// acknowledged record.
	Brokers, InSync []int
}

// Replicas asks the cluster, not a cache, about every partition of a topic.
func (c *Client) Replicas(ctx context.Context, topic string) ([]Replicas, error) {
	lib, done := c.fresh(topic)
	defer done()
	// Not the library's Metadata: it knows no id of a broker that is away.
	res, err := lib.Transport.RoundTrip(ctx, c.addr, &metadataapi.Request{TopicNames: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("read the replicas of topic %s: %w", topic, c.explain(err))
	}
	meta, ok := res.(*metadataapi.Response)
	if !ok {
		return nil, fmt.Errorf("read the replicas of topic %s: unexpected answer %T", topic, res)
	}
	var out []Replicas
	for _, t := range meta.Topics {
		if t.Name != topic {
			continue
		}
		if t.ErrorCode != 0 {
			return nil, fmt.Errorf("read the replicas of topic %s: %w", topic, classify(kafkago.Error(t.ErrorCode)))
		}
		for _, p := range t.Partitions {
			out = append(out, Replicas{Partition: int(p.PartitionIndex), Leader: int(p.LeaderID), Brokers: ids(p.ReplicaNodes), InSync: ids(p.IsrNodes)})
		}
	}
	slices.SortFunc(out, func(a, b Replicas) int { return a.Partition - b.Partition })
	return out, nil
}

func ids(brokers []int32) []int {
	out := make([]int, 0, len(brokers))
	for _, id := range brokers {
		out = append(out, int(id))
	}
	return out
}
