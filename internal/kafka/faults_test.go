package kafka_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/internal/kafka"
)

// readValues reads topic t by partition.
func readValues(t *testing.T, client *kafka.Client) map[int][]string {
	t.Helper()
	out := make(map[int][]string)
	require.NoError(t, client.ReadAll(t.Context(), "t", func(r kafka.Record) error {
		out[r.Partition] = append(out[r.Partition], string(r.Value))
		return nil
	}))
	return out
}

func fenced(t *testing.T, client *kafka.Client) *kafka.FencedProducer {
	t.Helper()
	p, err := client.NewFencedProducer(t.Context(), "p")
	require.NoError(t, err)
	return p
}

// insist publishes as a relay does: what is unresolved, and nothing else, is presented again.
func insist(t *testing.T, client *kafka.Client, p *kafka.FencedProducer, msgs ...kafka.Message) {
	t.Helper()
	for len(msgs) > 0 {
		var open []kafka.Message
		for i, err := range client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: msgs}})[0].Errors {
			if err != nil {
				require.ErrorIs(t, err, kafka.ErrUnresolved)
				open = append(open, msgs[i])
			}
		}
		msgs = open
	}
}

func one(key, value string) kafka.Message {
	return kafka.Message{Topic: "t", Key: []byte(key), Value: []byte(value)}
}

// B6: every answer that says nothing, and every one that asks to come again,
// leads to the same bytes again, and to one record.
func TestFencedAbsorbsAmbiguousAnswers(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	var want []string
	for i, fault := range []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NotEnoughReplicas, kerr.NotLeaderForPartition,
		kerr.LeaderNotAvailable, kerr.UnknownServerError, kerr.KafkaStorageError, kerr.CorruptMessage, kerr.NetworkException,
		kerr.UnknownTopicOrPartition, kerr.FencedLeaderEpoch,
	} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: fault, Count: 3})
		for range 2 {
			value := fmt.Sprintf("%s %d", fault.Message, i)
			want = append(want, value)
			insist(t, client, p, one("k", value))
		}
	}
	require.Equal(t, want, readValues(t, client)[0])
}

// A refusal that follows a lost answer must not free the number: the broker may
// hold the first send under it, and would drop the next message as a repetition.
func TestFencedRefusedAfterLostAnswer(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(2, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	publish := func(values ...string) error {
		var msgs []kafka.Message
		for _, v := range values {
			msgs = append(msgs, one("k", v))
		}
		return client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: msgs}})[0].Err()
	}
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed},
	)
	require.ErrorIs(t, publish("1"), kafka.ErrRenew)
	require.ErrorIs(t, publish("2"), kafka.ErrRenew, "until renewed")
	require.NoError(t, p.Renew(t.Context()))
	insist(t, client, p, one("k", "2"))
	require.Equal(t, []string{"1", "2"}, readValues(t, client)[kafka.Partition([]byte("k"), 2)])
}

// What the broker refuses for good is reported by kind; nothing is lost track of.
func TestFencedRefusals(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	for fault, want := range map[*kerr.Error]error{
		kerr.TopicAuthorizationFailed: kafka.ErrUnauthorized, kerr.InvalidTopicException: kafka.ErrInvalidTopic,
		kerr.InvalidRecord: kafka.ErrRefused, kerr.MessageTooLarge: kafka.ErrMessageTooLarge, kerr.PolicyViolation: kafka.ErrRefused,
	} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: fault})
		got := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: []kafka.Message{one("k", "no")}}})
		require.ErrorIs(t, got[0].Err(), want)
		require.True(t, kafka.Permanent(got[0].Err()))
	}
	for fault, want := range map[*kerr.Error]error{
		kerr.InvalidProducerEpoch: kafka.ErrFenced, kerr.ProducerFenced: kafka.ErrFenced, kerr.UnknownProducerID: kafka.ErrRenew,
	} {
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: fault})
		got := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: []kafka.Message{one("k", "no")}}})
		require.ErrorIs(t, got[0].Err(), want)
		require.False(t, kafka.Permanent(got[0].Err()))
		require.NoError(t, p.Renew(t.Context()))
	}
	insist(t, client, p, one("k", "yes"))
	for _, want := range []error{kafka.ErrRenew, kafka.ErrFenced} { // a gap behind an acknowledged number, and at the first of an epoch
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber})
		got := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: []kafka.Message{one("k", "no")}}})
		require.ErrorIs(t, got[0].Err(), want)
		require.NoError(t, p.Renew(t.Context()))
	}
	require.Equal(t, map[int][]string{0: {"yes"}}, readValues(t, client))
}

