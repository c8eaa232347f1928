package schemas_test

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/schemas"
)

// The official parser checks the form of asyncapi.yaml (asyncapi/validate.mjs) but
// not 2020-12 schemas; these tests check what it says about our messages.

type reference struct {
	Ref string `yaml:"$ref"`
}

type schemaReference struct {
	SchemaFormat string    `yaml:"schemaFormat"`
	Schema       reference `yaml:"schema"`
}

type kafkaTopic struct {
	Topic         string         `yaml:"topic"`
	Partitions    int            `yaml:"partitions"`
	Configuration map[string]any `yaml:"topicConfiguration"`
}

type asyncAPI struct {
	AsyncAPI string `yaml:"asyncapi"`
	Channels map[string]struct {
		Address  string               `yaml:"address"`
		Messages map[string]reference `yaml:"messages"`
		Bindings struct {
			Kafka kafkaTopic `yaml:"kafka"`
		} `yaml:"bindings"`
	} `yaml:"channels"`
	Operations map[string]struct {
		Action   string      `yaml:"action"`
		Channel  reference   `yaml:"channel"`
		Messages []reference `yaml:"messages"`
	} `yaml:"operations"`
	Components struct {
		Messages map[string]struct {
			Title    string          `yaml:"title"`
			Headers  schemaReference `yaml:"headers"`
			Payload  schemaReference `yaml:"payload"`
			Examples []struct {
				Headers any `yaml:"headers"`
				Payload any `yaml:"payload"`
			} `yaml:"examples"`
		} `yaml:"messages"`
	} `yaml:"components"`
}

func asyncAPIDocument(t *testing.T) asyncAPI {
	t.Helper()
	var doc asyncAPI
	require.NoError(t, yaml.Unmarshal(schemas.AsyncAPI, &doc))
	require.Equal(t, "3.1.0", doc.AsyncAPI)
	return doc
}

// kindOfReference resolves a payload or headers reference to the schema it names.
func kindOfReference(t *testing.T, r schemaReference) schemas.Kind {
	t.Helper()
	require.Equal(t, "application/schema+json;version=draft-2020-12", r.SchemaFormat)
	require.True(t, strings.HasPrefix(r.Schema.Ref, "./"), r.Schema.Ref)
	kind := schemas.Kind(strings.TrimSuffix(path.Base(r.Schema.Ref), ".json"))
	require.Contains(t, schemas.Kinds(), kind)
	return kind
}

func TestAsyncAPIMessagesFollowTheSchemas(t *testing.T) {
	t.Parallel()
	v, doc := validator(t), asyncAPIDocument(t)
	check := func(name string, r schemaReference, example any) {
		if r.Schema.Ref == "" || example == nil {
			return
		}
		text, err := json.Marshal(example)
		require.NoError(t, err)
		require.NoError(t, v.Validate(kindOfReference(t, r), text), name)
	}
	used := map[schemas.Kind]bool{}
	for name, message := range doc.Components.Messages {
		require.NotEmpty(t, message.Examples, name)
		for _, r := range []schemaReference{message.Headers, message.Payload} {
			if r.Schema.Ref != "" {
				used[kindOfReference(t, r)] = true
			}
		}
		for _, example := range message.Examples {
			check(name, message.Headers, example.Headers)
			check(name, message.Payload, example.Payload)
		}
	}
	for _, kind := range schemas.Kinds() {
		require.True(t, used[kind], "no message uses %s", kind)
	}
}

func TestAsyncAPIChannelsAreTheTopics(t *testing.T) {
	t.Parallel()
	doc, topics := asyncAPIDocument(t), payment.NewTopics("")
	want := append(topics.Requery[:], topics.Commands, topics.Replies, topics.Events, topics.DeadLetter, topics.Callbacks)
	got := make([]string, 0, len(doc.Channels))
	for name, channel := range doc.Channels {
		got = append(got, channel.Address)
		require.Equal(t, channel.Address, channel.Bindings.Kafka.Topic, name)
		require.Equal(t, 16, channel.Bindings.Kafka.Partitions, name)
		require.Equal(t, []any{"delete"}, channel.Bindings.Kafka.Configuration["cleanup.policy"], name)
		for message, r := range channel.Messages {
			require.Equal(t, "#/components/messages/"+message, r.Ref)
			require.Contains(t, doc.Components.Messages, message)
		}
	}
	require.ElementsMatch(t, want, got)
}

func TestAsyncAPIOperationsMoveEveryMessage(t *testing.T) {
	t.Parallel()
	doc := asyncAPIDocument(t)
	moved := map[string]bool{}
	for name, operation := range doc.Operations {
		require.True(t, slices.Contains([]string{"send", "receive"}, operation.Action), name)
		channel := strings.TrimPrefix(operation.Channel.Ref, "#/channels/")
		require.Contains(t, doc.Channels, channel, name)
		for _, message := range operation.Messages {
			_, short, found := strings.Cut(message.Ref, "/messages/")
			require.True(t, found && strings.HasPrefix(message.Ref, operation.Channel.Ref+"/"), message.Ref)
			require.Contains(t, doc.Channels[channel].Messages, short)
			moved[short] = true
		}
	}
	for name := range doc.Components.Messages {
		require.True(t, moved[name], "no operation moves %s", name)
	}
}

// Every event type is a message of its own, so that downstream can subscribe by it.
func TestAsyncAPIListsEveryEventType(t *testing.T) {
	t.Parallel()
	messages := asyncAPIDocument(t).Components.Messages
	titles := make([]string, 0, len(messages))
	for _, message := range messages {
		titles = append(titles, message.Title)
	}
	for _, eventType := range []payment.EventType{
		payment.EventAccepted, payment.EventSucceeded, payment.EventDeclined, payment.EventRejected,
		payment.EventUnknown, payment.EventReviewRequired, payment.EventEvidenceConflict,
	} {
		require.Contains(t, titles, string(eventType))
	}
}
