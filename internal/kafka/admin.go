package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
)

// TopicSpec describes a topic that should exist.
type TopicSpec struct {
	Name string
	// Partitions and Replication of a new topic; 0 leaves them to the broker.
	Partitions, Replication int
	// Config holds settings of a new topic, for example "retention.ms".
	Config map[string]string
}

// TopicResult says what EnsureTopics found or did.
type TopicResult struct {
	Name string
	// Created is false when the topic existed, however it is configured.
	Created bool
	// Err is set when the topic neither existed nor could be created; it wraps the
	// broker's reason with the topic's name.
	Err error
}

// EnsureTopics creates the topics that are missing and never changes one that
// exists. Results are in the order of specs. The error is set when the cluster
// could not be asked, or else joins the results' errors.
func (c *Client) EnsureTopics(ctx context.Context, specs []TopicSpec) ([]TopicResult, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	lib, done := c.fresh()
	defer done()
	req := &kafkago.CreateTopicsRequest{}
	for _, s := range specs {
		req.Topics = append(req.Topics, topicConfig(s))
	}
	res, err := lib.CreateTopics(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("create topics: %w", c.explain(err))
	}
	c.refresh() // so that the new topics are known here at once
	out := make([]TopicResult, len(specs))
	var failed []error
	for i, s := range specs {
		out[i] = topicResult(s.Name, res.Errors)
		if out[i].Err != nil {
			failed = append(failed, out[i].Err)
		}
	}
	return out, errors.Join(failed...)
}

func topicConfig(s TopicSpec) kafkago.TopicConfig {
	t := kafkago.TopicConfig{Topic: s.Name, NumPartitions: s.Partitions, ReplicationFactor: s.Replication}
	if s.Partitions == 0 {
		t.NumPartitions = -1
	}
	if s.Replication == 0 {
		t.ReplicationFactor = -1
	}
	for _, k := range slices.Sorted(maps.Keys(s.Config)) {
		t.ConfigEntries = append(t.ConfigEntries, kafkago.ConfigEntry{ConfigName: k, ConfigValue: s.Config[k]})
	}
	return t
}

func topicResult(name string, errs map[string]error) TopicResult {
	err, answered := errs[name]
	switch {
	case !answered:
		return TopicResult{Name: name, Err: fmt.Errorf("create topic %s: the broker left it out of its answer", name)}
	case errors.Is(err, kafkago.TopicAlreadyExists):
		return TopicResult{Name: name}
	case err != nil:
		return TopicResult{Name: name, Err: fmt.Errorf("create topic %s: %w", name, classify(err))}
	}
	return TopicResult{Name: name, Created: true}
}

// describedConfigs are the settings that the guarantees depend on.
func describedConfigs() []string {
	return []string{"cleanup.policy", "retention.ms", "min.insync.replicas", "max.message.bytes", "unclean.leader.election.enable"}
}

// TopicDescription is what the cluster says about a topic.
type TopicDescription struct {
	Name   string
	Exists bool
	// Hidden says that the broker does not let this user see the topic, so that
	// nobody knows whether it exists.
	Hidden bool
	// Partitions and Replication are counts; Replication is the smallest of the
	// partitions' replica counts. Both 0 when the topic does not exist.
	Partitions, Replication int
	// Config holds cleanup.policy, retention.ms, min.insync.replicas,
	// max.message.bytes and unclean.leader.election.enable, as the broker spells
	// them; a setting that the broker does not tell, or not to us, is absent.
	Config map[string]string
}

// DescribeTopics asks the cluster, not a cache. Results are in the order of
// names.
func (c *Client) DescribeTopics(ctx context.Context, names []string) ([]TopicDescription, error) {
	lib, done := c.fresh(names...)
	defer done()
	meta, err := lib.Metadata(ctx, &kafkago.MetadataRequest{Topics: names})
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", c.explain(err))
	}
	out := make([]TopicDescription, len(names))
	index := make(map[string]int, len(names))
	configs := &kafkago.DescribeConfigsRequest{}
	for i, name := range names {
		out[i] = TopicDescription{Name: name}
		index[name] = i
	}
	for _, t := range meta.Topics {
		i, ok := index[t.Name]
		switch {
		case !ok || errors.Is(t.Error, kafkago.UnknownTopicOrPartition):
			continue
		case errors.Is(t.Error, kafkago.TopicAuthorizationFailed):
			out[i].Hidden = true
			continue
		case t.Error != nil:
			return nil, fmt.Errorf("describe topic %s: %w", t.Name, classify(t.Error))
		}
		out[i].Exists = true
		out[i].Partitions, out[i].Replication = counts(t.Partitions)
		configs.Resources = append(configs.Resources, kafkago.DescribeConfigRequestResource{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: t.Name, ConfigNames: describedConfigs(),
		})
	}
	return out, c.describeConfigs(ctx, lib, configs, out, index)
}

// missingTopics needs no right but to see the topics; without it the error is
// ErrUnauthorized.
func (c *Client) missingTopics(ctx context.Context, names []string) ([]string, error) {
	lib, done := c.fresh(names...)
	defer done()
	meta, err := lib.Metadata(ctx, &kafkago.MetadataRequest{Topics: names})
	if err != nil {
		return nil, fmt.Errorf("look up topics: %w", c.explain(err))
	}
	var out []string
	for _, t := range meta.Topics {
		switch {
		case errors.Is(t.Error, kafkago.UnknownTopicOrPartition):
			out = append(out, t.Name)
		case errors.Is(t.Error, kafkago.TopicAuthorizationFailed):
			return nil, fmt.Errorf("look up topic %s, grant Describe on it: %w", t.Name, classify(t.Error))
		}
	}
	return out, nil
}

func counts(parts []kafkago.Partition) (partitions, replication int) {
	for i, p := range parts {
		if i == 0 || len(p.Replicas) < replication {
			replication = len(p.Replicas)
		}
	}
	return len(parts), replication
}

func (c *Client) describeConfigs(ctx context.Context, lib *kafkago.Client, req *kafkago.DescribeConfigsRequest, out []TopicDescription, index map[string]int) error {
	if len(req.Resources) == 0 {
		return nil
	}
	res, err := lib.DescribeConfigs(ctx, req)
	if err != nil {
		return fmt.Errorf("describe topic settings: %w", err)
	}
	for _, r := range res.Resources {
		i, ok := index[r.ResourceName]
		if !ok {
			continue
		}
		if errors.Is(classify(r.Error), ErrUnauthorized) {
			continue // absent settings say that they are not known
		}
		if r.Error != nil {
			return fmt.Errorf("describe settings of topic %s: %w", r.ResourceName, classify(r.Error))
		}
		out[i].Config = make(map[string]string)
		for _, e := range r.ConfigEntries {
			if slices.Contains(describedConfigs(), e.ConfigName) {
				out[i].Config[e.ConfigName] = e.ConfigValue
			}
		}
	}
	return nil
}
