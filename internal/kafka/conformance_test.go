package kafka_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/settleonce/settleonce/internal/kafka/kafkatest"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) {
	leaktest.Main(m)
}

func TestConformanceKfake(t *testing.T) {
	t.Parallel()
	kafkatest.Run(t, func(t *testing.T) kafkatest.Cluster {
		t.Helper()
		return kafkatest.Cluster{Brokers: startKfake(t).ListenAddrs()}
	})
}

func TestConformanceApacheKafka(t *testing.T) {
	t.Parallel()
	broker := os.Getenv("SETTLEONCE_TEST_KAFKA")
	if broker == "" {
		t.Skip("SETTLEONCE_TEST_KAFKA is not set (host:port of an Apache Kafka broker, see scripts/kafka)")
	}
	kafkatest.Run(t, func(*testing.T) kafkatest.Cluster {
		return kafkatest.Cluster{Brokers: []string{broker}}
	})
}

func startKfake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
