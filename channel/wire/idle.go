package wire

import (
	"sync"
	"time"
)

// idlePool keeps connections between calls, newest first, so that few are warm
// when there is little to do. It has no goroutine: old ones are dropped in passing.
type idlePool struct {
	max     int
	timeout time.Duration

	mu     sync.Mutex
	conns  []*conn // oldest first
	swept  time.Time
	closed bool
}

// take returns the connection used last, or nil. If that one is too old, all are.
func (p *idlePool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.conns) - 1
	if last < 0 {
		return nil
	}
	if now := time.Now(); now.Sub(p.conns[last].idleSince) > p.timeout {
		p.sweep(now)
		return nil
	}
	conn := p.conns[last]
	p.conns[last] = nil
	p.conns = p.conns[:last]
	return conn
}

// put keeps a connection for the next call.
func (p *idlePool) put(c *conn) {
	now := time.Now()
	c.idleSince = now
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= p.max {
		c.reset()
		return
	}
	p.conns = append(p.conns, c)
	if now.Sub(p.swept) > p.timeout/4 {
		p.swept = now
		p.sweep(now)
	}
}

// sweep drops the connections that were idle for too long; the oldest are first.
func (p *idlePool) sweep(now time.Time) {
	old := 0
	for old < len(p.conns) && now.Sub(p.conns[old].idleSince) > p.timeout {
		p.conns[old].reset()
		old++
	}
	rest := copy(p.conns, p.conns[old:])
	clear(p.conns[rest:])
	p.conns = p.conns[:rest]
}

func (p *idlePool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.conns {
		c.reset()
	}
	p.conns = nil
}
