package wire_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/wire"
)

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	body := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body <- string(text)
		seen <- r
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("short and stout"))
	}))
	defer server.Close()
	client, err := wire.NewClient(wire.Config{BaseURL: server.URL + "/base", ConnectTimeout: timeout, Header: []wire.Field{{Name: "Authorization", Value: "Bearer x"}}})
	require.NoError(t, err)
	defer client.Close()
	r := post(client, timeout)
	require.Equal(t, wire.Answered, r.Fate)
	require.Equal(t, http.StatusTeapot, r.Status)
	require.Equal(t, "short and stout", string(r.Body))
	require.Equal(t, "7", r.Header.Get("Retry-After"))
	require.NoError(t, r.Err)
	got := <-seen
	require.Equal(t, "/base/charge", got.URL.Path)
	require.Equal(t, "Bearer x", got.Header.Get("Authorization"))
	require.Equal(t, "k", got.Header.Get("Idempotency-Key"))
	require.Equal(t, "body", <-body)
	require.Equal(t, strings.TrimPrefix(server.URL, "http://"), got.Host)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	protocol := make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol <- r.Proto }))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client, err := wire.NewClient(wire.Config{BaseURL: server.URL, ConnectTimeout: timeout, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}})
	require.NoError(t, err)
	defer client.Close()
	for range 2 {
		require.Equal(t, wire.Answered, post(client, timeout).Fate)
		require.Equal(t, "HTTP/1.1", <-protocol)
	}
	stranger := newClient(t, server.URL)
	r := post(stranger, timeout)
	require.Equal(t, wire.NotSent, r.Fate, "a handshake that fails sends nothing")
	require.ErrorContains(t, r.Err, "certificate")
}

// TestConnectionsThatDie: whatever the server does to a used connection once it
// has the request, the request is on the wire once (P28, G1).
func TestConnectionsThatDie(t *testing.T) {
	t.Parallel()
	deaths := map[string]func(c *peerConn){
		"closed":               func(*peerConn) {},
		"reset":                func(c *peerConn) { c.resetOnClose() },
		"half a status line":   func(c *peerConn) { c.say("HTTP/1.1 20") },
		"half a header":        func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nContent-Le") },
		"no body":              func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") },
		"half a body":          func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf") },
		"half a chunk":         func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf") },
		"not HTTP":             func(c *peerConn) { c.say("what?\r\n\r\n") },
		"interim answers only": func(c *peerConn) { c.say(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 9)) },
		"a header without end": func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 200<<10)) },
		"a body that is long": func(c *peerConn) {
			c.say("HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + strings.Repeat("x", 65537))
		},
		"a body without length": func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 65537)) },
		"both lengths":          func(c *peerConn) { c.say("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n") },
	}
	for name, die := range deaths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, func(c *peerConn) {
				c.request()
				c.say(ok)
				if c.request() != nil {
					die(c)
				}
			})
			require.Equal(t, wire.Answered, p.post(timeout).Fate)
			r := p.post(timeout)
			require.Equal(t, wire.NoAnswer, r.Fate)
			require.Error(t, r.Err)
			requests, conns := p.counts()
			require.Equal(t, 2, requests, "requests on the wire")
			require.Equal(t, 1, conns, "the second request met a used connection")
		})
	}
}

// TestRefused: a connection that cannot be made proves that nothing was sent.
func TestRefused(t *testing.T) {
	t.Parallel()
	r := post(newClient(t, "http://127.0.0.1:1"), timeout) // a port that is given to nobody
	require.Equal(t, wire.NotSent, r.Fate)
	require.ErrorIs(t, r.Err, syscall.ECONNREFUSED)
}

// TestIdleConnectionThatWasClosed: the end is noticed before a byte is written,
// so the request goes out on a new connection, once.
func TestIdleConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{}, 8)
	p := serve(t, func(c *peerConn) {
		c.request()
		c.say(ok)
		c.closeSurely()
		closed <- struct{}{}
	})
	for n := 1; n <= 3; n++ {
		require.Equal(t, wire.Answered, p.post(timeout).Fate)
		<-closed
		requests, conns := p.counts()
		require.Equal(t, n, requests)
		require.Equal(t, n, conns)
	}
}

