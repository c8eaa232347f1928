package history_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// lossy is a network to the database on which an answer is lost now and then, and
// the connection with it: the server did what it was asked, and nobody hears of it.
type lossy struct {
	listener net.Listener
	server   string
	// oneIn is how many answers there are for each that is lost; 0 loses none.
	oneIn atomic.Int64
	lost  atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

// newLossy returns a network to the server of dsn, and the dsn that goes over it.
func newLossy(t *testing.T, dsn string) (*lossy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &lossy{listener: listener, server: u.Host}
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	n.all.Go(n.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		n.mu.Lock()
		for _, c := range n.conns {
			_ = c.Close()
		}
		n.mu.Unlock()
		n.all.Wait()
	})
	return n, u.String()
}

func (n *lossy) accept() {
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
			_, _ = io.Copy(server, client)
			_, _ = client.Close(), server.Close()
		})
		n.all.Go(func() {
			n.answers(client, server)
			_, _ = client.Close(), server.Close()
		})
	}
}

// answers passes on what the server says, until it loses some of it.
func (n *lossy) answers(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		size, err := server.Read(buffer)
		if err != nil {
			return
		}
		if oneIn := n.oneIn.Load(); oneIn > 0 && rand.Int64N(oneIn) == 0 {
			n.lost.Add(1)
			return
		}
		if _, err := client.Write(buffer[:size]); err != nil {
			return
		}
	}
}
