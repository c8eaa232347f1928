package outbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/tracing"
)

// RelayConfig says what a Relay connects and how it paces itself.
type RelayConfig struct {
	// Pool is the database with the outbox. The relay uses up to six of its
	// connections at once, and one of its own to listen. Required.
	Pool *pgxpool.Pool
	// Kafka is the cluster to publish to. Required.
	Kafka *kafka.Client
	// TransactionalPrefix stands before the transactional ids, which are
	// "<prefix>settleonce-outbox-<shard>". Installations that share a cluster
	// must differ in it: one would shut the other out. Defaults to empty.
	TransactionalPrefix string
	// Source becomes ce_source. Defaults to "settleonce".
	Source string
	// Owner names this relay in logs and in the table of leases; a random suffix
	// makes it unique. Defaults to the host name.
	Owner string
	// BatchSize is how many rows of a shard are taken in one read; up to four
	// times as many while the shard is behind. Defaults to 500.
	BatchSize int
	// Lease is how long a shard stays ours without a renewal: as long as that
	// its messages may wait after a crash. One publish gets at most a third of
	// it. All relays of a database should agree. Defaults to 10 s.
	Lease time.Duration
	// Poll is how soon a message is seen when no wake-up arrives. Defaults to
	// 100 ms.
	Poll time.Duration
	// RenewProducer is how often each shard takes a new producer epoch. Plain
	// batches do not keep a transactional id alive, and the broker forgets it
	// after 7 days (transactional.id.expiration.ms). Defaults to 12 hours.
	RenewProducer time.Duration
	// Sweep is how often all of the table is looked through for messages that
	// were parked and are repaired. While an old snapshot makes that expensive
	// it happens less often. Defaults to 2 s.
	Sweep time.Duration
	// Tracer records the publishing of messages that carry a recorded trace.
	// Defaults to nobody; headers are the same either way.
	Tracer *tracing.Tracer
	// Logger is told what no caller can be told. The zero value discards.
	Logger zerolog.Logger
}

const (
	defaultBatch         = 500
	defaultLease         = 10 * time.Second
	defaultPoll          = 100 * time.Millisecond
	defaultRenewProducer = 12 * time.Hour
	defaultSweep         = 2 * time.Second
	maxBatch             = 5000
	minLease             = 3 * time.Second
	maxRenewProducer     = 24 * time.Hour
)

// WithDefaults returns a copy with unset fields filled in.
func (c RelayConfig) WithDefaults() RelayConfig {
	setDefault(&c.Source, "settleonce")
	setDefault(&c.BatchSize, defaultBatch)
	setDefault(&c.Lease, defaultLease)
	setDefault(&c.Poll, defaultPoll)
	setDefault(&c.RenewProducer, defaultRenewProducer)
	setDefault(&c.Sweep, defaultSweep)
	if c.Owner == "" {
		c.Owner, _ = os.Hostname() // a name for people; the suffix makes it unique
	}
	return c
}

// Validate reports the first field that cannot work, and what to change.
func (c RelayConfig) Validate() error {
	switch {
	case c.Pool == nil:
		return errors.New("outbox relay has no database: set Pool")
	case c.Kafka == nil:
		return errors.New("outbox relay has no Kafka client: set Kafka")
	case c.BatchSize < 1 || c.BatchSize > maxBatch:
		return fmt.Errorf("outbox batch size %d is out of range: use 1 to %d", c.BatchSize, maxBatch)
	case c.Lease < minLease:
		return fmt.Errorf("outbox lease %s is too short to publish in: use %s or more", c.Lease, minLease)
	case c.Poll <= 0:
		return fmt.Errorf("outbox poll interval %s is not positive: use 10 ms to 1 s", c.Poll)
	case c.RenewProducer <= 0 || c.RenewProducer > maxRenewProducer:
		return fmt.Errorf("outbox producer renewal every %s: use up to %s, the broker forgets ids that are not renewed", c.RenewProducer, maxRenewProducer)
	case c.Sweep <= 0:
		return fmt.Errorf("outbox sweep interval %s is not positive: use 1 s to 10 s", c.Sweep)
	default:
		return nil
	}
}

// share is the part of a lease that one publish, or one statement, may take.
func (c *RelayConfig) share() time.Duration { return c.Lease / 3 }

func (c *RelayConfig) transactionalID(shard int16) string {
	return fmt.Sprintf("%ssettleonce-outbox-%d", c.TransactionalPrefix, shard)
}

// uniqueOwner makes a name that no other relay has, also not this one's
// predecessor: leases are told apart by it.
func uniqueOwner(name string) (string, error) {
	var suffix [6]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return "", fmt.Errorf("make a unique relay name: %w", err)
	}
	return name + "-" + hex.EncodeToString(suffix[:]), nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
