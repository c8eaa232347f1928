package kafkatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/kafka"
)

func transactionChecks() []check {
	return []check{
		{"B18_AbortedNever", checkAborted},
		{"AbortedInterleaved", checkInterleaved},
		{"MarkersDoNotSpin", checkMarkers},
		{"OpenTransaction", checkOpenTransaction},
	}
}

func record(topic string, partition int, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: int32(partition), Key: []byte("k"), Value: []byte(value)} //nolint:gosec // small
}

// transact writes values in one transaction and ends it.
func (s *suite) transact(t *testing.T, cl *kgo.Client, topic string, end kgo.TransactionEndTry, values ...string) {
	t.Helper()
	require.NoError(t, cl.BeginTransaction())
	for _, v := range values {
		require.NoError(t, cl.ProduceSync(s.context(t), record(topic, 0, v)).FirstErr())
	}
	require.NoError(t, cl.EndTransaction(s.context(t), end))
}

// B18, G16: commit one, abort one, commit one: two are delivered, the aborted
// one never, and no marker.
func checkAborted(t *testing.T, s *suite) {
	topic := s.topic(t, "aborted", 1)
	cl := s.kgo(t, kgo.TransactionalID(s.name))
	s.transact(t, cl, topic, kgo.TryCommit, "c1")
	s.transact(t, cl, topic, kgo.TryAbort, "a1", "a2", "a3")
	s.transact(t, cl, topic, kgo.TryCommit, "c2")
	s.transact(t, cl, topic, kgo.TryAbort, "a4")
	s.produceValues(t, topic, 0, 0, 1)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}}, true)
	got := m.waitFor(t, 3)
	require.Equal(t, []string{"c1", "c2", "v0"}, values(got))
	s.eventuallyCommitted(t, s.group(""), topic, 0, got[2].Offset+1)
	require.Equal(t, []string{"c1", "c2", "v0"}, s.log(t, topic)[0])
}

// Two producers' transactions interleave in one partition, one is aborted; the
// reader starts in the middle of it.
func checkInterleaved(t *testing.T, s *suite) {
	topic := s.topic(t, "interleaved", 1)
	good := s.kgo(t, kgo.TransactionalID(s.name+"-good"))
	bad := s.kgo(t, kgo.TransactionalID(s.name+"-bad"))
	require.NoError(t, good.BeginTransaction())
	require.NoError(t, bad.BeginTransaction())
	for _, v := range []string{"1", "2", "3"} {
		require.NoError(t, bad.ProduceSync(s.context(t), record(topic, 0, "bad"+v)).FirstErr())
		require.NoError(t, good.ProduceSync(s.context(t), record(topic, 0, "good"+v)).FirstErr())
	}
	require.NoError(t, bad.EndTransaction(s.context(t), kgo.TryAbort))
	require.NoError(t, good.EndTransaction(s.context(t), kgo.TryCommit))
	s.transact(t, bad, topic, kgo.TryCommit, "bad4")
	for _, start := range []struct {
		offset int64
		want   []string
	}{{0, []string{"good1", "good2", "good3", "bad4"}}, {2, []string{"good2", "good3", "bad4"}}} {
		m := s.join(t, kafka.ConsumerConfig{
			Group: s.group(start.want[0]), Topics: []string{topic}, StartOffset: startAt(start.offset),
		}, true)
		m.waitFor(t, len(start.want))
		require.Equal(t, start.want, values(m.deliveries()))
	}
}

// Control batches at the end of a partition, and behind a start offset, do not
// make the fetch loop spin.
func checkMarkers(t *testing.T, s *suite) {
	topic := s.topic(t, "markers", 2)
	cl := s.kgo(t, kgo.TransactionalID(s.name))
	s.transact(t, cl, topic, kgo.TryCommit, "c1")
	s.transact(t, cl, topic, kgo.TryAbort, "a1")
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, FetchMaxWait: 500 * time.Millisecond}, true)
	require.Equal(t, []string{"c1"}, values(m.waitFor(t, 1)))
	s.expectIdle(t)
	s.transact(t, cl, topic, kgo.TryCommit, "c2")
	require.Equal(t, []string{"c1", "c2"}, values(m.waitFor(t, 2)))
}

// expectIdle requires that an idle consumer asks a few times a second only.
func (s *suite) expectIdle(t *testing.T) {
	t.Helper()
	eventually(t, func() bool {
		before := s.faults.Count(apiFetch)
		<-time.After(time.Second)
		n := s.faults.Count(apiFetch) - before
		t.Log(n, "fetches")
		return n <= 6
	}, "few fetches")
}

// Records of an open transaction, and those behind them, wait for its end; the
// loop does not spin meanwhile.
func checkOpenTransaction(t *testing.T, s *suite) {
	topic := s.topic(t, "open", 1)
	cl := s.kgo(t, kgo.TransactionalID(s.name))
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(s.context(t), record(topic, 0, "t1")).FirstErr())
	s.produceValues(t, topic, 0, 0, 2)
	m := s.join(t, kafka.ConsumerConfig{Topics: []string{topic}, FetchMaxWait: 500 * time.Millisecond}, true)
	eventually(t, func() bool { return len(m.owns(topic)) == 1 }, "assigned")
	s.expectIdle(t)
	require.Empty(t, m.deliveries())
	require.NoError(t, cl.EndTransaction(s.context(t), kgo.TryCommit))
	m.waitFor(t, 3)
	require.Equal(t, []string{"t1", "v0", "v1"}, values(m.deliveries()))
}
