package kafka

import (
	"context"
	"errors"
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

// MoveLeader makes a broker the leader of a partition that it has a copy of: it
// becomes the preferred one, and is elected. Copies stay where they are. It may
// fail while the broker is not in sync.
func (c *Client) MoveLeader(ctx context.Context, topic string, partition, broker int) error {
	all, err := c.Replicas(ctx, topic)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(r Replicas) bool { return r.Partition == partition })
	if i < 0 || !slices.Contains(all[i].Brokers, broker) {
		return fmt.Errorf("move the leader of %s/%d: broker %d has no copy of it", topic, partition, broker)
	}
	order := append([]int{broker}, slices.DeleteFunc(slices.Clone(all[i].Brokers), func(id int) bool { return id == broker })...)
	lib, done := c.fresh(topic)
	defer done()
	assigned, err := lib.AlterPartitionReassignments(ctx, &kafkago.AlterPartitionReassignmentsRequest{
		Topic: topic, Timeout: requestTimeout,
		Assignments: []kafkago.AlterPartitionReassignmentsRequestAssignment{{PartitionID: partition, BrokerIDs: order}},
	})
	if err == nil {
		err = assigned.Error
		for _, p := range assigned.PartitionResults {
			err = errors.Join(err, p.Error)
		}
	}
	if err != nil {
		return fmt.Errorf("prefer broker %d for %s/%d: %w", broker, topic, partition, err)
	}
	return electPreferred(ctx, lib, topic, partition)
}

func electPreferred(ctx context.Context, lib *kafkago.Client, topic string, partition int) error {
	elected, err := lib.ElectLeaders(ctx, &kafkago.ElectLeadersRequest{Topic: topic, Partitions: []int{partition}, Timeout: requestTimeout})
	if err == nil {
		err = elected.Error
		for _, p := range elected.PartitionResults {
			if !errors.Is(p.Error, kafkago.ElectionNotNeeded) {
				err = errors.Join(err, p.Error)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("elect the leader of %s/%d: %w", topic, partition, err)
	}
	return nil
}
