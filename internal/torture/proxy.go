package torture

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// proxy is a stretch of network between two parts, which can be cut or slow.
type proxy struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	cut   bool
	delay time.Duration
	ended bool
}

// newProxy starts a proxy to the address; call close.
func newProxy(ctx context.Context, target string) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	p := &proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	const dialTimeout = 2 * time.Second
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client) })
	both.Go(func() { p.pump(client, server) })
	both.Wait()
}

// pump copies until either side ends, and then ends both.
func (p *proxy) pump(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if d := p.slow(); d > 0 && n > 0 {
			pause(context.Background(), d) // as the network does, whoever waits
		}
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			p.drop(to)
			p.drop(from)
			return
		}
	}
}

func (p *proxy) slow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// keep remembers a connection; while the network is cut none is let in.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.ended {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// sever resets all connections, and lets no new one in until mend.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	p.resetAll()
}

func (p *proxy) resetAll() {
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
	clear(p.conns)
}

// delayBy makes every piece of data so much later.
func (p *proxy) delayBy(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// mend makes the network whole.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay = false, 0
}

func (p *proxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.ended = true
	p.resetAll()
	p.mu.Unlock()
	p.all.Wait()
	return err
}
