package kafka_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
)

// brokers returns an Apache Kafka broker when there is one, else a new kfake.
func benchBrokers(b *testing.B) []string {
	b.Helper()
	if broker := os.Getenv("SETTLEONCE_TEST_KAFKA"); broker != "" {
		return []string{broker}
	}
	return startKfake(b).ListenAddrs()
}

func benchTopic(b *testing.B, client *kafka.Client, partitions int) string {
	b.Helper()
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	_, err := client.EnsureTopics(b.Context(), []kafka.TopicSpec{{Name: name, Partitions: partitions, Replication: 1}})
	require.NoError(b, err)
	return name
}

func benchMessages(topic string, n int) []kafka.Message {
	out := make([]kafka.Message, n)
	for i := range out {
		out[i] = kafka.Message{
			Topic: topic, Key: fmt.Appendf(nil, "8e03978e-40d5-43e8-bc93-%012d", i), Value: make([]byte, 350),
			Headers: []kafka.Header{{Key: "ce_id", Value: make([]byte, 36)}, {Key: "ce_type", Value: []byte("payment.succeeded")}},
		}
	}
	return out
}

// BenchmarkPublishFenced publishes as the relay does: 16 shards at once, one
// call under way. One operation is one message.
func BenchmarkPublishFenced(b *testing.B) {
	for _, size := range []int{16, 500, 4000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			client := newClient(b, kafka.Config{Brokers: benchBrokers(b)})
			topic := benchTopic(b, client, 16)
			shards := make([][]kafka.Message, 16)
			for _, m := range benchMessages(topic, size) {
				p := kafka.Partition(m.Key, 16)
				shards[p] = append(shards[p], m)
			}
			var batches []kafka.FencedBatch
			for p, msgs := range shards {
				producer, err := client.NewFencedProducer(b.Context(), fmt.Sprintf("%s-%d", topic, p))
				require.NoError(b, err)
				batches = append(batches, kafka.FencedBatch{Producer: producer, Messages: msgs})
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range client.PublishFenced(b.Context(), batches) {
					require.NoError(b, r.Err())
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkPublisher publishes one message per call from many goroutines, as an
// edge does.
func BenchmarkPublisher(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			client := newClient(b, kafka.Config{Brokers: benchBrokers(b)})
			msgs := benchMessages(benchTopic(b, client, 16), 1000)
			p, err := client.NewPublisher(kafka.PublisherConfig{})
			require.NoError(b, err)
			require.NoError(b, p.Publish(b.Context(), msgs[0]))
			b.ReportAllocs()
			b.SetParallelism(max(callers/2, 1))
			var next atomic.Int64
			if callers == 1 {
				for i := range b.N {
					require.NoError(b, p.Publish(b.Context(), msgs[i%1000]))
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						require.NoError(b, p.Publish(b.Context(), msgs[next.Add(1)%1000]))
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
			require.NoError(b, p.Close(b.Context()))
		})
	}
}

// BenchmarkConsume consumes a backlog; one operation is one record.
func BenchmarkConsume(b *testing.B) {
	client := newClient(b, kafka.Config{Brokers: benchBrokers(b)})
	topic := benchTopic(b, client, 16)
	producer, err := client.NewFencedProducer(b.Context(), topic)
	require.NoError(b, err)
	for left := b.N; left > 0; left -= 4000 {
		msgs := benchMessages(topic, min(left, 4000))
		require.NoError(b, client.PublishFenced(b.Context(), []kafka.FencedBatch{{Producer: producer, Messages: msgs}})[0].Err())
	}
	var got, calls atomic.Int64
	done := make(chan struct{})
	consumer, err := client.NewConsumer(kafka.ConsumerConfig{
		Group: topic, Topics: []string{topic},
		Handler: func(_ context.Context, batch []*kafka.Delivery) error {
			kafka.Finish(batch)
			calls.Add(1)
			if got.Add(int64(len(batch))) == int64(b.N) {
				close(done)
			}
			return nil
		},
	})
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	run(b, consumer)
	<-done
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(b.N)/float64(calls.Load()), "msgs/call")
}
