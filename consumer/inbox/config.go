package inbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/producer"
)

// Handler does the work that a message stands for, through tx: what it writes
// there is committed together with the message's marker, or not at all. It must
// not end tx itself.
//
// An error undoes what it did. The message is tried again, with growing pauses,
// Config.Attempts times, and then becomes a dead letter; Poison makes it one at
// once. Failures of the database's own are tried again for as long as they last.
// ctx ends when the partition goes to another member.
type Handler func(ctx context.Context, tx pgx.Tx, m *Message) error

// SASL are the credentials for the brokers.
type SASL = producer.SASL

// Config says what an inbox consumes, and where it remembers what it has done.
type Config struct {
	// Name tells consumers of one database apart, and is the consumer group's
	// name, after Prefix. Never change it: under another name everything is new.
	// Required.
	Name string
	// Topics to consume, without Prefix. Required.
	Topics []string
	// Handler is called once for each message. Required.
	Handler Handler
	// Pool is the service's own database, with the tables of Migrate. As many
	// connections are used at once as partitions are owned, at most. Required.
	Pool *pgxpool.Pool
	// Brokers are the bootstrap addresses, "host:port" each. Required.
	Brokers []string
	// TLS encrypts all connections when set; nil means plain TCP.
	TLS *tls.Config
	// SASL authenticates all connections; the zero value means no authentication.
	SASL SASL
	// Prefix stands before all names of topics and before the group's. Defaults to none.
	Prefix string
	// Batch is the most messages in one transaction. Defaults to 200.
	Batch int
	// Attempts is how often a message is tried before it becomes a dead letter.
	// Defaults to 5, over some three seconds.
	Attempts int
	// Timeout bounds one transaction, the handler's work included. A wait for a lock that
	// others hold ends after half of it, or of the session's statement_timeout, and is no
	// fault of the message; a lock_timeout of the session's own counts instead. Defaults
	// to 30 s.
	Timeout time.Duration
	// Retention is how long a marker is kept after the time of its message. An
	// older message without a marker is not handled but becomes a dead letter, so
	// that no replay does its work again (B15). It must be longer than the
	// topics keep records. Defaults to 100 days, which is longer than
	// settleonce's dead letters are kept.
	Retention time.Duration
	// SessionTimeout is how long the group waits for a silent member.
	// Defaults to 10 s.
	SessionTimeout time.Duration
	// Logger is told of retries, dead letters and gaps. The zero value discards.
	Logger zerolog.Logger
}

// WithDefaults returns a copy with unset fields set.
func (c Config) WithDefaults() Config {
	if c.Batch == 0 {
		c.Batch = 200
	}
	if c.Attempts == 0 {
		c.Attempts = 5
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Retention == 0 {
		c.Retention = 100 * 24 * time.Hour
	}
	return c
}

// maxName keeps consumer names printable in a line.
const maxName = 100

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c Config) Validate() error {
	switch {
	case c.Name == "" || len(c.Name) > maxName:
		return fmt.Errorf("the inbox's name is empty or longer than %d bytes: name the job it does, such as packing", maxName)
	case len(c.Topics) == 0:
		return errors.New("the inbox consumes nothing: name a topic, such as payment.events")
	case c.Handler == nil:
		return errors.New("the inbox has no handler: set one")
	case c.Pool == nil:
		return errors.New("the inbox has no database: set Pool")
	case c.Batch < 1 || c.Batch > 5000:
		return fmt.Errorf("the inbox's batch of %d is out of range, use 1 to 5000", c.Batch)
	case c.Attempts < 1:
		return fmt.Errorf("%d attempts are too few, use 1 or more", c.Attempts)
	case c.Timeout < time.Second:
		return fmt.Errorf("the inbox's timeout of %s is too short, use 1 s or more", c.Timeout)
	case c.Retention < time.Hour:
		return fmt.Errorf("markers that are kept for %s protect from nothing, use 1 h or more", c.Retention)
	}
	return c.client().Validate()
}

func (c Config) client() kafka.Config {
	return kafka.Config{Brokers: c.Brokers, ClientID: "settleonce-inbox", TLS: c.TLS, SASL: kafka.SASL(c.SASL), Logger: c.Logger}
}
