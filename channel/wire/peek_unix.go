//go:build unix

package wire

import (
	"errors"
	"syscall"
)

// peeker looks whether a connection has something to read, without waiting and
// without allocating.
type peeker struct {
	look  func(fd uintptr) bool
	quiet *bool
}

func newPeeker() peeker {
	var buf [1]byte
	quiet := new(bool)
	return peeker{quiet: quiet, look: func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), buf[:]) // sockets of net do not block
		*quiet = errors.Is(err, syscall.EAGAIN)
		return true
	}}
}

// silent reports that nothing can be read: no byte, no end, no error.
func (p peeker) silent(raw syscall.RawConn) bool {
	*p.quiet = false
	return raw.Read(p.look) == nil && *p.quiet
}
