package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/callers"
)

var edgeLine = regexp.MustCompile(`"url":"(https?://[^"]+)"`)

// edgeURL waits until a gateway has said where it listens.
func edgeURL(t *testing.T, gateway *running) string {
	t.Helper()
	var found []string
	require.Eventually(t, func() bool {
		found = edgeLine.FindStringSubmatch(gateway.stderr.String())
		return found != nil
	}, patience, 50*time.Millisecond, gateway.stderr)
	return found[1]
}

// The gateway as a role of its own, with TLS and callers of the table: a payment
// goes in, its outcome comes out; a revoked credential is refused; a signal ends it.
func TestGateway(t *testing.T) {
	t.Parallel()
	s, c := startServices(t, embeddedKafka(t)), makeCertificates(t)
	env := []string{
		"USER=ada", "SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "SETTLEONCE_GATEWAY_LISTEN=127.0.0.1:0",
		"SETTLEONCE_GATEWAY_TLS_CERT=" + c.cert, "SETTLEONCE_GATEWAY_TLS_KEY=" + c.key, "SETTLEONCE_GATEWAY_DRAIN_DELAY=0s",
	}
	env = append(env, s.env...)
	requireOK(t, runCommand(t, env, "migrate"))
	requireOK(t, runCommand(t, env, "topics", "ensure"))
	key := jsonOf[callers.Issued](t, env, "callers", "add", "shop")

	worker := start(t, env, "consumer")
	t.Cleanup(func() { require.Zero(t, worker.stop(t), worker.stderr) })
	gateway := start(t, env, "gateway")
	admin := adminURL(t, gateway, env)
	url := edgeURL(t, gateway)

	client := trusting(t, c)
	status, body := submit(t, client, url, key.Bearer)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"state":"succeeded"`)
	require.Equal(t, 1, s.sim.Summary().Charges)
	scraped(t, admin, `settleonce_edge_requests_total{route="/v1/payments",status="200"} 1`)

	requireOK(t, runCommand(t, env, "callers", "revoke", "shop", "--all"))
	require.Eventually(t, func() bool {
		status, _ := submit(t, client, url, key.Bearer)
		return status == http.StatusUnauthorized
	}, patience, 200*time.Millisecond, "a revoked key counts")
	client.CloseIdleConnections()
	require.Zero(t, gateway.stop(t), gateway.stderr)
	require.NotContains(t, gateway.stderr.String(), key.Bearer, "a credential in the log")
}

func trusting(t *testing.T, c certificates) *http.Client {
	t.Helper()
	authority, err := os.ReadFile(c.cert)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(authority))
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true,
	}}
}

// submit sends a payment, again and again while there is no verdict yet, as clients do.
func submit(t *testing.T, client *http.Client, url, token string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	payment := `{"orderId":"order-` + uuid.NewString() + `","amount":1999,"currency":"EUR","customerId":"c","paymentMethod":"tok","channel":"sim"}`
	key := uuid.NewString()
	for {
		status, body = submitOnce(ctx, t, client, url, token, key, payment)
		if status != http.StatusAccepted && status != http.StatusServiceUnavailable {
			return status, body
		}
	}
}

func submitOnce(ctx context.Context, t *testing.T, client *http.Client, url, token, key, payment string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/payments", strings.NewReader(payment))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json", "Idempotency-Key": key, "Prefer": "wait=30",
	} {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}

func TestGatewayRefusesACertificateThatIsNone(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	env := append([]string{"SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "SETTLEONCE_GATEWAY_LISTEN=127.0.0.1:0"}, s.env...)
	requireOK(t, runCommand(t, env, "migrate"))
	requireOK(t, runCommand(t, env, "topics", "ensure"))
	r := runCommand(t, env, "gateway", "--gateway-tls-cert", "/dev/null", "--gateway-tls-key", "/dev/null")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "give PEM files of one certificate and its key")
	r = runCommand(t, env, "gateway", "--gateway-tls-cert", "/dev/null")
	require.Contains(t, r.stderr, "gateway-tls-cert and gateway-tls-key belong together")
}
