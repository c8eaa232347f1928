package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

// connSet knows every open connection, so that closing the client ends the
// library's connection goroutines now and not after their current long poll.
type connSet struct {
	dialer func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[*trackedConn]struct{}
}

func newConnSet(dialer func(ctx context.Context, network, address string) (net.Conn, error)) *connSet {
	return &connSet{dialer: dialer, open: make(map[*trackedConn]struct{})}
}

type trackedConn struct {
	net.Conn

	set *connSet
}

// Close closes the connection and forgets it.
func (c *trackedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.open, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}

func (s *connSet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.dialer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t := &trackedConn{Conn: conn, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	s.open[t] = struct{}{}
	return t, nil
}

func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.open {
		_ = c.Conn.Close()
	}
	clear(s.open)
}

// isHangUp reports a connection that the other side closed.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}
