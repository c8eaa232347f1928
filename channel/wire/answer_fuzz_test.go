package wire

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// served is a connection on which a provider has answered already.
type served struct {
	net.Conn

	bytes.Reader
}

// Read reads what the provider sent.
func (s *served) Read(p []byte) (int, error) { return s.Reader.Read(p) }

// FuzzAnswer: whatever a provider sends is a whole answer within the limit, or
// none; a connection on which more came than was asked for is not used again.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
		"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{\"status\":\"settl",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
		strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 5),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"HTTP/1.0 200 OK\r\n\r\nuntil the end", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 429 \r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "HTTP/1.1 101 Switching Protocols\r\n\r\n", "\x16\x03\x01",
	} {
		f.Add([]byte(seed))
	}
	const limit = 1 << 10
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := &conn{net: &served{Reader: *bytes.NewReader(sent)}}
		c.in = bufio.NewReaderSize(c, readBuffer)
		response, reusable := c.receive(limit)
		require.GreaterOrEqual(t, c.allowance, 0)
		if response.Fate != Answered {
			require.Equal(t, NoAnswer, response.Fate, "a byte of the request has left")
			require.Error(t, response.Err)
			require.False(t, reusable)
			return
		}
		require.NoError(t, response.Err)
		require.GreaterOrEqual(t, response.Status, http.StatusOK)
		require.LessOrEqual(t, len(response.Body), limit)
		if reusable {
			require.Zero(t, c.in.Buffered())
		}
	})
}
