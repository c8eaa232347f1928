package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// front accepts connections, serves ordinary charges on them, and hands the
// others to net/http.
type front struct {
	server   *Server
	listener net.Listener
	web      *http.Server
	handoff  *handoff
	tasks    sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	stopping bool
}

func newFront(s *Server, listener net.Listener) *front {
	return &front{
		server: s, listener: listener, conns: map[net.Conn]struct{}{},
		handoff: &handoff{addr: listener.Addr(), conns: make(chan net.Conn), closed: make(chan struct{})},
		web: &http.Server{
			Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			ErrorLog: log.New(io.Discard, "", 0), // clients that leave are everyday life here
		},
	}
}

// serve runs until the context ends and everything has stopped.
func (f *front) serve(ctx context.Context) error {
	web := make(chan error, 1)
	go func() { web <- f.web.Serve(f.handoff) }()
	f.tasks.Go(func() { f.accept(ctx) })
	<-ctx.Done()
	err := f.drain(context.WithoutCancel(ctx))
	if failure := <-web; !errors.Is(failure, http.ErrServerClosed) && !errors.Is(failure, net.ErrClosed) {
		err = errors.Join(err, failure)
	}
	return err
}

// acceptPause is how long accept waits after a failure (no more descriptors).
const acceptPause = 5 * time.Millisecond

func (f *front) accept(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			_ = f.server.wait(ctx, acceptPause)
			continue
		}
		if f.hold(conn) {
			f.tasks.Go(func() { f.attend(conn) })
		}
	}
}

// attend serves one connection until it ends or is handed on.
func (f *front) attend(conn net.Conn) {
	in := bufio.NewReaderSize(conn, 4<<10)
	handOn := f.server.express(conn, in)
	f.release(conn)
	if !handOn || !f.handoff.deliver(&handedConn{Conn: conn, in: in}) {
		_ = conn.Close()
	}
}

// hold remembers a connection, or closes it when the front is stopping.
func (f *front) hold(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		_ = conn.Close()
		return false
	}
	f.conns[conn] = struct{}{}
	return true
}

func (f *front) release(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
}

// wake ends the reads of all connections: what is under way is answered, nothing
// new is taken.
func (f *front) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopping = true
	for conn := range f.conns {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// cut closes the connections of clients that do not take their answers.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

// drain lets what is under way finish for a while, then drops it.
func (f *front) drain(ctx context.Context) error {
	err := f.listener.Close()
	f.wake()
	ended := make(chan struct{})
	go func() {
		f.tasks.Wait()
		f.handoff.stop()
		close(ended)
	}()
	if !f.ends(ctx, ended, f.server.drain) {
		f.server.halt()
		if !f.ends(ctx, ended, dropTime) {
			f.cut()
			err = errors.Join(err, f.web.Close())
		}
	}
	<-ended // every wait inside has ended by now
	if err != nil {
		return fmt.Errorf("close the sandbox channel: %w", err)
	}
	return nil
}

// ends reports whether all connections ended within the time.
func (f *front) ends(ctx context.Context, ended <-chan struct{}, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-ended:
		return f.web.Shutdown(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

// handoff is the listener on which net/http gets the connections that are not
// ordinary.
type handoff struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept waits for a connection that is handed on.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handoff) Close() error {
	h.stop()
	return nil
}

// Addr is the address of the listener in front.
func (h *handoff) Addr() net.Addr { return h.addr }

func (h *handoff) stop() { h.once.Do(func() { close(h.closed) }) }

// deliver hands a connection on; false when nobody takes it any more.
func (h *handoff) deliver(conn net.Conn) bool {
	select {
	case h.conns <- conn:
		return true
	case <-h.closed:
		return false
	}
}

// handedConn is a connection of which something was read ahead.
type handedConn struct {
	net.Conn

	in *bufio.Reader
}

// Read returns what was read ahead first.
func (c *handedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// SetLinger is that of the TCP connection.
func (c *handedConn) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.SetLinger(seconds)
	}
	return nil
}
