package childproc_test

import (
	"net"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/childproc"
)

// A port that was handed out is its server's alone, which may come and go; whoever else looks for one
// finds it taken all the while.
func TestFreePortIsKept(t *testing.T) {
	t.Parallel()
	port, err := childproc.FreePort(t.Context())
	require.NoError(t, err)
	taken := func() {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, syscall.Close(fd)) }()
		require.ErrorIs(t, syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}), syscall.EADDRINUSE)
	}
	for range 3 {
		taken()
		server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		require.NoError(t, err)
		taken()
		client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Addr().String())
		require.NoError(t, err)
		there, err := server.Accept()
		require.NoError(t, err)
		require.NoError(t, there.Close()) // first, so that the server's side lingers
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	}
}
