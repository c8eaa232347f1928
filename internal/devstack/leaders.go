package devstack

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrOneBroker says that a cluster of one broker has nobody else to lead.
var ErrOneBroker = errors.New("there is one broker, and nobody else to lead its partitions")

// MoveLeaders has other brokers lead the chosen partitions, as when a broker is
// taken out of service, and returns how many moved. Topics of the cluster's own are
// among them: whoever leads one of those is a coordinator. A partition whose other
// replicas are behind stays where it is.
func MoveLeaders(ctx context.Context, brokers []string, chosen func(topic string, partition int32) bool) (int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return 0, fmt.Errorf("connect to move leaders: %w", err)
	}
	defer client.Close()
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("ask who leads: %w", err)
	}
	if len(metadata.Brokers) < 2 {
		return 0, ErrOneBroker
	}
	order, election := kmsg.NewPtrAlterPartitionAssignmentsRequest(), kmsg.NewPtrElectLeadersRequest()
	order.TimeoutMillis, election.TimeoutMillis = 10_000, 10_000
	for i := range metadata.Topics {
		plan(order, election, &metadata.Topics[i], chosen)
	}
	if len(election.Topics) == 0 {
		return 0, nil
	}
	if _, err := order.RequestWith(ctx, client); err != nil {
		return 0, fmt.Errorf("put another broker first: %w", err)
	}
	answer, err := election.RequestWith(ctx, client)
	if err != nil {
		return 0, fmt.Errorf("have leaders elected: %w", err)
	}
	return elected(answer), kerr.ErrorForCode(answer.ErrorCode)
}

// plan adds the topic's chosen partitions to the requests: first another broker
// than the leader becomes the preferred one, then the preferred one is elected.
func plan(order *kmsg.AlterPartitionAssignmentsRequest, election *kmsg.ElectLeadersRequest, topic *kmsg.MetadataResponseTopic,
	chosen func(string, int32) bool,
) {
	if topic.Topic == nil {
		return
	}
	orders, elections := kmsg.NewAlterPartitionAssignmentsRequestTopic(), kmsg.NewElectLeadersRequestTopic()
	orders.Topic, elections.Topic = *topic.Topic, *topic.Topic
	for i := range topic.Partitions {
		p := &topic.Partitions[i]
		if !chosen(*topic.Topic, p.Partition) {
			continue
		}
		one := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		one.Partition, one.Replicas = p.Partition, anotherFirst(p)
		orders.Partitions = append(orders.Partitions, one)
		elections.Partitions = append(elections.Partitions, p.Partition)
	}
	if len(elections.Partitions) > 0 {
		order.Topics, election.Topics = append(order.Topics, orders), append(election.Topics, elections)
	}
}

// anotherFirst are the partition's replicas, with one first that is in step and not
// the leader, if there is any.
func anotherFirst(p *kmsg.MetadataResponseTopicPartition) []int32 {
	first := p.Leader
	for _, id := range p.ISR {
		if id != p.Leader {
			first = id
		}
	}
	out := []int32{first}
	for _, id := range p.Replicas {
		if id != first {
			out = append(out, id)
		}
	}
	return out
}

func elected(answer *kmsg.ElectLeadersResponse) (n int) {
	for i := range answer.Topics {
		for j := range answer.Topics[i].Partitions {
			if answer.Topics[i].Partitions[j].ErrorCode == 0 {
				n++
			}
		}
	}
	return n
}

// MoveCoordinators has other brokers coordinate groups and transactional ids. It
// changes nothing where there is one broker.
func (k *Kafka) MoveCoordinators() { k.cluster.RehashCoordinators() }
