package producer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// sprintf takes its format from a table.
func sprintf(format string, value any) string { return fmt.Sprintf(format, value) }

func TestPublish(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "prod.")
	p := newProducer(t, cluster, func(c *producer.Config) { c.Prefix = "prod." })
	ping(t, p)
	cmd := commands(t, 1)[0]
	require.NoError(t, p.Publish(t.Context(), cmd))

	record := take(t, reader(t, cluster, "prod.payment.commands"), 1)[0]
	require.Equal(t, cmd.IdempotencyKey.String(), string(record.Key))
	back, err := payment.DecodeStrict(record.Value)
	require.NoError(t, err)
	require.Equal(t, cmd, back)
	require.Equal(t, cmd.Identity().PaymentID().String(), header(record, "ce_id"))
	require.Equal(t, header(record, "ce_id"), header(record, "ce_subject"))
	require.Equal(t, "1.0", header(record, "ce_specversion"))
	require.Equal(t, "payment.command", header(record, "ce_type"))
	require.Equal(t, "/settleonce/producer/shop", header(record, "ce_source"))
	require.Equal(t, "application/json", header(record, "content-type"))
	issued, err := time.Parse(time.RFC3339, header(record, "ce_time"))
	require.NoError(t, err)
	require.True(t, issued.Equal(cmd.IssuedAt))
}

func TestPublishWaitsForAllReplicas(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	acks := make(chan int16, 1)
	onProduce(cluster, func(request *kmsg.ProduceRequest) { acks <- request.Acks })
	require.NoError(t, newProducer(t, cluster, nil).Publish(t.Context(), commands(t, 1)...))
	require.EqualValues(t, -1, <-acks)
}

func TestPublishNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, newProducer(t, broker(t, ""), nil).Publish(t.Context()))
}

// A retry must reach the partition that every other producer would choose, or the
// order per key is gone.
func TestKeysGoWhereJavaPutsThem(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	cmds := commands(t, 200)
	// Computed with org.apache.kafka.common.utils.Utils of kafka-clients 4.3.1.
	golden := map[string]int32{
		"8e03978e-40d5-43e8-bc93-6894a57f9324": 3,
		"f47ac10b-58cc-4372-a567-0e02b2c3d479": 14,
		"6fa459ea-ee8a-4ca4-894e-db77e160355e": 1,
	}
	for key := range golden {
		cmd := cmds[0]
		cmd.IdempotencyKey = uuid.MustParse(key)
		cmds = append(cmds, cmd)
	}
	require.NoError(t, newProducer(t, cluster, nil).Publish(t.Context(), cmds...))

	java, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	require.NoError(t, err)
	defer java.Close()
	want := make(map[string]int32)
	for _, cmd := range cmds {
		record := &kgo.Record{Topic: "payment.commands", Key: []byte(cmd.IdempotencyKey.String())}
		require.NoError(t, java.ProduceSync(t.Context(), record).FirstErr())
		want[string(record.Key)] = record.Partition
	}
	for _, record := range take(t, reader(t, cluster, "payment.commands"), 2*len(cmds)) {
		key := string(record.Key)
		require.Equal(t, want[key], record.Partition, key)
		if partition, known := golden[key]; known {
			require.Equal(t, partition, record.Partition, key)
		}
	}
}

// Bad commands in a call: none of it is sent, and each is named.
func TestPublishValidatesAllBeforeTheFirstSend(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	p := newProducer(t, cluster, nil)
	cmds := commands(t, 5)
	cmds[1].Amount = 0
	cmds[3].IdempotencyKey = uuid.Must(uuid.NewV7())
	cmds[4].IdempotencyKey = uuid.Nil

	err := p.Publish(t.Context(), cmds...)
	require.ErrorIs(t, err, producer.ErrInvalid)
	require.NotErrorIs(t, err, producer.ErrUnknown)
	var invalid *producer.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Commands, 3)
	require.Equal(t, []int{1, 3, 4}, []int{invalid.Commands[0].Index, invalid.Commands[1].Index, invalid.Commands[2].Index})
	require.ErrorContains(t, err, "amount")
	require.ErrorContains(t, err, "2 more")
	var reason *payment.CommandError
	require.ErrorAs(t, err, &reason)
	require.Equal(t, "amount", reason.Field)

	requireNoMore(t, cluster, reader(t, cluster, "payment.commands"), "payment.commands")
}

