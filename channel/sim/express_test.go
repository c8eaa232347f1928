package sim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

const plainBody = `{"amount":1999,"currency":"EUR","order":"order-1001"}`

func message(key uuid.UUID, headers, body string) string {
	return fmt.Sprintf("POST /v1/charges HTTP/1.1\r\nHost: sim\r\nIdempotency-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", key, headers, len(body), body)
}

// talk writes the parts to the server on one connection, each after the answer
// to everything before it was read, and returns the answers' bodies.
func (b *bench) talk(answers int, parts ...string) ([]string, []int) {
	b.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(b.url, "http://"))
	require.NoError(b.t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(b.t, conn.SetDeadline(time.Now().Add(timeout)))
	for _, part := range parts {
		_, err = io.WriteString(conn, part)
		require.NoError(b.t, err)
	}
	in := bufio.NewReader(conn)
	var bodies []string
	var statuses []int
	for range answers {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(b.t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(b.t, errors.Join(err, resp.Body.Close()))
		bodies, statuses = append(bodies, string(text)), append(statuses, resp.StatusCode)
	}
	return bodies, statuses
}

// TestEveryWayToAskIsAnsweredAlike: the express way and net/http's give the same
// answer, and each request is counted once.
func TestEveryWayToAskIsAnsweredAlike(t *testing.T) {
	t.Parallel()
	long := "X-Long: " + strings.Repeat("x", 5000) + "\r\n"
	tests := map[string]func(key uuid.UUID) []string{
		"ordinary":             func(k uuid.UUID) []string { return []string{message(k, "", plainBody)} },
		"in pieces":            func(k uuid.UUID) []string { return strings.SplitAfter(message(k, "", plainBody), "e") },
		"told to keep alive":   func(k uuid.UUID) []string { return []string{message(k, "Connection: keep-alive\r\n", plainBody)} },
		"an unknown header":    func(k uuid.UUID) []string { return []string{message(k, "X-Other: 1\r\n", plainBody)} },
		"a long header":        func(k uuid.UUID) []string { return []string{message(k, long, plainBody)} },
		"white space":          func(k uuid.UUID) []string { return []string{message(k, "", strings.ReplaceAll(plainBody, ":", ": "))} },
		"a body beyond buffer": func(k uuid.UUID) []string { return []string{message(k, "", plainBody+strings.Repeat(" ", 5000))} },
		"chunked": func(k uuid.UUID) []string {
			return []string{strings.Replace(message(k, "Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(plainBody), plainBody)),
				fmt.Sprintf("Content-Length: %d\r\n", len(plainBody)+14), "", 1)}
		},
	}
	for name, parts := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, sim.DefaultBehaviour())
			key := uuid.New()
			bodies, statuses := b.talk(1, parts(key)...)
			require.Equal(t, []int{http.StatusOK}, statuses)
			id := strings.ReplaceAll(key.String(), "-", "")
			require.JSONEq(t, fmt.Sprintf(`{"id":"ch_%s_1","status":"settled","providerKey":"%s","amount":1999,"currency":"EUR"}`, id, key), bodies[0])
			require.Equal(t, 1, b.charge(channel.Request{ProviderKey: key}).Requests)
			require.EqualValues(t, 1, b.server.Summary().Requests)
		})
	}
}

// TestOneConnectionChangesItsManners: ordinary and other requests, also two in
// one packet, are answered in their order, none is lost, none is taken twice.
func TestOneConnectionChangesItsManners(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	first, second, third := uuid.New(), uuid.New(), uuid.New()
	declined := strings.Replace(plainBody, "}", `,"metadata":{"sim":"declined"}}`, 1)
	bodies, statuses := b.talk(4,
		message(first, "", plainBody)+message(second, "", declined)+
			"GET /v1/charges/"+first.String()+" HTTP/1.1\r\nHost: sim\r\n\r\n"+message(third, "", plainBody))
	require.Equal(t, []int{http.StatusOK, http.StatusPaymentRequired, http.StatusOK, http.StatusOK}, statuses)
	for i, key := range []uuid.UUID{first, second, first, third} {
		require.Contains(t, bodies[i], key.String())
	}
	require.EqualValues(t, 3, b.server.Summary().Requests)
}

func TestWhatIsNoRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	key := uuid.New()
	for _, text := range []string{
		"POST /v1/charges HTTP/1.1\r\nHost: sim\r\n\r\n",
		"POST /v1/charges HTTP/1.1\r\nHost: sim\r\nIdempotency-Key: x\r\nContent-Length: 2\r\n\r\n{}",
		"POST /v1/charges HTTP/1.1\r\nHost: sim\r\nno colon\r\n\r\n",
		message(key, "Content-Length: 3\r\n", plainBody),
		message(key, "", `{"amount":0,"currency":"EUR"}`),
		message(key, "", `{"amount":1}`),
		"nonsense\r\n\r\n",
	} {
		_, statuses := b.talk(1, text)
		require.Equal(t, []int{http.StatusBadRequest}, statuses, text)
	}
	require.Zero(t, b.server.Summary().Keys)
}

// TestGracefulStop: a request under way is answered, a request that is held is
// dropped, and Run returns.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	behaviour := sim.DefaultBehaviour()
	behaviour.Latency, behaviour.LongestExecution = time.Second, time.Hour
	b := setup(t, behaviour)
	ordinary, held := request(""), request("late:30m")
	answers := make(chan payment.Answer, 2)
	go func() { answers <- b.submit(ordinary, timeout) }()
	heldAnswer := make(chan payment.Answer, 1)
	go func() { heldAnswer <- b.submit(held, timeout) }()
	require.Eventually(t, func() bool { return b.server.Summary().Requests == 2 }, timeout, time.Millisecond)
	b.server.DrainFor(20 * time.Second) // the ordinary one has its second, over a pause of the machine too
	b.stop()
	require.Equal(t, payment.ClassSucceeded.String(), (<-answers).Class.String())
	require.Equal(t, payment.ClassUnknown.String(), (<-heldAnswer).Class.String())
	require.Zero(t, b.charge(held).Executions)
}
