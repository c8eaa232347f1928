package torture

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// get asks the server through the proxy, on a connection of its own.
func get(t *testing.T, p *proxy) error {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.address(), http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.ReadAll(response.Body)
	return err
}

// What is cut is cut for connections that are open too, and mended afterwards.
func TestProxy_CutsAndMends(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here") }))
	defer server.Close()
	p, err := newProxy(t.Context(), server.Listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, get(t, p))
	open, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", p.address())
	require.NoError(t, err)
	defer open.Close()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.conns) >= 2
	}, time.Minute, time.Millisecond)
	p.sever()
	_, err = open.Read(make([]byte, 1))
	require.Error(t, err)
	require.Error(t, get(t, p))
	p.mend()
	require.NoError(t, get(t, p))
	p.delayBy(50 * time.Millisecond)
	begun := time.Now()
	require.NoError(t, get(t, p))
	require.GreaterOrEqual(t, time.Since(begun), 100*time.Millisecond) // there and back
	require.NoError(t, p.close())
}
