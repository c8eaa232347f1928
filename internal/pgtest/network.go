package pgtest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Via returns a dsn that leads to the same database over a network of the test's own: for each
// connection pass is called once, with both ends, and passes on what it wants to. Both are closed when
// it returns, and when the test ends.
func Via(t *testing.T, dsn string, pass func(client, server net.Conn)) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{listener: listener, server: u.Host, pass: pass}
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	n.all.Go(n.accept)
	t.Cleanup(n.close)
	return u.String()
}

// network is what Via leads over.
type network struct {
	listener net.Listener
	server   string
	pass     func(client, server net.Conn)

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", n.server)
		if err != nil {
			_ = client.Close()
			return
		}
		n.mu.Lock()
		n.conns = append(n.conns, client, server)
		n.mu.Unlock()
		n.all.Go(func() {
			n.pass(client, server)
			_, _ = client.Close(), server.Close()
		})
	}
}

func (n *network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.mu.Unlock()
	n.all.Wait()
}