// TestUnsolicitedAnswer: what a server sends beside its answers is nobody's; the
// next caller must not take it for its own (G3).
func TestUnsolicitedAnswer(t *testing.T) {
	t.Parallel()
	const wrong = "HTTP/1.1 402 Payment Required\r\nContent-Length: 0\r\n\r\n"
	for _, together := range []bool{true, false} {
		read, said := make(chan struct{}, 1), make(chan struct{}, 1)
		p := serve(t, func(c *peerConn) {
			for c.request() != nil {
				if together {
					c.say(ok + wrong)
				} else {
					c.say(ok)
				}
				select {
				case <-read:
				case <-t.Context().Done():
					return
				}
				if !together {
					c.say(wrong)
				}
				said <- struct{}{}
			}
		})
		for range 3 {
			require.Equal(t, http.StatusOK, p.post(timeout).Status)
			read <- struct{}{}
			<-said
		}
	}
}

// TestDeadline: past it the call returns, the answer is unknown, and the
// connection is reset, not closed behind bytes that may still be delivered.
func TestDeadline(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	p := serve(t, func(c *peerConn) { // it never answers: the deadline is what ends the call
		if c.request() == nil {
			return
		}
		_, err := c.in.ReadByte()
		ended <- err
	})
	r := p.post(brief)
	for within := brief; r.Fate == wire.NotSent; within *= 2 { // the machine was too slow to write it in time
		r = p.post(within)
	}
	require.Equal(t, wire.NoAnswer, r.Fate)
	require.ErrorIs(t, r.Err, context.DeadlineExceeded)
	require.ErrorIs(t, <-ended, syscall.ECONNRESET)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	ended := make(chan error, 1)
	p := serve(t, func(c *peerConn) {
		c.request()
		cancel()
		_, err := c.in.ReadByte()
		ended <- err
	})
	r := p.client.Do(ctx, wire.Request{Method: http.MethodGet, Target: "/"})
	require.Equal(t, wire.NoAnswer, r.Fate)
	require.ErrorIs(t, r.Err, context.Canceled)
	require.ErrorIs(t, <-ended, syscall.ECONNRESET)
}

// TestBytesInTheSendBuffer: what the server had not taken at the deadline is
// dropped with the connection.
func TestBytesInTheSendBuffer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	resume, got := make(chan struct{}), make(chan error, 1)
	p := serve(t, func(c *peerConn) {
		_, _ = c.in.ReadByte() // it is on its way
		cancel()
		<-resume
		_, err := io.Copy(io.Discard, c.in)
		got <- err
	})
	// More than the buffers of both sockets hold.
	r := p.client.Do(ctx, wire.Request{Method: http.MethodPost, Target: "/", Body: make([]byte, 16<<20)})
	close(resume)
	require.Equal(t, wire.NoAnswer, r.Fate)
	require.ErrorIs(t, <-got, syscall.ECONNRESET)
}

func TestNothingIsSent(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(ok))
	require.Equal(t, wire.Answered, p.post(timeout).Fate, "leave a connection to send on")
	over, cancel := context.WithTimeout(context.Background(), timeout)
	cancel()
	past, cancelPast := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancelPast()
	asleep := asleepContext{context.Background()}
	good := wire.Request{Method: http.MethodGet, Target: "/"}
	for name, r := range map[string]wire.Response{
		"no deadline":         p.client.Do(context.Background(), good),
		"cancelled":           p.client.Do(over, good),
		"the deadline passed": p.client.Do(past, good),
		"P23: woken up late":  p.client.Do(asleep, good),
	} {
		require.Equal(t, wire.NotSent, r.Fate, name)
		require.Error(t, r.Err, name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, smuggled := range []wire.Request{
		{Method: "GET / HTTP/1.1\r\n\r\nPOST", Target: "/"},
		{Method: http.MethodGet, Target: "/ HTTP/1.1\r\nX: y"},
		{Method: http.MethodGet, Target: "elsewhere"},
		{Target: "/"},
		{Method: http.MethodGet, Target: "/", Header: []wire.Field{{Name: "X", Value: "y\r\n\r\nPOST / HTTP/1.1"}}},
		{Method: http.MethodGet, Target: "/", Header: []wire.Field{{Name: "X: y\r\nZ", Value: "y"}}},
		{Method: http.MethodGet, Target: "/", Header: []wire.Field{{Value: "y"}}},
	} {
		require.Equal(t, wire.NotSent, p.client.Do(ctx, smuggled).Fate, smuggled)
	}
	requests, _ := p.counts()
	require.Equal(t, 1, requests)
}

// asleepContext is that of a worker that was stopped past its deadline and runs
// on before its timers do.
type asleepContext struct{ context.Context } //nolint:containedctx // it is one

func (asleepContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func TestAnswers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text   string
		status int
		body   string
		conns  int
	}{
		"kept alive":     {ok, 200, "ok", 1},
		"chunked":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, "ok", 1},
		"interim first":  {"HTTP/1.1 103 Early Hints\r\n\r\n" + ok, 200, "ok", 1},
		"no content":     {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", 1},
		"redirect":       {"HTTP/1.1 307 Temporary Redirect\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", 307, "", 1},
		"told to close":  {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 3},
		"an old server":  {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", 3},
		"as big as ever": {"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + strings.Repeat("x", 65536), 200, strings.Repeat("x", 65536), 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, answering(tt.text))
			for range 3 {
				r := p.post(timeout)
				require.Equal(t, wire.Answered, r.Fate, r.Err)
				require.Equal(t, tt.status, r.Status)
				require.Equal(t, tt.body, string(r.Body))
			}
			requests, conns := p.counts()
			require.Equal(t, 3, requests)
			require.Equal(t, tt.conns, conns)
		})
	}
}

