package apachekafka_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func start(t *testing.T, cfg apachekafka.Config) *apachekafka.Cluster {
	t.Helper()
	if ok, reason := apachekafka.Available(t.Context()); !ok {
		t.Skip("Apache Kafka left out: " + reason)
	}
	// A killed node may come back once the controller has missed it.
	cfg.Settings = map[string]string{"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
	c, err := apachekafka.Start(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) })
	return c
}

func client(t *testing.T, c *apachekafka.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Brokers()...))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func createTopic(t *testing.T, cl *kgo.Client, name string) {
	t.Helper()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 2, -1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 30_000
	request.Topics = append(request.Topics, topic)
	var last error
	require.Eventually(t, func() bool { // a busy machine's nodes may be missed for a while, and so be too few
		response, err := request.RequestWith(t.Context(), cl)
		if last = err; err == nil {
			last = kerr.ErrorForCode(response.Topics[0].ErrorCode)
		}
		return last == nil || errors.Is(last, kerr.TopicAlreadyExists)
	}, 5*time.Minute, time.Second)
}

func produce(t *testing.T, cl *kgo.Client, value string) {
	t.Helper()
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "kept", Value: []byte(value)}).FirstErr())
}

func consume(t *testing.T, cl *kgo.Client, n int) string {
	t.Helper()
	var values []string
	for len(values) < n {
		fetches := cl.PollRecords(t.Context(), n)
		require.NoError(t, fetches.Err())
		for _, r := range fetches.Records() {
			values = append(values, string(r.Value))
		}
	}
	return strings.Join(values, ",")
}

//nolint:paralleltest // Two JVMs at once are more than a small machine should be asked for.
func TestOneNodeKeepsRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kafka")
	c := start(t, apachekafka.Config{DataDir: dir})
	brokers := c.Brokers()
	cl := client(t, c)
	createTopic(t, cl, "kept")
	produce(t, cl, "first")

	t.Run("over a kill, on the same port", func(t *testing.T) {
		pid := c.Pid(0)
		require.NoError(t, c.Kill(0))
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
		require.NoError(t, c.Restart(t.Context(), 0))
		require.Equal(t, brokers, c.Brokers())
		require.Equal(t, "first", consume(t, client(t, c, kgo.ConsumeTopics("kept")), 1))
	})

	t.Run("over a stop and a start on the same folder", func(t *testing.T) {
		_, err := apachekafka.Start(t.Context(), apachekafka.Config{DataDir: dir})
		require.ErrorContains(t, err, "in use by another process")
		require.NoError(t, c.Stop(t.Context()))
		again := start(t, apachekafka.Config{DataDir: dir})
		require.Equal(t, "first", consume(t, client(t, again, kgo.ConsumeTopics("kept")), 1))
	})
}

//nolint:paralleltest // Three JVMs at once are more than a small machine should be asked for.
func TestThreeNodesSurviveOne(t *testing.T) {
	if testing.Short() {
		t.Skip("three JVMs take 20 seconds")
	}
	c := start(t, apachekafka.Config{Brokers: 3})
	cl := client(t, c)
	createTopic(t, cl, "kept")
	produce(t, cl, "before")
	require.NoError(t, c.Kill(1))
	produce(t, cl, "meanwhile")
	require.NoError(t, c.Restart(t.Context(), 1))
	require.NoError(t, c.Shutdown(t.Context(), 2))
	produce(t, cl, "after")
	require.NoError(t, c.Restart(t.Context(), 2))
	got := consume(t, client(t, c, kgo.ConsumeTopics("kept")), 3)
	for _, want := range []string{"before", "meanwhile", "after"} {
		require.Contains(t, got, want)
	}
}

//nolint:paralleltest // Two JVMs at once are more than a small machine should be asked for.
func TestControllerOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("two JVMs take 15 seconds")
	}
	c := start(t, apachekafka.Config{Controller: true})
	require.Len(t, c.Brokers(), 1)
	cl := client(t, c)
	createTopic(t, cl, "kept")
	require.NoError(t, c.Kill(0))
	require.NoError(t, c.Restart(t.Context(), 0))
	produce(t, cl, "after")
	require.Equal(t, "after", consume(t, client(t, c, kgo.ConsumeTopics("kept")), 1))
}

func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	_, err := apachekafka.Start(t.Context(), apachekafka.Config{Brokers: 2})
	require.ErrorContains(t, err, "use 1 or 3")
	_, err = apachekafka.Start(t.Context(), apachekafka.Config{StartTimeout: -1})
	require.ErrorContains(t, err, "use 0 for the default")
}
