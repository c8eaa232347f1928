package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
)

const (
	dialTimeout    = 5 * time.Second
	requestTimeout = 5 * time.Second
	// metadataTTL bounds how long a moved leader goes unnoticed when no request
	// fails; failing requests refresh at once, see Client.refresh.
	metadataTTL = 2 * time.Second
	// refreshEvery limits forced refreshes: each one opens new connections.
	refreshEvery = 250 * time.Millisecond
)

// Config says which cluster to talk to and as whom. The zero value is not
// usable: Brokers must name at least one broker.
type Config struct {
	// Brokers are the bootstrap addresses, "host:port" each. The rest of the
	// cluster is discovered from any of them. Required.
	Brokers []string
	// ClientID is shown in the broker's logs and quotas. Defaults to "settleonce".
	ClientID string
	// TLS encrypts all connections when set; nil means plain TCP. ServerName is
	// taken from the broker address when empty.
	TLS *tls.Config
	// SASL authenticates all connections; the zero value means no authentication.
	SASL SASL
	// Compression of what is published: "none", "gzip", "snappy", "lz4" or "zstd".
	// Defaults to "none", which costs the least processor time.
	Compression string
	// ConfirmTimeout is how long a broker may take to confirm what a FencedProducer
	// publishes, before the same bytes are sent again. Defaults to 5 s.
	ConfirmTimeout time.Duration
	// Dial opens the TCP connections, for proxies and for tests that break
	// connections. Defaults to a net.Dialer with keep-alive.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger receives what no caller can be told (rebalances, back-off, drains).
	// The zero value discards.
	Logger zerolog.Logger
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "settleonce"
	}
	if c.Compression == "" {
		c.Compression = "none"
	}
	if c.ConfirmTimeout == 0 {
		c.ConfirmTimeout = requestTimeout
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	c.Brokers = append([]string(nil), c.Brokers...)
	return c
}

// Validate reports the first setting that cannot work, in a sentence that says
// what to change.
func (c Config) Validate() error {
	if len(c.Brokers) == 0 {
		return errors.New("kafka brokers: name at least one broker as host:port")
	}
	for _, b := range c.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			return fmt.Errorf("kafka brokers: %q is not an address, write it as host:port", b)
		}
	}
	if _, ok := codecOf(c.Compression); !ok && c.Compression != "" {
		return fmt.Errorf("kafka compression: %q is unknown, use none, gzip, snappy, lz4 or zstd", c.Compression)
	}
	if c.ConfirmTimeout < 0 {
		return fmt.Errorf("kafka confirm timeout %s is negative, leave it unset for the default", c.ConfirmTimeout)
	}
	return c.SASL.Validate()
}

// Client is a handle on one cluster. It is safe for concurrent use; consumers,
// publishers and producers made from it share its connections. Close it when
// all of them have ended.
type Client struct {
	cfg       Config
	log       zerolog.Logger
	addr      net.Addr
	mechanism sasl.Mechanism
	conns     *connSet
	transport *kafkago.Transport

	refreshMu   sync.Mutex
	refreshedAt time.Time
}

// NewClient validates cfg and returns a client. It does not connect: the first
// request does, and Ping tells whether that works.
func NewClient(cfg Config) (*Client, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	mechanism, err := cfg.SASL.mechanism()
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg:       cfg,
		log:       cfg.Logger.With().Str("component", "kafka").Logger(),
		addr:      kafkago.TCP(cfg.Brokers...),
		mechanism: mechanism,
		conns:     newConnSet(cfg.Dial),
	}
	c.transport = c.newTransport()
	return c, nil
}

// Close closes every connection of the client. Requests still under way fail.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.conns.closeAll()
}

// Ping reaches one of the brokers and authenticates. The error says what to
// change when credentials or TLS settings do not match the broker's.
func (c *Client) Ping(ctx context.Context) error {
	var first error
	for _, b := range c.cfg.Brokers {
		err := c.pingBroker(ctx, b)
		if err == nil {
			return nil
		}
		if first == nil {
			first = fmt.Errorf("reach kafka broker %s: %w", b, c.explain(err))
		}
	}
	return first
}

func (c *Client) pingBroker(ctx context.Context, broker string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.dialer(c.conns).DialContext(ctx, "tcp", broker)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	_, err = conn.Brokers() // the first request that needs the authentication
	return err
}

// newTransport makes the request side of the client. Admin calls use one of
// their own for each call, because a transport answers metadata from a cache.
func (c *Client) newTransport() *kafkago.Transport {
	return &kafkago.Transport{
		Dial:        c.conns.dial,
		DialTimeout: dialTimeout,
		IdleTimeout: 30 * time.Second,
		MetadataTTL: metadataTTL,
		ClientID:    c.cfg.ClientID,
		TLS:         c.cfg.TLS,
		SASL:        c.mechanism,
	}
}

func (c *Client) dialer(conns *connSet) *kafkago.Dialer {
	return &kafkago.Dialer{
		ClientID:      c.cfg.ClientID,
		Timeout:       dialTimeout,
		DialFunc:      conns.dial,
		TLS:           c.cfg.TLS,
		SASLMechanism: c.mechanism,
	}
}

// fresh returns a library client that has cached nothing yet, and its end. With
// topics it asks the brokers about these by name: asked for all, they leave out
// what the user may not see, and that looks as if it did not exist.
func (c *Client) fresh(topics ...string) (*kafkago.Client, func()) {
	t := c.newTransport()
	t.MetadataTopics = topics
	return &kafkago.Client{Addr: c.addr, Timeout: 2 * requestTimeout, Transport: t}, t.CloseIdleConnections
}

// refresh drops the cached cluster layout after an answer that shows it to be
// old. The library has no call for that; dropping the connection pools has the
// effect, and requests under way keep theirs.
func (c *Client) refresh() {
	c.refreshMu.Lock()
	defer c.refreshMu.Unlock()
	if time.Since(c.refreshedAt) < refreshEvery {
		return
	}
	c.refreshedAt = time.Now()
	c.transport.CloseIdleConnections()
}

// explain turns the library's transport errors into sentences.
func (c *Client) explain(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, kafkago.SASLAuthenticationFailed), strings.Contains(text, "SASL Authentication failed"):
		return fmt.Errorf("the broker refuses user %q: check the SASL username, password and mechanism (%s): %w",
			c.cfg.SASL.Username, c.cfg.SASL.Mechanism, err)
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return fmt.Errorf("the broker does not offer SASL mechanism %s: use one that it lists: %w", c.cfg.SASL.Mechanism, err)
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return fmt.Errorf("the broker does not speak TLS on this port: switch TLS off or use its TLS port: %w", err)
	case strings.Contains(text, "certificate"):
		return fmt.Errorf("the broker's certificate is not trusted: check the CA file and the host name in the broker address: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in time: check the broker address, firewalls, and whether this port speaks TLS: %w", err)
	case isHangUp(err) && c.cfg.SASL.Mechanism != "":
		return fmt.Errorf("the broker hung up while authenticating user %q: check the SASL username, password and mechanism (%s): %w",
			c.cfg.SASL.Username, c.cfg.SASL.Mechanism, err)
	case isHangUp(err):
		return fmt.Errorf("the broker hung up: it may expect TLS or SASL, set them as its listener demands: %w", err)
	}
	return err
}
