package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Fate is how far a request got.
type Fate int

// The fates of a request. Whatever is not sure is NoAnswer.
const (
	// NoAnswer: a byte of the request may have left, and no whole answer came back.
	NoAnswer Fate = iota
	// NotSent: it is proven that no byte of the request left.
	NotSent
	// Answered: a whole answer came back.
	Answered
)

// Field is one header line.
type Field struct{ Name, Value string }

// Request is one request. Its body is bytes, sent with their length.
type Request struct {
	Method string
	// Target is the path and query, joined to the base URL's path.
	Target string
	Header []Field
	Body   []byte
}

// Response says how far a request got and what came back.
type Response struct {
	Fate Fate
	// Status, Header and Body are the answer's; set when Fate is Answered.
	Status int
	Header http.Header
	Body   []byte
	// Err is what stopped the request; nil when Fate is Answered.
	Err error
}

// The defaults of Config.
const (
	DefaultConnectTimeout = 3 * time.Second
	DefaultIdleTimeout    = 30 * time.Second
	DefaultMaxIdle        = 4096
	DefaultMaxBody        = 64 << 10
)

// Config describes the one server a client talks to.
type Config struct {
	// BaseURL is scheme, host, optional port and path prefix. Required.
	BaseURL string
	// Header is sent with every request (authorization, content type).
	Header []Field
	// ConnectTimeout bounds dial and TLS handshake, beside the call's deadline. Defaults to 3 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept; shorter than the
	// server's own, or calls meet connections that just closed. Defaults to 30 s.
	IdleTimeout time.Duration
	// MaxIdle bounds the connections kept. Defaults to 4096, so that thousands of
	// calls in flight do not dial anew.
	MaxIdle int
	// MaxBody bounds the body of an answer in bytes; a longer one is no answer. Defaults to 64 KiB.
	MaxBody int
	// TLS is used for https; nil means the system's roots.
	TLS *tls.Config
}

// WithDefaults returns a copy with what was left zero set to its default.
func (c Config) WithDefaults() Config {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, DefaultConnectTimeout)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.MaxIdle = cmp.Or(c.MaxIdle, DefaultMaxIdle)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	return c
}

// Validate reports what is wrong, one sentence per rule.
func (c Config) Validate() error {
	base, err := url.Parse(c.BaseURL)
	if err != nil {
		return fmt.Errorf("parse base URL: %w", err)
	}
	switch {
	case base.Scheme != "http" && base.Scheme != "https":
		return errors.New("the scheme of BaseURL is neither http nor https: write it out")
	case base.Hostname() == "":
		return errors.New("BaseURL has no host: add it")
	case base.RawQuery != "" || base.Fragment != "" || base.User != nil:
		return errors.New("BaseURL carries a query, a fragment or credentials: remove them (credentials go into Header)")
	case c.ConnectTimeout < 0 || c.IdleTimeout < 0 || c.MaxIdle < 0 || c.MaxBody < 0:
		return errors.New("a timeout or limit is negative: use 0 for the default")
	}
	for _, f := range c.Header {
		if !f.valid() {
			return fmt.Errorf("header %q holds a byte that is not allowed: remove it", f.Name)
		}
	}
	return nil
}

// Client sends requests to one server. It is safe for concurrent use and starts
// no goroutines.
type Client struct {
	config  Config
	address string
	tls     *tls.Config
	dialer  net.Dialer
	head    []byte // the header lines every request carries
	prefix  string
	idle    idlePool
}

// NewClient makes a client; it does not connect.
func NewClient(config Config) (*Client, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	base, err := url.Parse(config.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("parse base URL: %w", err)
	}
	c := &Client{
		config:  config,
		address: net.JoinHostPort(base.Hostname(), cmp.Or(base.Port(), map[string]string{"http": "80", "https": "443"}[base.Scheme])),
		dialer:  net.Dialer{Timeout: config.ConnectTimeout},
		prefix:  base.EscapedPath(),
		head:    appendFields([]byte("Host: "+base.Host+"\r\n"), config.Header),
		idle:    idlePool{max: config.MaxIdle, timeout: config.IdleTimeout},
	}
	if base.Scheme == "https" {
		c.tls = clientTLS(config.TLS, base.Hostname())
	}
	return c, nil
}

func clientTLS(config *tls.Config, host string) *tls.Config {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	config.ServerName = cmp.Or(config.ServerName, host)
	config.NextProtos = []string{"http/1.1"} // HTTP/2 would bring retries and shared connections back
	return config
}

// Close closes the idle connections. Calls under way finish, and close theirs.
func (c *Client) Close() { c.idle.close() }

var (
	errNoDeadline  = errors.New("the call has no deadline")
	errLate        = errors.New("the deadline passed before the request was written")
	errBadRequest  = errors.New("the request holds a byte that is not allowed")
	errUnsolicited = errors.New("the server sent something nobody asked for")
)

// Do sends one request and reads its answer, both before the context's
// deadline, which is required. It puts at most one request on the wire (G1).
func (c *Client) Do(ctx context.Context, r Request) Response {
	deadline, ok := ctx.Deadline()
	if !ok {
		return Response{Fate: NotSent, Err: errNoDeadline}
	}
	if !r.valid() {
		return Response{Fate: NotSent, Err: errBadRequest}
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return Response{Fate: NotSent, Err: err}
	}
	conn.out = c.encode(conn.out[:0], r)
	return c.exchange(ctx, conn, deadline)
}

// exchange runs one request on one connection and decides what becomes of the connection.
func (c *Client) exchange(ctx context.Context, conn *conn, deadline time.Time) Response {
	stop := context.AfterFunc(ctx, conn.interrupt)
	fate, err := conn.send(deadline)
	if err != nil {
		stop()
		conn.reset()
		return Response{Fate: fate, Err: cmp.Or(ctx.Err(), err)}
	}
	response, reusable := conn.receive(c.config.MaxBody)
	if !stop() || !reusable {
		// A late answer must meet nobody, and buffered bytes must not be delivered later.
		conn.reset()
	} else {
		c.idle.put(conn)
	}
	if response.Fate != Answered {
		response.Err = cmp.Or(ctx.Err(), response.Err)
	}
	return response
}

// connect takes an idle connection that is still alive, or dials. Nothing of a
// request was written when it fails.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		conn := c.idle.take()
		if conn == nil {
			return c.dial(ctx)
		}
		if conn.alive() {
			return conn, nil
		}
		conn.reset()
	}
}

func (c *Client) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.ConnectTimeout)
	defer cancel()
	raw, err := c.dialer.DialContext(ctx, "tcp", c.address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("dial: not a TCP connection"), raw.Close())
	}
	if c.tls == nil {
		return newConn(tcp, tcp)
	}
	secure := tls.Client(tcp, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = tcp.Close() // the handshake has closed it mostly
		return nil, fmt.Errorf("shake hands: %w", err)
	}
	return newConn(tcp, secure)
}
