package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/store"
)

// Reset is a change of the offsets that a consumer group goes on from.
type Reset struct {
	Group string `json:"group"`
	Topic string `json:"topic"`
	// State is the group's, Members those that would have to be stopped.
	State   string   `json:"state"`
	Members []string `json:"members,omitempty"`
	// From and To are the offsets before and after, by partition, where they differ.
	From map[int]int64 `json:"from"`
	To   map[int]int64 `json:"to"`
	// Again is how many records would be delivered again.
	Again int64 `json:"again"`

	running bool
}

// LookGroup says what setting a group back to the start of the selection would
// do. A group is only set back, never forward: what was skipped would be lost (G5).
func (p *Player) LookGroup(ctx context.Context, s *Selection, group string) (Reset, error) {
	r := Reset{Group: group, Topic: s.Topic, From: map[int]int64{}, To: map[int]int64{}}
	switch {
	case s.filtered():
		return r, errors.New("a group reads whole partitions: leave out --key, --caller and --order, or publish into the topic without --group")
	case !s.Until.IsZero():
		return r, errors.New("a group that is set back reads on to the end: leave out --until, or publish into the topic without --group")
	}
	spans, err := p.Spans(ctx, s)
	if err != nil {
		return r, err
	}
	found, err := p.cfg.Kafka.DescribeGroup(ctx, group)
	if err != nil {
		return r, err
	}
	r.State, r.Members, r.running = found.State, found.Members, found.Running()
	committed, err := p.cfg.Kafka.CommittedOffsets(ctx, group, s.Topic)
	if err != nil {
		return r, err
	}
	for partition, span := range spans {
		if at := committed[partition]; at > span.From {
			r.From[partition], r.To[partition] = at, span.From
			r.Again += at - span.From
		}
	}
	if len(r.To) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(committed)), func(at int64) bool { return at >= 0 }) {
		return r, fmt.Errorf("group %s has committed nothing in topic %s: look at its name with `settleonce lag`", group, s.Topic)
	}
	return r, nil
}

// ResetGroup sets the group back. It must not be running.
func (p *Player) ResetGroup(ctx context.Context, r Reset, by store.Operator) error {
	if err := by.Validate(); err != nil {
		return err
	}
	if r.running {
		return fmt.Errorf("group %s is running (%s, %s): stop its members first, nothing was changed", r.Group, r.State, strings.Join(r.Members, ", "))
	}
	if len(r.To) == 0 {
		return nil
	}
	// Before it is done: whoever looks for the reason of a flood must find it.
	if err := p.cfg.Store.AuditReset(ctx, by, r.Group, r.Topic, r.From, r.To); err != nil {
		return err
	}
	return p.cfg.Kafka.ResetOffsets(ctx, r.Group, r.Topic, r.To)
}
