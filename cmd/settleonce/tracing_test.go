package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
)

// collector keeps what an OTLP/HTTP exporter sends.
type collector struct {
	mu    sync.Mutex
	spans strings.Builder
}

// ServeHTTP takes one export.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans.Write(body)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (c *collector) got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans.String()
}

// One setting has every role export its spans; what is left is exported at the end.
func TestTracingEndpoint(t *testing.T) {
	t.Parallel()
	c := &collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	s := startServices(t, embeddedKafka(t))
	env := append([]string{
		"USER=ada", "SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "SETTLEONCE_GATEWAY_LISTEN=127.0.0.1:0",
		"SETTLEONCE_GATEWAY_DRAIN_DELAY=0s", "SETTLEONCE_TRACING_SERVICE_NAME=till",
	}, s.env...)
	requireOK(t, runCommand(t, env, "migrate"))
	requireOK(t, runCommand(t, env, "topics", "ensure"))
	key := jsonOf[callers.Issued](t, env, "callers", "add", "shop")
	worker := start(t, env, "all", "--tracing-endpoint", server.URL)
	gateway := start(t, env, "gateway", "--tracing-endpoint", server.URL)
	adminURL(t, gateway, env)
	url := edgeURL(t, gateway)
	client := &http.Client{Transport: &http.Transport{}}
	status, body := submit(t, client, url, key.Bearer)
	require.Equal(t, http.StatusOK, status, body)
	lost := publishOne(t, env, "--order", "order-2", "--amount", "2999", "--metadata", "sim=lost_answer@1")
	require.Eventually(t, func() bool {
		found := statusOf(t, env, lost.Key.String())
		return len(found) == 1 && found[0]["state"] == "succeeded"
	}, patience, 200*time.Millisecond)
	client.CloseIdleConnections()
	require.Zero(t, gateway.stop(t), gateway.stderr)
	require.Zero(t, worker.stop(t), worker.stderr)
	require.Contains(t, worker.stderr.String(), `"trace_id":"`)
	for _, part := range []string{
		"till", "POST /v1/payments", ".payment.commands", "claim payments", "submit sim", "finalize payments", "query sim",
		".payment.events", ".payment.requery.1s",
	} {
		require.Contains(t, c.got(), part)
	}
}
