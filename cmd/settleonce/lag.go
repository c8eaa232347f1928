package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
)

func newLag(p process) *cobra.Command {
	var groups []string
	var partitions bool
	cmd := &cobra.Command{
		Use: "lag", Short: "Show how far consumer groups are behind", GroupID: sectionOperators, Args: cobra.NoArgs,
		Example: "  settleonce lag\n  settleonce lag --partitions\n  settleonce lag --group shop-orders=payment.events+payment.replies -o json",
		Long: "Shows consumer and reconciler, and the groups that --group names. A lag in seconds is the age of the oldest record that\n" +
			"the group has not finished.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := wantsJSON(cmd); err != nil {
				return err
			}
			return withKafka(cmd, p, func(client *kafka.Client, c *config.Config) error {
				readers, err := readersOf(c, groups)
				if err != nil {
					return asUsage(err)
				}
				var all []groupLag
				for _, r := range readers {
					found, err := r.lag(cmd.Context(), client, time.Now())
					if err != nil {
						return explainKafka(err)
					}
					all = append(all, found)
				}
				return show(cmd, all, func(t *table, all []groupLag) { lagTable(t, all, partitions) })
			})
		},
	}
	cmd.Flags().StringArrayVar(&groups, "group", nil, "another group and its topics, GROUP=TOPIC+TOPIC, both without topic-prefix; may be repeated")
	cmd.Flags().BoolVar(&partitions, "partitions", false, "show every partition that is behind")
	offerOutput(cmd)
	offer(cmd, config.GroupKafka)
	offerOne(cmd, "topic-prefix")
	offerOne(cmd, "command-topics")
	return cmd
}

// reader is a consumer group and what it reads.
type reader struct {
	group  string
	topics []string
}

// readersOf are our own groups, and those that were named.
func readersOf(c *config.Config, named []string) ([]reader, error) {
	prefix, names := c.Topics.Prefix, topicNames(c)
	readers := []reader{
		{prefix + "settleonce-consumer", c.Callers.CommandTopics(prefix)},
		{prefix + "settleonce-reconciler", append(names.Requery[:], names.Callbacks)},
	}
	for _, text := range named {
		group, topics, ok := strings.Cut(text, "=")
		if !ok || group == "" || topics == "" {
			return nil, fmt.Errorf("--group %q names no topic: write GROUP=TOPIC+TOPIC", text)
		}
		r := reader{group: prefix + group}
		for topic := range strings.SplitSeq(topics, "+") {
			r.topics = append(r.topics, prefix+topic)
		}
		readers = append(readers, r)
	}
	return readers, nil
}

// groupLag is how far a group is behind.
type groupLag struct {
	Group   string     `json:"group"`
	State   string     `json:"state"`
	Members []string   `json:"members"`
	Topics  []topicLag `json:"topics"`
}

// topicLag is how far a group is behind in one topic.
type topicLag struct {
	Topic   string  `json:"topic"`
	Records int64   `json:"records"`
	Seconds float64 `json:"seconds"`
	// Lost counts records that retention removed before the group read them.
	Lost       int64          `json:"lost"`
	Partitions []partitionLag `json:"partitions,omitempty"`
}

// partitionLag is a partition that is behind.
type partitionLag struct {
	Partition int     `json:"partition"`
	Committed int64   `json:"committed"`
	End       int64   `json:"end"`
	Seconds   float64 `json:"seconds"`
}

func (r reader) lag(ctx context.Context, client *kafka.Client, now time.Time) (groupLag, error) {
	found, err := client.DescribeGroup(ctx, r.group)
	if err != nil {
		return groupLag{}, err
	}
	out := groupLag{Group: r.group, State: found.State, Members: append([]string{}, found.Members...)}
	for _, topic := range r.topics {
		l, err := lagOf(ctx, client, r.group, topic, now)
		if err != nil {
			return out, err
		}
		out.Topics = append(out.Topics, l)
	}
	return out, nil
}

func lagOf(ctx context.Context, client *kafka.Client, group, topic string, now time.Time) (topicLag, error) {
	l := topicLag{Topic: topic}
	starts, err := client.StartOffsets(ctx, topic)
	if err != nil {
		return l, err
	}
	ends, err := client.EndOffsets(ctx, topic)
	if err != nil {
		return l, err
	}
	committed, err := client.CommittedOffsets(ctx, group, topic)
	if err != nil {
		return l, err
	}
	for partition := range len(ends) {
		at := max(committed[partition], 0)
		if committed[partition] >= 0 { // a group that never came has lost nothing
			l.Lost += max(starts[partition]-at, 0)
		}
		at = max(at, starts[partition])
		if at >= ends[partition] {
			continue
		}
		p := partitionLag{Partition: partition, Committed: committed[partition], End: ends[partition]}
		if p.Seconds, err = ageAt(ctx, client, topic, partition, at, now); err != nil {
			return l, err
		}
		l.Records += ends[partition] - at
		l.Seconds = max(l.Seconds, p.Seconds)
		l.Partitions = append(l.Partitions, p)
	}
	return l, nil
}

// ageAt is how old the first record from an offset on is, in seconds.
func ageAt(ctx context.Context, client *kafka.Client, topic string, partition int, offset int64, now time.Time) (float64, error) {
	errFound := errors.New("found")
	var age float64
	_, err := client.ReadRange(ctx, topic, partition, offset, offset+1000, func(r kafka.Record) error {
		age = max(now.Sub(r.Time).Seconds(), 0)
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return age, err
}

func lagTable(t *table, all []groupLag, partitions bool) {
	t.row("GROUP", "STATE", "MEMBERS", "TOPIC", "RECORDS", "SECONDS")
	for _, g := range all {
		for _, l := range g.Topics {
			note := ""
			if l.Lost > 0 {
				note = fmt.Sprintf("%d records were removed before they were read", l.Lost)
			}
			t.row(g.Group, g.State, strconv.Itoa(len(g.Members)), l.Topic, strconv.FormatInt(l.Records, 10), fmt.Sprintf("%.1f", l.Seconds), note)
			if !partitions {
				continue
			}
			for _, p := range l.Partitions {
				t.row("", "", "", fmt.Sprintf("  partition %d, at %d of %d", p.Partition, p.Committed, p.End), strconv.FormatInt(p.End-max(p.Committed, 0), 10), fmt.Sprintf("%.1f", p.Seconds))
			}
		}
	}
}
