package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

const (
	readBuffer   = 4 << 10
	maxHeader    = 16 << 10 // of one answer; net/http's parser has no limit of its own
	maxInterims  = 4        // 1xx answers before the real one
	writeBufCap  = 1 << 10
	keepWriteBuf = 64 << 10 // a bigger buffer is not kept for the next request
)

// conn is one connection, used by one call at a time.
type conn struct {
	tcp  *net.TCPConn
	raw  syscall.RawConn
	net  net.Conn // tcp, or TLS over it
	in   *bufio.Reader
	out  []byte
	peek peeker
	// allowance is how many more bytes of the current answer are read.
	allowance int
	idleSince time.Time
}

func newConn(tcp *net.TCPConn, over net.Conn) (*conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open raw connection: %w", err), tcp.Close())
	}
	c := &conn{tcp: tcp, raw: raw, net: over, out: make([]byte, 0, writeBufCap)}
	c.in = bufio.NewReaderSize(c, readBuffer)
	c.peek = newPeeker()
	return c, nil
}

// Read feeds the parser, no more than the allowance.
func (c *conn) Read(p []byte) (int, error) {
	if c.allowance <= 0 {
		return 0, errors.New("the answer is too long")
	}
	n, err := c.net.Read(p[:min(len(p), c.allowance)])
	c.allowance -= n
	return n, err
}

// send writes the request in one Write. It is not sent for sure only when the
// deadline had passed before, or a plain connection took no byte of it; what TLS
// had passed on is not known.
func (c *conn) send(deadline time.Time) (Fate, error) {
	if !time.Now().Before(deadline) { // a worker that was stopped wakes up here (G11)
		return NotSent, errLate
	}
	n, err := c.net.Write(c.out)
	if cap(c.out) > keepWriteBuf {
		c.out = nil
	}
	switch {
	case err == nil:
		return Answered, nil
	case n == 0 && c.net == net.Conn(c.tcp):
		return NotSent, fmt.Errorf("write request: %w", err)
	default:
		return NoAnswer, fmt.Errorf("write request: %w", err)
	}
}

// receive reads one answer and reports whether the connection may carry another request.
func (c *conn) receive(maxBody int) (Response, bool) {
	c.allowance = maxHeader + maxBody
	answer, err := c.readHeader() //nolint:bodyclose // read to its end below; it ends with the connection otherwise
	if err != nil {
		return Response{Err: fmt.Errorf("read answer: %w", err)}, false
	}
	body, err := readBody(answer, maxBody)
	if err != nil {
		return Response{Err: fmt.Errorf("read body of answer: %w", err)}, false
	}
	reusable := !answer.Close && c.in.Buffered() == 0
	return Response{Fate: Answered, Status: answer.StatusCode, Header: answer.Header, Body: body}, reusable
}

func (c *conn) readHeader() (*http.Response, error) {
	for range maxInterims {
		answer, err := http.ReadResponse(c.in, nil)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode >= http.StatusOK {
			return answer, nil
		}
	}
	return nil, errUnsolicited
}

func readBody(answer *http.Response, limit int) ([]byte, error) {
	if answer.ContentLength > int64(limit) {
		return nil, fmt.Errorf("%d bytes are too many", answer.ContentLength)
	}
	if answer.ContentLength >= 0 {
		body := make([]byte, answer.ContentLength)
		_, err := io.ReadFull(answer.Body, body)
		return body, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, int64(limit)+1))
	if err == nil && len(body) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	return body, err
}

// alive reports whether an idle connection may carry a request: nothing came in
// meanwhile, neither an end nor an answer nobody asked for, which the next
// caller would take for its own.
func (c *conn) alive() bool { return c.peek.silent(c.raw) }

// interrupt makes the call under way return; the connection is of no use afterwards.
func (c *conn) interrupt() { _ = c.net.SetDeadline(time.Unix(1, 0)) }

// reset closes the connection at once: bytes still in the send buffer are
// dropped, not delivered after the deadline.
func (c *conn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}
