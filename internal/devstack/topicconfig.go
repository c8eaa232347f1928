package devstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SetTopicConfig gives a topic another setting, as an operator would, and waits until
// every broker tells of it.
func SetTopicConfig(ctx context.Context, brokers []string, topic, name, value string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return fmt.Errorf("connect to set %s of %s: %w", name, topic, err)
	}
	defer client.Close()
	setting := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	setting.Name, setting.Value, setting.Op = name, &value, kmsg.IncrementalAlterConfigOpSet
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	resource.Configs = append(resource.Configs, setting)
	order := kmsg.NewPtrIncrementalAlterConfigsRequest()
	order.Resources = append(order.Resources, resource)
	done, err := order.RequestWith(ctx, client)
	if err == nil && len(done.Resources) == 1 {
		err = kerr.ErrorForCode(done.Resources[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("set %s of %s: %w", name, topic, err)
	}
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("ask which brokers there are: %w", err)
	}
	for i := range metadata.Brokers {
		if err := awaitTopicConfig(ctx, client.Broker(int(metadata.Brokers[i].NodeID)), topic, name, value); err != nil {
			return fmt.Errorf("set %s of %s: %w", name, topic, err)
		}
	}
	return nil
}

// awaitTopicConfig waits until a broker tells of the setting: they learn of it one
// after the other.
func awaitTopicConfig(ctx context.Context, broker *kgo.Broker, topic, name, value string) error {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("a broker goes on telling of another value"))
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if told, err := topicConfig(ctx, broker, topic, name); err == nil && told == value {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// topicConfig is a setting as one broker tells it; empty for none.
func topicConfig(ctx context.Context, broker *kgo.Broker, topic, name string) (string, error) {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName, resource.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{name}
	question := kmsg.NewPtrDescribeConfigsRequest()
	question.Resources = append(question.Resources, resource)
	answer, err := broker.RetriableRequest(ctx, question)
	if err != nil {
		return "", err
	}
	described, ok := answer.(*kmsg.DescribeConfigsResponse)
	if !ok || len(described.Resources) == 0 {
		return "", errors.New("the broker does not tell")
	}
	for _, c := range described.Resources[0].Configs {
		if c.Name == name && c.Value != nil {
			return *c.Value, nil
		}
	}
	return "", kerr.ErrorForCode(described.Resources[0].ErrorCode)
}