// One partition that cannot be written to does not hold the others up for long,
// and goes on where it was.
func TestFencedUnwritablePartition(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(4, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs(), Compression: "zstd"})
	p := fenced(t, client)
	var msgs []kafka.Message
	for k := range 16 {
		msgs = append(msgs, one(fmt.Sprintf("key-%d", k), "v"))
	}
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{2}, Err: kerr.NotEnoughReplicas, Count: -1})
	got := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: msgs}})[0]
	for i, err := range got.Errors {
		if kafka.Partition(msgs[i].Key, 4) == 2 {
			require.ErrorIs(t, err, kafka.ErrUnresolved)
			continue
		}
		require.NoError(t, err)
	}
	fault.Remove()
	var left []kafka.Message
	for i, err := range got.Errors {
		if err != nil {
			left = append(left, msgs[i])
		}
	}
	require.NotEmpty(t, left)
	insist(t, client, p, left...)
	total := 0
	for _, vs := range readValues(t, client) {
		total += len(vs)
	}
	require.Equal(t, len(msgs), total)
}

// A publisher replaces a numbering that the broker has lost.
func TestPublisherRenumbers(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p, err := client.NewPublisher(kafka.PublisherConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Publish(t.Context(), one("k", "1")))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownProducerID})
	require.NoError(t, p.Publish(t.Context(), one("k", "2")))
	require.NoError(t, p.Publish(t.Context(), one("k", "3")))
	require.NoError(t, p.Close(t.Context()))
	require.ErrorIs(t, p.Publish(t.Context(), one("k", "4")), kafka.ErrClosed)
	require.Equal(t, []string{"1", "2", "3"}, readValues(t, client)[0])
}

// B6: partitions change their leaders all the time, under publishers and
// consumer: every message once, in order.
func TestLeadersMove(t *testing.T) {
	t.Parallel()
	const partitions, rounds = 4, 60
	cluster := startKfake(t, kfake.SeedTopics(partitions, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	got := make(chan *kafka.Delivery, partitions*rounds*2)
	consumer, err := client.NewConsumer(kafka.ConsumerConfig{Group: "g", Topics: []string{"t"}, Handler: handTo(got), SessionTimeout: time.Minute})
	require.NoError(t, err)
	run(t, consumer)
	want := make(map[int][]string)
	for i := range rounds {
		if i%3 == 0 {
			cluster.ShufflePartitionLeaders()
		}
		var msgs []kafka.Message
		for k := range 8 {
			m := one(fmt.Sprintf("key-%d", k), fmt.Sprintf("%d-%d", k, i))
			part := kafka.Partition(m.Key, partitions)
			want[part] = append(want[part], string(m.Value))
			msgs = append(msgs, m)
		}
		insist(t, client, p, msgs...)
	}
	require.Equal(t, want, readValues(t, client))
	consumed := make(map[int][]string)
	for range rounds * 8 {
		d := <-got
		consumed[d.Partition] = append(consumed[d.Partition], string(d.Value))
	}
	require.Equal(t, want, consumed)
}

// A fresh or moved coordinator, and commits that time out after they were
// applied, cost no record.
func TestConsumerSurvivesCoordinator(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.CoordinatorNotAvailable, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.CoordinatorLoadInProgress},
		kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.NotCoordinator, Count: 2},
		kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RequestTimedOut, Count: 2},
	)
	p := fenced(t, client)
	var last atomic.Int64
	consumer, err := client.NewConsumer(kafka.ConsumerConfig{
		Group: "g", Topics: []string{"t"}, CommitInterval: 10 * time.Millisecond, JoinGroupBackoff: 20 * time.Millisecond,
		HeartbeatInterval: 50 * time.Millisecond, SessionTimeout: time.Minute,
		Handler: func(_ context.Context, batch []*kafka.Delivery) error {
			last.Store(batch[len(batch)-1].Offset)
			kafka.Finish(batch)
			return nil
		},
	})
	require.NoError(t, err)
	run(t, consumer)
	for i := range 30 {
		if i%10 == 5 {
			cluster.RehashCoordinators()
		}
		insist(t, client, p, one("k", "v"))
		require.Eventually(t, func() bool { return last.Load() == int64(i) }, 90*time.Second, time.Millisecond)
	}
	require.Eventually(t, func() bool {
		offsets, err := client.CommittedOffsets(t.Context(), "g", "t")
		return err == nil && offsets[0] == 30
	}, 90*time.Second, 10*time.Millisecond)
}