// Kafka stored the command, the answer got lost: the caller hears "unknown", and
// the retry carries the same key, so that the consumer can tell (G1).
func TestRetryAfterAmbiguousPublishKeepsTheKey(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})
	cmds := commands(t, 1)

	unknown := asUnknown(t, newProducer(t, cluster, impatient).Publish(t.Context(), cmds...))
	require.Len(t, unknown.Commands, 1)
	require.Equal(t, cmds[0].IdempotencyKey, unknown.Commands[0].Key)
	require.Equal(t, cmds, unknown.Again(cmds))
	require.ErrorContains(t, unknown, "same keys")
	require.Positive(t, fault.Hits())
	fault.Remove()

	// The retry of another process: Kafka cannot know that it is one.
	require.NoError(t, newProducer(t, cluster, nil).Publish(t.Context(), unknown.Again(cmds)...))
	records := take(t, reader(t, cluster, "payment.commands"), 2)
	require.Equal(t, records[0].Key, records[1].Key)
	require.Equal(t, records[0].Value, records[1].Value)
	require.Equal(t, records[0].Partition, records[1].Partition)
	require.Equal(t, header(records[0], "ce_id"), header(records[1], "ce_id"))
}

// Some partitions answer, others do not: only the unconfirmed commands are named.
func TestUnknownNamesOnlyTheUnconfirmed(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "payment.commands", Partitions: []int32{0, 1, 2, 3, 4, 5, 6, 7},
		Err: kerr.NotEnoughReplicas, Count: -1,
	})
	p := newProducer(t, cluster, impatient)
	cmds := commands(t, 64)
	unknown := asUnknown(t, p.Publish(t.Context(), cmds...))
	again := unknown.Again(cmds)
	require.Len(t, again, len(unknown.Commands))
	require.Less(t, len(again), len(cmds))

	arrived := make(map[string]bool)
	for _, record := range take(t, reader(t, cluster, "payment.commands"), len(cmds)-len(again)) {
		arrived[string(record.Key)] = true
	}
	for i, c := range unknown.Commands {
		require.Equal(t, cmds[c.Index].IdempotencyKey, c.Key)
		require.Equal(t, c.Key, again[i].IdempotencyKey)
		require.False(t, arrived[c.Key.String()])
	}
}

func TestPublishWithoutTopicIsUnknownAndSaysSo(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	p := newProducer(t, cluster, func(c *producer.Config) { c.Prefix, c.Attempts, c.Timeout = "missing.", 1, time.Second })
	require.Len(t, asUnknown(t, p.Publish(t.Context(), commands(t, 2)...)).Commands, 2)
}

func TestEndedContextLeavesUnknown(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "")
	release := make(chan struct{})
	arrived := make(chan struct{})
	onProduce(cluster, func(*kmsg.ProduceRequest) {
		cluster.SleepControl(func() {
			close(arrived)
			<-release
		})
	})
	p := newProducer(t, cluster, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	require.ErrorIs(t, p.Publish(ctx, commands(t, 1)...), producer.ErrUnknown)
	close(release)
	take(t, reader(t, cluster, "payment.commands"), 1) // it arrives all the same
}

func TestClosedProducerSendsNothing(t *testing.T) {
	t.Parallel()
	p := newProducer(t, broker(t, ""), nil)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	err := p.Publish(t.Context(), commands(t, 1)...)
	require.ErrorIs(t, err, producer.ErrClosed)
	require.NotErrorIs(t, err, producer.ErrUnknown)
}

func TestPingReportsWrongPassword(t *testing.T) {
	t.Parallel()
	cluster := broker(t, "", kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "shop", "right"))
	login := func(password string) func(*producer.Config) {
		return func(c *producer.Config) {
			c.SASL = producer.SASL{Mechanism: producer.MechanismScramSHA256, Username: "shop", Password: password}
		}
	}
	ping(t, newProducer(t, cluster, login("right")))
	err := newProducer(t, cluster, login("wrong")).Ping(t.Context())
	require.Error(t, err)
	require.NotContains(t, err.Error(), "wrong")
}
