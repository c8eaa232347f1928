// Package kafkatest is the conformance suite of package kafka: what it promises,
// checked on whatever broker the caller starts. It is meant for tests only.
package kafkatest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

const (
	// patience bounds every wait of the suite.
	patience = 3 * time.Minute
	// session and rebalance are what members are given: a machine that pauses them must
	// not take their partitions away. transaction is how long one may be open.
	session, rebalance, transaction = time.Minute, 30 * time.Second, 10 * time.Minute
)

// Cluster is a running broker or cluster, without authentication.
type Cluster struct {
	// Brokers are its bootstrap addresses.
	Brokers []string
}

// Run runs the whole suite. start is called once; the cluster must live until
// the test ends.
func Run(t *testing.T, start func(t *testing.T) Cluster) {
	t.Helper()
	c := start(t)
	for _, group := range [][]check{
		consumeChecks(), rebalanceChecks(), boundsChecks(), transactionChecks(), publishChecks(), fencedChecks(), fencedFaultChecks(), adminChecks(), groupChecks(),
	} {
		for _, k := range group {
			t.Run(k.name, func(t *testing.T) {
				t.Parallel()
				k.run(t, newSuite(t, c))
			})
		}
	}
}

type check struct {
	name string
	run  func(t *testing.T, s *suite)
}

// suite is what one check works with: a client whose connections it can break,
// and names of its own.
type suite struct {
	brokers []string
	name    string
	faults  *Faults
	client  *kafka.Client
}

var serial atomic.Int64 //nolint:gochecknoglobals // names stay unique within the process

// newSuite makes unique names: an external broker keeps the topics and groups of
// earlier runs.
func newSuite(t *testing.T, c Cluster) *suite {
	t.Helper()
	s := &suite{
		brokers: c.Brokers,
		name:    fmt.Sprintf("t%d-%d", time.Now().UnixNano(), serial.Add(1)),
		faults:  &Faults{},
	}
	s.client = s.newClient(t, s.faults)
	return s
}

func (s *suite) newClient(t *testing.T, f *Faults) *kafka.Client {
	t.Helper()
	client, err := kafka.NewClient(kafka.Config{
		Brokers: s.brokers, ClientID: "kafkatest", Dial: f.Dial,
		Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (s *suite) group(suffix string) string { return s.name + "-group" + suffix }

// topic creates a topic and waits until producing to it works.
func (s *suite) topic(t *testing.T, suffix string, partitions int) string {
	t.Helper()
	name := s.name + "-" + suffix
	eventually(t, func() bool {
		_, err := s.client.EnsureTopics(s.context(t), []kafka.TopicSpec{{Name: name, Partitions: partitions, Replication: 1}})
		return err == nil
	}, "topic %s created", name)
	return name
}

func (s *suite) context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// kgo is another client library, as an upstream service would use.
func (s *suite) kgo(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(s.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionTimeout(transaction),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// produce writes n records "v0"… to a partition with the other library.
func (s *suite) produce(t *testing.T, topic string, partition, n int) {
	t.Helper()
	s.produceValues(t, topic, partition, 0, n)
}

func (s *suite) produceValues(t *testing.T, topic string, partition, from, to int) {
	t.Helper()
	cl := s.kgo(t)
	var rs []*kgo.Record
	for i := from; i < to; i++ {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(partition), Key: []byte("k"), Value: fmt.Appendf(nil, "v%d", i)}) //nolint:gosec // small
	}
	require.NoError(t, cl.ProduceSync(s.context(t), rs...).FirstErr())
}

// log reads a whole topic and returns the values by partition.
func (s *suite) log(t *testing.T, topic string) map[int][]string {
	t.Helper()
	out := make(map[int][]string)
	require.NoError(t, s.client.ReadAll(s.context(t), topic, func(r kafka.Record) error {
		out[r.Partition] = append(out[r.Partition], string(r.Value))
		return nil
	}))
	return out
}

func (s *suite) committed(t *testing.T, group, topic string) map[int]int64 {
	t.Helper()
	var got map[int]int64
	eventually(t, func() bool {
		var err error
		got, err = s.client.CommittedOffsets(s.context(t), group, topic)
		return err == nil
	}, "the committed offsets are told")
	return got
}

func (s *suite) eventuallyCommitted(t *testing.T, group, topic string, partition int, want int64) {
	t.Helper()
	eventually(t, func() bool {
		got, err := s.client.CommittedOffsets(s.context(t), group, topic)
		return err == nil && got[partition] == want
	}, "partition %d committed at %d", partition, want)
}

func eventually(t *testing.T, ok func() bool, msg string, args ...any) {
	t.Helper()
	require.Eventually(t, ok, patience, 10*time.Millisecond, append([]any{msg}, args...)...)
}
