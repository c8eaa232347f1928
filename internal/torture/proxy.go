package torture

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
)

// proxy is a stretch of network between two parts, which can be cut, silent or
// slow. One that knows the protocol also loses single messages.
type proxy struct {
	// talk makes what passes the messages of one connection on.
	talk func() dialogue
	all  sync.WaitGroup

	mu     sync.Mutex
	routes map[string]net.Listener // by the address they lead to
	conns  map[net.Conn]struct{}
	cut    bool
	silent bool
	delay  time.Duration
	ended  bool
}

// dialogue passes the messages of one connection on, one at each call: up those of
// the client, down those of the server. errLost says that the message is lost, and
// the connection with it.
type dialogue interface {
	up(from *bufio.Reader, to *bufio.Writer) error
	down(from *bufio.Reader, to *bufio.Writer) error
}

// errLost ends a connection by a reset.
var errLost = errors.New("lost on the way")

// newProxy starts a proxy to the address that understands nothing; call close.
func newProxy(ctx context.Context, target string) (*proxy, error) {
	p := newTalkingProxy(func() dialogue { return bytesOnly{} })
	_, err := p.via(ctx, target)
	return p, err
}

func newTalkingProxy(talk func() dialogue) *proxy {
	return &proxy{talk: talk, routes: map[string]net.Listener{}, conns: map[net.Conn]struct{}{}}
}

// via is the proxy's own address that leads to the target.
func (p *proxy) via(ctx context.Context, target string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.routes[target]; ok {
		return known.Addr().String(), nil
	}
	if p.ended {
		return "", net.ErrClosed
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for a proxy: %w", err)
	}
	p.routes[target] = listener
	p.all.Go(func() { p.accept(listener, target) })
	return listener.Addr().String(), nil
}

// address is the proxy's own, where it leads to one target.
func (p *proxy) address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, listener := range p.routes {
		return listener.Addr().String()
	}
	return ""
}

func (p *proxy) accept(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.serve(client, target) })
	}
}

func (p *proxy) serve(client net.Conn, target string) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	const dialTimeout = 20 * time.Second
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", target)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	d := p.talk()
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, d.up) })
	both.Go(func() { p.pump(client, server, d.down) })
	both.Wait()
}

const pieceSize = 64 << 10

// pump passes messages on until either side ends, and then ends both.
func (p *proxy) pump(to, from net.Conn, pass func(*bufio.Reader, *bufio.Writer) error) {
	reader, writer := bufio.NewReaderSize(slowly{p, from}, pieceSize), bufio.NewWriterSize(to, pieceSize)
	for {
		err := pass(reader, writer)
		if err == nil && reader.Buffered() == 0 {
			err = writer.Flush()
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errLost):
			reset(to)
			reset(from)
		default:
			_ = writer.Flush() // what came before the end; nobody may be there
		}
		p.drop(to)
		p.drop(from)
		return
	}
}

// slowly reads pieces of data as late as the network brings them, whoever waits.
type slowly struct {
	proxy *proxy
	conn  net.Conn
}

// Read implements io.Reader.
func (s slowly) Read(b []byte) (int, error) {
	n, err := s.conn.Read(b)
	if n > 0 {
		fleet.Pause(context.Background(), s.proxy.slow())
		for s.proxy.isSilent() {
			fleet.Pause(context.Background(), 10*time.Millisecond)
		}
	}
	return n, err
}

func (p *proxy) slow() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

func (p *proxy) isSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.silent && !p.ended
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

// silence lets nothing through until mend, and tells nobody: as a cable that is
// pulled.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

func (p *proxy) resetAll() {
	for c := range p.conns {
		reset(c)
	}
	clear(p.conns)
}

// reset breaks a connection off, so that what is on the way is lost.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
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
	p.cut, p.silent, p.delay = false, false, 0
}

func (p *proxy) close() error {
	p.mu.Lock()
	p.ended = true
	var err error
	for _, listener := range p.routes {
		err = errors.Join(err, listener.Close())
	}
	p.resetAll()
	p.mu.Unlock()
	p.all.Wait()
	return err
}

// bytesOnly is a dialogue without messages.
type bytesOnly struct{}

func (bytesOnly) up(from *bufio.Reader, to *bufio.Writer) error   { return passOn(from, to) }
func (bytesOnly) down(from *bufio.Reader, to *bufio.Writer) error { return passOn(from, to) }

// passOn copies what is there, and waits for it if it must.
func passOn(from *bufio.Reader, to *bufio.Writer) error {
	if _, err := from.Peek(1); err != nil {
		return err
	}
	_, err := io.CopyN(to, from, int64(from.Buffered()))
	return err
}
