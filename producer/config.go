package producer

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// The SASL mechanisms that SASL.Mechanism may name.
const (
	MechanismPlain       = kafka.MechanismPlain
	MechanismScramSHA256 = kafka.MechanismScramSHA256
	MechanismScramSHA512 = kafka.MechanismScramSHA512
)

// maxPrefix leaves room for the topic's own name: Kafka allows 249 characters.
const maxPrefix = 200

// maxTopic is Kafka's limit.
const maxTopic = 249

// Config says which cluster to publish to and as whom. The zero value is not
// usable: Brokers must name at least one broker. What protects the money is not
// configurable: all in-sync replicas acknowledge, and a key goes to the partition
// where Java clients put it.
type Config struct {
	// Brokers are the bootstrap addresses, "host:port" each. Required.
	Brokers []string
	// ClientID is shown in the broker's logs and quotas. Defaults to
	// "settleonce-producer".
	ClientID string
	// TLS encrypts all connections when set; nil means plain TCP. ServerName is
	// taken from the broker's address when empty.
	TLS *tls.Config
	// SASL authenticates all connections; the zero value means no authentication.
	SASL SASL
	// Prefix stands before the topic's name, "payment.commands". Defaults to none.
	Prefix string
	// Topic is the command topic of this caller, without the prefix, where callers
	// have topics of their own (the consumer's setting command-topics). Defaults to
	// "payment.commands".
	Topic string
	// SigningKey proves who wrote the commands (G12). The zero value signs nothing.
	SigningKey SigningKey
	// Attempts times Timeout is how long a command is tried before it is reported
	// as unknown, whatever the context allows. Defaults to 3.
	Attempts int
	// Timeout bounds one attempt. Defaults to 5 s.
	Timeout time.Duration
	// Logger receives what no caller can be told. The zero value discards.
	Logger zerolog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "settleonce-producer"
	}
	if c.Topic == "" {
		c.Topic = payment.NewTopics("").Commands
	}
	c.Brokers = append([]string(nil), c.Brokers...)
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c Config) Validate() error {
	if err := c.client().Validate(); err != nil {
		return err
	}
	if err := c.publisher().WithDefaults().Validate(); err != nil {
		return err
	}
	if len(c.Prefix) > maxPrefix {
		return fmt.Errorf("topic prefix is %d characters long, use at most %d", len(c.Prefix), maxPrefix)
	}
	if len(c.Prefix)+len(c.Topic) > maxTopic {
		return fmt.Errorf("topic %s%s is longer than Kafka's %d characters, shorten it", c.Prefix, c.Topic, maxTopic)
	}
	for _, part := range []struct{ what, text string }{{"topic prefix", c.Prefix}, {"topic", c.Topic}} {
		for _, r := range part.text {
			if !topicRune(r) {
				return fmt.Errorf("%s %q holds a %q, use only letters, digits, '.', '_' and '-'", part.what, part.text, r)
			}
		}
	}
	return c.SigningKey.validate()
}

func topicRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

func (c Config) client() kafka.Config {
	return kafka.Config{Brokers: c.Brokers, ClientID: c.ClientID, TLS: c.TLS, SASL: kafka.SASL(c.SASL), Logger: c.Logger}
}

func (c Config) publisher() kafka.PublisherConfig {
	return kafka.PublisherConfig{Attempts: c.Attempts, Timeout: c.Timeout}
}

// SASL holds the credentials for the brokers. The zero value means no
// authentication. It never shows the password when it is printed.
type SASL struct {
	// Mechanism is "", PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Mechanism string
	// Username and Password are required with a mechanism, refused without one.
	Username, Password string
}

// String shows mechanism and user, never the password.
func (s SASL) String() string { return kafka.SASL(s).String() }

// GoString keeps the password out of %#v as well.
func (s SASL) GoString() string { return "producer.SASL{" + s.String() + "}" }