// Records that retention deleted before they were read are not skipped in
// silence.
func TestDeletedRecordsAreFatal(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	publish := func() { insist(t, client, p, one("k", "1"), one("k", "2")) }
	publish()
	cfg := kafka.ConsumerConfig{Group: "g", Topics: []string{"t"}}
	got := make(chan *kafka.Delivery, 10)
	cfg.Handler = handTo(got)
	ctx, stop := context.WithCancel(t.Context())
	consumer, err := client.NewConsumer(cfg)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- consumer.Run(ctx) }()
	<-got
	<-got
	stop()
	require.NoError(t, <-ended)
	publish()
	require.NoError(t, cluster.DeleteRecords("t", 0, 3))
	err = consumer.Run(t.Context())
	require.ErrorIs(t, err, kafka.ErrOffsetOutOfRange)
	require.ErrorContains(t, err, "offset 2 is out of range (log holds 3 to 4)")

	cfg.Group = "new"
	fresh, err := client.NewConsumer(cfg)
	require.NoError(t, err)
	run(t, fresh)
	require.Equal(t, int64(3), (<-got).Offset, "a new group starts at the earliest")
}

// An application that lost its own offset reads again what there is. Records that
// are gone were read once, and no refusal brings them back; from the committed
// offset on nothing may be missing.
func TestRewoundBehindDeletedRecords(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	publish := func(messages ...kafka.Message) { insist(t, client, p, messages...) }
	publish(one("k", "0"), one("k", "1"), one("k", "2"))
	got := make(chan *kafka.Delivery, 10)
	cfg := kafka.ConsumerConfig{Group: "g", Topics: []string{"t"}, Handler: handTo(got)}
	consume := func(change func(*kafka.ConsumerConfig)) (stop func() error) {
		cfg := cfg
		change(&cfg)
		consumer, err := client.NewConsumer(cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- consumer.Run(ctx) }()
		return func() error { cancel(); return <-ended }
	}
	stop := consume(func(*kafka.ConsumerConfig) {})
	for range 3 {
		(<-got).Finish()
	}
	require.NoError(t, stop())
	require.NoError(t, cluster.DeleteRecords("t", 0, 2))

	fromZero := func(c *kafka.ConsumerConfig) {
		c.StartOffset = func(context.Context, string, int, int64) (int64, error) { return 0, nil }
	}
	stop = consume(fromZero)
	require.Equal(t, int64(2), (<-got).Offset, "the earliest that is left")
	require.NoError(t, stop())

	publish(one("k", "3"), one("k", "4"))
	require.NoError(t, cluster.DeleteRecords("t", 0, 4))
	consumer, err := client.NewConsumer(func() kafka.ConsumerConfig { c := cfg; fromZero(&c); return c }())
	require.NoError(t, err)
	require.ErrorIs(t, consumer.Run(t.Context()), kafka.ErrOffsetOutOfRange, "offset 3 was never read")
}

// A refused time says that a clock is wrong, and nothing about the message: it is
// not for a person to repair, and goes out with a new time later.
func TestFencedRefusedTime(t *testing.T) {
	t.Parallel()
	cluster := startKfake(t, kfake.SeedTopics(1, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	p := fenced(t, client)
	insist(t, client, p, one("k", "first"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidTimestamp, Count: 1})
	ahead := one("k", "second")
	ahead.Time = time.Now().Add(3 * time.Hour)
	err := client.PublishFenced(t.Context(), []kafka.FencedBatch{{Producer: p, Messages: []kafka.Message{ahead, one("k", "third")}}})[0].Err()
	require.ErrorIs(t, err, kafka.ErrRenew)
	require.False(t, kafka.Permanent(err))
	require.NoError(t, p.Renew(t.Context()))
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond).UTC()
	second, third := one("k", "second"), one("k", "third")
	second.Time, third.Time = at, at.Add(-time.Second)
	insist(t, client, p, second, third)
	var times []time.Time
	require.NoError(t, client.ReadAll(t.Context(), "t", func(r kafka.Record) error {
		times = append(times, r.Time)
		return nil
	}))
	require.Len(t, times, 3)
	require.Equal(t, []time.Time{at, at}, times[1:])
}

// A broker that leaves some requests without an answer, each time others, is asked
// for the rest only: it would never answer all of many at once.
func TestOffsetsOfABusyBroker(t *testing.T) {
	t.Parallel()
	const partitions = 48
	cluster := startKfake(t, kfake.SeedTopics(partitions, "t"))
	client := newClient(t, kafka.Config{Brokers: cluster.ListenAddrs()})
	var asked atomic.Int64
	cluster.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if asked.Add(1)%6 == 0 {
			return nil, kerr.RequestTimedOut, true // hangs up
		}
		return nil, nil, false //nolint:nilnil // how kfake spells "answer it as usual"
	})
	ends, err := client.EndOffsets(t.Context(), "t")
	require.NoError(t, err)
	require.Len(t, ends, partitions)
	require.Greater(t, asked.Load(), int64(2*partitions))
}
