package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// The API keys that the suite breaks or counts.
const (
	apiProduce      = 0
	apiFetch        = 1
	apiCommit       = 8
	apiInitProducer = 22
)

var errBroken = errors.New("connection broken by the test")

// Faults breaks real connections to a real broker: the request arrives and is
// executed, the answer is lost. It also counts requests.
type Faults struct {
	mu     sync.Mutex
	lose   map[int16]int
	refuse map[int16]int
	counts [128]atomic.Int64
}

// Lose loses the answers of the next n requests of a kind; the broker has
// executed them.
func (f *Faults) Lose(api int16, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lose == nil {
		f.lose = make(map[int16]int)
	}
	f.lose[api] = n
}

// Refuse breaks the connection before the next n requests of a kind leave.
func (f *Faults) Refuse(api int16, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse == nil {
		f.refuse = make(map[int16]int)
	}
	f.refuse[api] = n
}

// Count is how many requests of a kind were sent.
func (f *Faults) Count(api int16) int64 { return f.counts[api].Load() }

// Left is how many armed losses of a kind have not happened.
func (f *Faults) Left(api int16) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lose[api] + f.refuse[api]
}

func (f *Faults) judge(api int16) (lose, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse[api] > 0 {
		f.refuse[api]--
		return false, true
	}
	if f.lose[api] > 0 {
		f.lose[api]--
		return true, false
	}
	return false, false
}

// Dial opens a connection that the faults act on.
func (f *Faults) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: conn, faults: f}, nil
}

// faultyConn follows the requests on a connection: each is a 4-byte length, then
// the 2-byte API key. One request is under way at a time.
type faultyConn struct {
	net.Conn

	faults *Faults
	left   int // bytes of the current request still to be written
	losing atomic.Bool
}

func (c *faultyConn) Write(b []byte) (int, error) {
	if c.left == 0 && len(b) >= 6 {
		c.left = int(binary.BigEndian.Uint32(b)) + 4
		api := int16(binary.BigEndian.Uint16(b[4:])) //nolint:gosec // an int16 on the wire
		c.faults.counts[api].Add(1)
		lose, refuse := c.faults.judge(api)
		if refuse {
			_ = c.Conn.Close()
			return 0, errBroken
		}
		c.losing.Store(lose)
	}
	n, err := c.Conn.Write(b)
	c.left = max(c.left-n, 0)
	return n, err
}

// Read loses an answer by waiting for its first bytes, so that the request has
// been executed, and breaking the connection then.
func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.losing.Load() {
		_ = c.Conn.Close()
		return 0, errBroken
	}
	return n, err
}