func TestIdlePool(t *testing.T) {
	t.Parallel()
	t.Run("keeps no more than it may", func(t *testing.T) {
		t.Parallel()
		var together sync.WaitGroup
		together.Add(4)
		p := serve(t, func(c *peerConn) {
			first := true
			for c.request() != nil {
				if first {
					together.Done()
					together.Wait()
				}
				first = false
				c.say(ok)
			}
		})
		client, err := wire.NewClient(wire.Config{BaseURL: "http://" + p.listener.Addr().String(), MaxIdle: 2, ConnectTimeout: timeout, IdleTimeout: time.Hour})
		require.NoError(t, err)
		defer client.Close()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { post(client, timeout) })
		}
		wg.Wait()
		for range 4 {
			require.Equal(t, wire.Answered, post(client, timeout).Fate)
		}
		_, conns := p.counts()
		require.Equal(t, 4, conns)
	})
	t.Run("drops what is old", func(t *testing.T) {
		t.Parallel()
		p := serve(t, answering(ok))
		client, err := wire.NewClient(wire.Config{BaseURL: "http://" + p.listener.Addr().String(), IdleTimeout: time.Nanosecond, ConnectTimeout: timeout})
		require.NoError(t, err)
		defer client.Close()
		for range 3 {
			require.Equal(t, wire.Answered, post(client, timeout).Fate)
		}
		_, conns := p.counts()
		require.Equal(t, 3, conns)
	})
	t.Run("a closed client still answers", func(t *testing.T) {
		t.Parallel()
		p := serve(t, answering(ok))
		p.client.Close()
		require.Equal(t, wire.Answered, p.post(timeout).Fate)
		require.Equal(t, wire.Answered, p.post(timeout).Fate)
		_, conns := p.counts()
		require.Equal(t, 2, conns)
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, bad := range []wire.Config{
		{},
		{BaseURL: "ftp://x"},
		{BaseURL: "http://"},
		{BaseURL: "http://u:p@x"},
		{BaseURL: "http://x?q"},
		{BaseURL: "http://x\n"},
		{BaseURL: "http://x", MaxBody: -1},
		{BaseURL: "http://x", Header: []wire.Field{{Name: "A", Value: "b\r\n"}}},
	} {
		_, err := wire.NewClient(bad)
		require.Error(t, err, bad)
	}
	require.Equal(t, 64<<10, wire.Config{}.WithDefaults().MaxBody)
}

// TestManyAtOnce: thousands of calls under cancellation and load give each
// caller its own answer.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer server.Close()
	client := newClient(t, server.URL)
	defer client.Close()
	errs := make(chan error, 64)
	for worker := range cap(errs) {
		go func() { errs <- callMany(client, worker) }()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
}

func callMany(client *wire.Client, worker int) error {
	for n := range 100 {
		target := "/" + strings.Repeat("w", worker) + "/" + strings.Repeat("n", n)
		within := timeout
		if n%10 == 9 {
			within = time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), within)
		r := client.Do(ctx, wire.Request{Method: http.MethodGet, Target: target})
		cancel()
		if r.Fate == wire.Answered && string(r.Body) != target {
			return errors.New("somebody else's answer")
		}
		if r.Fate != wire.Answered && within == timeout {
			return r.Err
		}
	}
	return nil
}
