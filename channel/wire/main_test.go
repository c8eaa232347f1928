package wire_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/wire"
	"github.com/settleonce/settleonce/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	// timeout is for what comes: nothing is timed by it. brief is for what does not.
	timeout = 2 * time.Minute
	brief   = 100 * time.Millisecond
)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// peer is a server that is scripted down to the bytes.
type peer struct {
	t        testing.TB
	listener net.Listener
	client   *wire.Client

	mu       sync.Mutex
	requests int
	conns    int
}

// serve starts a peer that hands each connection to script; the connection is
// closed when script returns.
func serve(t testing.TB, script func(c *peerConn)) *peer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &peer{t: t, listener: listener}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns++
			p.mu.Unlock()
			wg.Go(func() {
				defer func() { _ = raw.Close() }()
				script(&peerConn{Conn: raw, in: bufio.NewReader(raw), peer: p})
			})
		}
	})
	p.client = newClient(t, "http://"+listener.Addr().String())
	t.Cleanup(func() {
		p.client.Close()
		require.NoError(t, listener.Close())
		wg.Wait()
	})
	return p
}

func newClient(t testing.TB, url string) *wire.Client {
	t.Helper()
	client, err := wire.NewClient(wire.Config{BaseURL: url, ConnectTimeout: timeout, IdleTimeout: time.Hour})
	require.NoError(t, err)
	return client
}

// peerConn is one connection as the peer sees it.
type peerConn struct {
	net.Conn

	in   *bufio.Reader
	peer *peer
}

// request reads one request and counts it; nil when the client has left.
func (c *peerConn) request() *http.Request {
	r, err := http.ReadRequest(c.in)
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, r.Body)
	c.peer.mu.Lock()
	c.peer.requests++
	c.peer.mu.Unlock()
	return r
}

func (c *peerConn) say(text string) { _, _ = io.WriteString(c.Conn, text) }

func (c *peerConn) resetOnClose() {
	if tcp, isTCP := c.Conn.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(0)
	}
}

// closeSurely closes the connection, and returns when the client's side of it has heard.
func (c *peerConn) closeSurely() {
	if tcp, isTCP := c.Conn.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(int(timeout / time.Second))
	}
	_ = c.Close()
}

func (p *peer) counts() (requests, conns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests, p.conns
}

func (p *peer) post(within time.Duration) wire.Response {
	p.t.Helper()
	return post(p.client, within)
}

func post(client *wire.Client, within time.Duration) wire.Response {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return client.Do(ctx, wire.Request{
		Method: http.MethodPost, Target: "/charge", Body: []byte("body"),
		Header: []wire.Field{{Name: "Idempotency-Key", Value: "k"}},
	})
}

// answering answers every request with the text.
func answering(text string) func(c *peerConn) {
	return func(c *peerConn) {
		for c.request() != nil {
			c.say(text)
		}
	}
}
