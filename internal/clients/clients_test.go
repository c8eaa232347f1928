// Package clients shows that any Kafka client can publish commands: those of others
// are used as a team would use them, and nothing of ours is between them and the
// topic.
package clients_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/apachekafka"
	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/internal/fleet/fleettest"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// toolsEnv names the folder with the clients that are no system packages; `make
// clients` makes it.
const toolsEnv = "SETTLEONCE_TEST_CLIENTS"

var program fleettest.Program //nolint:gochecknoglobals // built once for the test binary

func TestMain(m *testing.M) { program.Main(m) }

// batch is one run of a client.
type batch struct {
	client, codec string
	// transaction is none, commit or abort.
	transaction string
	// foreign says that the client's own partitioner is used, which is not Java's.
	foreign bool

	commands []payment.Command
	file     string
}

func (b *batch) String() string { return b.client + " " + b.codec + " " + b.transaction }

// batches are every client with every codec it has, with and without transactions.
func batches() (all []*batch) {
	add := func(client, transaction string, codecs ...string) {
		for _, codec := range codecs {
			all = append(all, &batch{client: client, codec: codec, transaction: transaction})
		}
	}
	add("kcat", "none", "none", "gzip", "snappy", "lz4", "zstd")
	add("java", "none", "none", "gzip", "snappy", "lz4", "zstd")
	add("java", "commit", "none", "zstd")
	add("java", "abort", "none", "zstd")
	add("kafkajs", "none", "none", "gzip", "snappy")
	add("kafkajs", "commit", "none", "gzip")
	add("kafkajs", "abort", "none")
	add("python", "none", "none", "gzip", "snappy", "lz4", "zstd")
	add("python", "commit", "none", "lz4")
	add("python", "abort", "none", "lz4")
	for _, client := range []string{"kcat", "python"} {
		all = append(all, &batch{client: client, codec: "none", transaction: "none", foreign: true})
	}
	return all
}

// run publishes the batch with its client.
func (b *batch) run(t *testing.T, tools, brokers, topic string) {
	t.Helper()
	partitioner := "murmur2_random"
	if b.foreign {
		partitioner = "consistent_random" // librdkafka's default
	}
	var args []string
	switch b.client {
	case "kcat":
		args = []string{"kcat", "-P", "-b", brokers, "-t", topic, "-K", "\t", "-l", "-z", b.codec, "-X", "partitioner=" + partitioner, "-X", "acks=all", b.file}
	case "java":
		path, err := apachekafka.ClassPath()
		require.NoError(t, err)
		args = []string{"java", "-cp", path, "testdata/Produce.java", brokers, topic, b.codec, b.transaction, b.file}
	case "kafkajs":
		args = []string{"node", filepath.Join(tools, "node", "produce.mjs"), brokers, topic, b.codec, b.transaction, b.file}
	case "python":
		args = []string{filepath.Join(tools, "python", "bin", "python"), "testdata/produce.py", brokers, topic, b.codec, partitioner, b.transaction, b.file}
	}
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", b, out)
}

// TestClientsOfOthers publishes with all of them, and finds each command on the
// partition that its key belongs to, settled once; those of aborted transactions
// are never charged (G16), and another partitioner does no harm.
func TestClientsOfOthers(t *testing.T) {
	t.Parallel()
	tools := os.Getenv(toolsEnv)
	if tools == "" {
		t.Skip("run `make clients`, which brings the clients")
	}
	f, err := fleet.Start(t.Context(), fleet.Config{Binary: program.Path(t), Kafka: fleet.KafkaApache, Log: zerolog.Nop()})
	t.Cleanup(func() { require.NoError(t, f.Stop(context.WithoutCancel(t.Context()))) })
	require.NoError(t, err)
	_, err = f.StartWorker(t.Context(), "all", 0)
	require.NoError(t, err)
	all := batches()
	topic := payment.NewTopics("").Commands
	for _, b := range all {
		b.write(t)
		b.run(t, tools, strings.Join(f.Brokers(), ","), topic)
	}
	partitions := map[string]int{}
	require.NoError(t, f.Client().ReadAll(t.Context(), topic, func(r kafka.Record) error {
		partitions[string(r.Key)] = r.Partition
		return nil
	}))
	settled := awaitCharges(t, f, all)
	elsewhere := 0
	for _, b := range all {
		for i := range b.commands {
			key := b.commands[i].IdempotencyKey.String()
			if b.transaction == "abort" {
				require.NotContains(t, partitions, key, b)
				require.Zero(t, settled[b.commands[i].OrderID], b)
				continue
			}
			require.Equal(t, 1, settled[b.commands[i].OrderID], b)
			if at, there := partitions[key]; b.foreign && at != kafka.Partition([]byte(key), 16) {
				elsewhere++
			} else {
				require.True(t, there, b)
				require.Equal(t, kafka.Partition([]byte(key), 16), at, b)
			}
		}
	}
	require.Positive(t, elsewhere, "librdkafka's own partitioner differs, or this test shows nothing")
	t.Logf("%d runs, %d commands on another partition, each settled once", len(all), elsewhere)
}

// perBatch is how many commands a client publishes at once.
const perBatch = 20

// write makes the commands of a batch, and the file that the client reads.
func (b *batch) write(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	for range perBatch {
		c, err := producer.NewCommand(producer.Intent{
			Caller: "shop", OrderID: "order-" + strings.ReplaceAll(b.String(), " ", "-") + fmt.Sprint(b.foreign, len(b.commands)), Amount: 1999, Currency: "EUR",
			CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim",
		})
		require.NoError(t, err)
		b.commands = append(b.commands, c)
		fmt.Fprintf(&lines, "%s\t%s\n", c.IdempotencyKey, c.AppendJSON(nil))
	}
	b.file = filepath.Join(t.TempDir(), "commands")
	require.NoError(t, os.WriteFile(b.file, []byte(lines.String()), 0o600))
}

// awaitCharges waits until everything that was committed is settled, and returns
// how often each order was.
func awaitCharges(t *testing.T, f *fleet.Fleet, all []*batch) map[string]int {
	t.Helper()
	want := 0
	for _, b := range all {
		if b.transaction != "abort" {
			want += len(b.commands)
		}
	}
	settled := map[string]int{}
	require.Eventually(t, func() bool {
		ledger, err := check.ReadLedger(t.Context(), "sim", f.SimURL())
		require.NoError(t, err)
		clear(settled)
		for _, charge := range ledger.Charges {
			settled[charge.Order] += charge.Settled
		}
		return len(settled) >= want
	}, 2*time.Minute, 200*time.Millisecond, "%d orders are to be settled", want)
	return settled
}
