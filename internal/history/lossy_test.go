package history_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/settleonce/settleonce/internal/pgtest"
)

// lossy is a network to the database on which an answer is lost now and then, and
// the connection with it: the server did what it was asked, and nobody hears of it.
type lossy struct {
	// oneIn is how many answers there are for each that is lost; 0 loses none.
	oneIn atomic.Int64
	lost  atomic.Int64
}

// newLossy returns a network to the server of dsn, and the dsn that goes over it.
func newLossy(t *testing.T, dsn string) (*lossy, string) {
	t.Helper()
	n := &lossy{}
	return n, pgtest.Via(t, dsn, func(client, server net.Conn) {
		var asks sync.WaitGroup
		asks.Go(func() {
			_, _ = io.Copy(server, client)
			_, _ = client.Close(), server.Close()
		})
		n.answers(client, server)
		_, _ = client.Close(), server.Close()
		asks.Wait()
	})
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
