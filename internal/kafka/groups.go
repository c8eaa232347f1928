package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	groupsapi "github.com/segmentio/kafka-go/protocol/describegroups"
)

// Group is what the cluster says about a consumer group.
type Group struct {
	// State is the broker's word: "Stable", "PreparingRebalance",
	// "CompletingRebalance", "Empty", or "Dead" for one that does not exist.
	State string
	// Members are the clients that have joined, as "client id @ host".
	Members []string
}

// Running reports whether the group has members, so that its offsets are not for
// others to change.
func (g Group) Running() bool { return g.State != "Empty" && g.State != "Dead" }

// DescribeGroup asks for the state of a consumer group.
func (c *Client) DescribeGroup(ctx context.Context, name string) (Group, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	// The library's own call cannot read the metadata of newer members.
	res, err := c.transport.RoundTrip(ctx, c.addr, &groupsapi.Request{Groups: []string{name}})
	answer, ok := res.(*groupsapi.Response)
	switch {
	case err != nil:
	case !ok || len(answer.Groups) != 1:
		err = errLeftOut
	default:
		err = protocolError(answer.Groups[0].ErrorCode)
	}
	if errors.Is(err, kafkago.GroupIdNotFound) {
		return Group{State: "Dead"}, nil
	}
	if err != nil {
		return Group{}, fmt.Errorf("describe group %s: %w", name, classify(err))
	}
	group := Group{State: answer.Groups[0].GroupState}
	for _, m := range answer.Groups[0].Members {
		group.Members = append(group.Members, m.ClientID+" @ "+m.ClientHost)
	}
	slices.Sort(group.Members)
	return group, nil
}

// ResetOffsets commits the offsets that a consumer group goes on from. The broker
// refuses it while the group has members.
func (c *Client) ResetOffsets(ctx context.Context, group, topic string, offsets map[int]int64) error {
	req := &kafkago.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{}}
	for partition, offset := range offsets {
		req.Topics[topic] = append(req.Topics[topic], kafkago.OffsetCommit{Partition: partition, Offset: offset})
	}
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	res, err := c.library().OffsetCommit(ctx, req)
	if err != nil {
		return fmt.Errorf("reset offsets of group %s: %w", group, err)
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return fmt.Errorf("reset offset of group %s, partition %d: %w", group, p.Partition, classify(p.Error))
		}
	}
	return nil
}

// StartOffsets returns the offset of the oldest record that each partition of the
// topic still holds.
func (c *Client) StartOffsets(ctx context.Context, topic string) (map[int]int64, error) {
	ids, err := c.partitionIDs(ctx, topic)
	if err != nil {
		return nil, err
	}
	got, err := c.listOffsets(ctx, map[string][]int{topic: ids})
	if err != nil {
		return nil, fmt.Errorf("read start offsets of topic %s: %w", topic, err)
	}
	out := make(map[int]int64, len(ids))
	for tp, r := range got {
		out[tp.partition] = r.earliest
	}
	return out, nil
}

// OffsetsAt returns the offset of each partition's first record whose timestamp
// is the given time or later; the end of the partition where there is none.
func (c *Client) OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int]int64, error) {
	out, err := c.EndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	req := &kafkago.ListOffsetsRequest{Addr: c.addr, Topics: map[string][]kafkago.OffsetRequest{}}
	for id := range out {
		req.Topics[topic] = append(req.Topics[topic], kafkago.TimeOffsetOf(id, at))
	}
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	res, err := c.library().ListOffsets(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("look up offsets of topic %s at %s: %w", topic, at.Format(time.RFC3339), err)
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return nil, fmt.Errorf("look up offset of topic %s partition %d: %w", topic, p.Partition, classify(p.Error))
		}
		for offset := range p.Offsets {
			if offset >= 0 {
				out[p.Partition] = offset
			}
		}
	}
	return out, nil
}

// ReadRange calls fn for every committed record of one partition from an offset up
// to, not including, another, in order, as far as they are there. It returns the
// offset behind the last record that fn took, also beside an error.
func (c *Client) ReadRange(ctx context.Context, topic string, partition int, from, to int64, fn func(Record) error) (int64, error) {
	tp := topicPartition{topic, partition}
	got, err := c.listOffsets(ctx, map[string][]int{topic: {partition}})
	if err != nil {
		return from, fmt.Errorf("read topic %s partition %d: %w", topic, partition, err)
	}
	at, err := c.readPartition(ctx, tp, offsetRange{max(from, got[tp].earliest), min(to, got[tp].latest)}, fn)
	if err != nil {
		return at, fmt.Errorf("read topic %s partition %d: %w", topic, partition, err)
	}
	return at, nil
}
