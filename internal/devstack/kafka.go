package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/settleonce/settleonce/internal/folderlock"
)

// KafkaConfig says where the embedded broker keeps its data and how it presents itself.
type KafkaConfig struct {
	// DataDir keeps topics, groups and producer states over a restart. Only one broker at a time may
	// use it. Defaults to memory only.
	DataDir string
	// Brokers is how many brokers the cluster shows. They are one process: more of them replicate
	// nothing. Defaults to one, or to the number of Ports.
	Brokers int
	// Ports to listen on at 127.0.0.1, one per broker. Defaults to free ones, new at each start.
	Ports []int
	// Partitions of a topic that is created without a number. Defaults to 16.
	Partitions int
	// SyncWrites calls fsync for every batch. Defaults to false, which is how Apache Kafka behaves.
	SyncWrites bool
	// Log is told of the broker's warnings. Defaults to nothing.
	Log zerolog.Logger
}

// WithDefaults returns a copy with unset fields filled in.
func (c KafkaConfig) WithDefaults() KafkaConfig {
	if c.Brokers == 0 {
		c.Brokers = max(1, len(c.Ports))
	}
	if c.Partitions == 0 {
		c.Partitions = 16
	}
	return c
}

// Validate reports the first field that cannot work, and what to change.
func (c KafkaConfig) Validate() error {
	switch {
	case c.Brokers < 0:
		return fmt.Errorf("embedded kafka: %d brokers: use 1 or more", c.Brokers)
	case len(c.Ports) > 0 && len(c.Ports) != c.Brokers:
		return fmt.Errorf("embedded kafka: %d ports for %d brokers: give each broker one, or none at all", len(c.Ports), c.Brokers)
	case c.Partitions < 0:
		return fmt.Errorf("embedded kafka: %d partitions: use 1 or more", c.Partitions)
	default:
		return nil
	}
}

// Kafka is a running embedded broker.
type Kafka struct {
	cluster *kfake.Cluster
	ghosts  *ghosts
	lock    *folderlock.Lock // nil without a data folder
}

// StartKafka starts the embedded broker. It answers when StartKafka returns. Missing topics are not
// created by naming them: as on a production cluster, somebody has to create them.
func StartKafka(cfg KafkaConfig) (*Kafka, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(cfg.Brokers),
		kfake.DefaultNumPartitions(cfg.Partitions),
		kfake.ClusterID("settleonce-dev"),
		kfake.WithLogger(brokerLog{cfg.Log}),
	}
	if len(cfg.Ports) > 0 {
		opts = append(opts, kfake.Ports(cfg.Ports...))
	}
	if cfg.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	k := &Kafka{}
	if cfg.DataDir != "" {
		var err error
		if k.lock, err = lockDataDir(cfg.DataDir); err != nil {
			return nil, err
		}
		opts = append(opts, kfake.DataDir(filepath.Join(cfg.DataDir, "data")))
	}
	var err error
	if k.cluster, err = kfake.NewCluster(opts...); err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded kafka: %w", err), k.unlock())
	}
	if k.ghosts, err = watchGhosts(k.cluster, cfg.Log); err != nil {
		k.cluster.Close()
		return nil, errors.Join(err, k.unlock())
	}
	return k, nil
}

func lockDataDir(dir string) (*folderlock.Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data folder: %w", err)
	}
	return folderlock.Try(filepath.Join(dir, "lock"))
}

// Brokers are the addresses to bootstrap from.
func (k *Kafka) Brokers() []string { return k.cluster.ListenAddrs() }

// Close writes everything out and stops the broker.
func (k *Kafka) Close() error {
	k.ghosts.close()
	k.cluster.Close()
	return k.unlock()
}

func (k *Kafka) unlock() error {
	if k.lock == nil {
		return nil
	}
	return k.lock.Release()
}

// brokerLog passes on what deserves attention; the rest is a line per request.
type brokerLog struct{ log zerolog.Logger }

// Logf implements the broker's logger.
func (b brokerLog) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		b.log.Error().Msgf(format, args...)
	case kfake.LogLevelWarn:
		b.log.Warn().Msgf(format, args...)
	case kfake.LogLevelInfo, kfake.LogLevelDebug, kfake.LogLevelNone:
	}
}
