package e2e_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// front is the door of the provider: it can be shut and opened again at the same
// address, and it writes down who came when.
type front struct {
	t       testing.TB
	handler http.Handler
	addr    string

	mu     sync.Mutex
	server *http.Server
	calls  []call
}

// call is one request to the provider.
type call struct {
	method string
	key    uuid.UUID
	at     time.Time
	trace  string // its traceparent
}

func startFront(t testing.TB, handler http.Handler) *front {
	t.Helper()
	f := &front{t: t, handler: handler, addr: "127.0.0.1:0"}
	f.up()
	t.Cleanup(f.down)
	return f
}

// ServeHTTP notes the call and hands it through.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := call{method: r.Method, at: time.Now(), trace: r.Header.Get("Traceparent")}
	text := r.Header.Get(sim.KeyHeader)
	if r.Method == http.MethodGet {
		text = path.Base(r.URL.Path)
	}
	c.key, _ = uuid.Parse(text)
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	f.handler.ServeHTTP(w, r)
}

func (f *front) up() {
	f.t.Helper()
	var listener net.Listener
	require.Eventually(f.t, func() bool {
		var err error
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", f.addr)
		return err == nil
	}, waitFor, tick, "listen on %s again", f.addr)
	server := &http.Server{Handler: f, ReadHeaderTimeout: waitLong}
	f.mu.Lock()
	f.addr, f.server = listener.Addr().String(), server
	f.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// down refuses connections and cuts those that are there.
func (f *front) down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.server.Close()
}

// submits and queries are the calls about a command's first attempt.
func (f *front) submits(c payment.Command) []call { return f.about(http.MethodPost, c) }
func (f *front) queries(c payment.Command) []call { return f.about(http.MethodGet, c) }

func (f *front) about(method string, c payment.Command) []call {
	key := c.Identity().ProviderKey(1)
	return slices.DeleteFunc(f.all(method), func(c call) bool { return c.key != key })
}

func (f *front) all(method string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.method != method })
}

// busiest is the most calls within any window of the length.
func busiest(calls []call, window time.Duration) int {
	most := 0
	for first, last := 0, 0; last < len(calls); last++ {
		for calls[last].at.Sub(calls[first].at) > window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// hands is an adapter whose calls the test can hold and answer itself, like a
// worker that was stopped in the middle.
type hands struct {
	channel.Adapter

	submit func(context.Context, channel.Request) (payment.Answer, bool)
	query  func(context.Context, channel.Lookup) (payment.Answer, bool)
}

// Submit asks the test first.
func (h *hands) Submit(ctx context.Context, r channel.Request) payment.Answer {
	if h.submit != nil {
		if answer, taken := h.submit(ctx, r); taken {
			return answer
		}
	}
	return h.Adapter.Submit(ctx, r)
}

// Query asks the test first.
func (h *hands) Query(ctx context.Context, l channel.Lookup) payment.Answer {
	if h.query != nil {
		if answer, taken := h.query(ctx, l); taken {
			return answer
		}
	}
	return h.Adapter.Query(ctx, l)
}

// heldSubmit holds the first submit of an order: it makes the call first where
// forward is set, closes stopped, and answers when goOn is closed.
type heldSubmit struct {
	order         string
	forward       func(context.Context, channel.Request) payment.Answer
	late          payment.Answer
	stopped, goOn chan struct{}
	taken         atomic.Bool
}

func holdSubmit(order string, late payment.Answer) *heldSubmit {
	return &heldSubmit{order: order, late: late, stopped: make(chan struct{}), goOn: make(chan struct{})}
}

// take is a hands' submit.
func (h *heldSubmit) take(ctx context.Context, r channel.Request) (payment.Answer, bool) {
	if r.OrderID != h.order || h.taken.Swap(true) {
		return payment.Answer{}, false
	}
	answer := h.late
	if h.forward != nil {
		answer.Reference = h.forward(ctx, r).Reference
	}
	close(h.stopped)
	<-h.goOn
	return answer, true
}

// await waits for a channel that must be closed.
func await(t testing.TB, closed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(waitFor):
		require.Fail(t, what)
	}
}

// warm sends commands until one was settled: the first claims of a fresh process
// may be slower than their leases allow.
func (s *stack) warm() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		s.send(command())
		return s.sim.Summary().Charges > 0
	}, waitLong, 200*time.Millisecond, "nothing is settled")
}

// handled puts the hands over the adapter of every role that starts.
func handled(h *hands) option {
	return func(s *settings) {
		s.wrap = func(a channel.Adapter) channel.Adapter {
			return &hands{Adapter: a, submit: h.submit, query: h.query}
		}
	}
}

// proxy stands between the roles and Postgres.
type proxy struct {
	listener net.Listener
	server   string
	refusing atomic.Bool
	refused  atomic.Int64
	all      sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	hung  chan struct{} // nil: bytes pass
}

// startProxy returns a proxy to the server of dsn, and a dsn that goes through it.
func startProxy(t testing.TB, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, server: u.Host}
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	p.all.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.flow()
		p.cut()
		p.all.Wait()
	})
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refusing.Load() {
			p.refused.Add(1)
			_ = client.Close()
			continue
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.all.Go(func() { p.pass(server, client) })
		p.all.Go(func() { p.pass(client, server) })
	}
}

func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		p.mu.Lock()
		hung := p.hung
		p.mu.Unlock()
		if hung != nil {
			<-hung
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// down refuses and cuts, until up.
func (p *proxy) down() {
	p.refusing.Store(true)
	p.cut()
}

func (p *proxy) up() { p.refusing.Store(false) }

// hang keeps connections open and lets nothing through, until flow.
func (p *proxy) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hung == nil {
		p.hung = make(chan struct{})
	}
}

func (p *proxy) flow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hung != nil {
		close(p.hung)
		p.hung = nil
	}
}
