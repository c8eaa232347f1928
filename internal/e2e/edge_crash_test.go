package e2e_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
	"github.com/settleonce/settleonce/producer/edge"
)

// The variables that turn this test binary into an edge of its own.
const (
	edgeBrokers = "SETTLEONCE_E2E_BROKERS"
	edgeDSN     = "SETTLEONCE_E2E_DSN"
	edgeReady   = "the edge listens: "
)

// TestEdgeProcess is no test: it is the edge that others kill.
func TestEdgeProcess(t *testing.T) { //nolint:paralleltest // it is alone in its process
	brokers := os.Getenv(edgeBrokers)
	if brokers == "" {
		t.Skip("runs in a process of its own")
	}
	require.NoError(t, crashpoint.Arm(os.Getenv(crashpoint.Variable)))
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: os.Getenv(edgeDSN), MaxConns: 2})
	require.NoError(t, err)
	defer pool.Close()
	sender, err := producer.New(producer.Config{Brokers: strings.Split(brokers, ","), Timeout: publishWithin})
	require.NoError(t, err)
	server, err := edge.New(edge.Config{
		Address: "127.0.0.1:0", Callers: edge.NewStaticCallers(tokens()), Sender: sender,
		Reader: store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()}),
	})
	require.NoError(t, err)
	require.NoError(t, server.Listen(t.Context()))
	_, _ = os.Stdout.WriteString(edgeReady + server.URL() + "\n")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent lets go
		cancel()
	}()
	require.NoError(t, server.Run(ctx))
}

// startEdgeProcess starts an edge that dies at the point, and returns its address.
func (s *stack) startEdgeProcess(point crashpoint.Point) string {
	s.t.Helper()
	program, err := os.Executable()
	require.NoError(s.t, err)
	cmd := exec.CommandContext(s.ctx, program, "-test.run=^TestEdgeProcess$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), edgeBrokers+"="+strings.Join(s.brokers, ","), edgeDSN+"="+s.dsn, crashpoint.Variable+"="+string(point))
	in, err := cmd.StdinPipe()
	require.NoError(s.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // killed, as it was meant to be
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), edgeReady); ok {
			return url
		}
	}
	require.Fail(s.t, "the edge did not start")
	return ""
}

// The edge is killed before it published, after, and when it knows the answer: the
// client, who heard nothing, sends the same request to another one and gets the
// first outcome. One charge.
func TestEdgeKilled(t *testing.T) {
	t.Parallel()
	for point, replayed := range map[crashpoint.Point]string{
		crashpoint.EdgeStart: "", crashpoint.EdgePublished: "true", crashpoint.EdgeJudged: "true",
	} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			s := shared(t)
			d := s.openDoor()
			other := *d
			other.url = s.startEdgeProcess(point)
			key, body := uuid.New(), order()
			_, err := other.ask(http.MethodPost, "/v1/payments", tokenShop, body, postHeaders(key)...)
			require.Error(t, err, "it was to die")
			a := d.post(tokenShop, key, body)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Equal(t, replayed, a.header.Get("Idempotent-Replayed"))
			require.Equal(t, 1, s.settled(commandOf("shop", key)))
			require.Equal(t, 1, s.providerKeys(orderIn(t, body)))
		})
	}
}
