package demo

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// answers are given one after the other, to whoever comes; 0 breaks the connection.
type answers struct {
	mu   sync.Mutex
	left []int
	keys map[string]int
}

func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	status := a.left[0]
	a.left = a.left[min(1, len(a.left)-1):]
	a.keys[r.Method+" "+r.Header.Get("Idempotency-Key")]++
	a.mu.Unlock()
	if status == 0 {
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"state":"succeeded","providerReference":"ch_1"}`))
}

// A client sends the same request until it has an answer that is final, and keeps
// an answer that should never be.
func TestClients_Insist(t *testing.T) {
	t.Parallel()
	a := &answers{left: []int{0, 503, 429, 500, 200}, keys: map[string]int{}}
	server := httptest.NewServer(a)
	defer server.Close()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	c := newClients(1, 100, []string{server.URL}, map[string]string{"shop": "token", "billing": "token"})
	defer c.end()
	cmd := w.payment(endsCharged, "").command
	require.True(t, c.takes(&cmd))
	sum, err := cmd.Fingerprint()
	require.NoError(t, err)
	c.start(t.Context(), request{command: cmd, sum: sum}, true)
	c.tasks.Wait()

	served, open := c.progress()
	require.Equal(t, 1, served)
	require.Zero(t, open)
	told, tries := c.answers()
	require.Equal(t, map[string]int{"no answer": 1, "503": 1, "429": 1, "500": 1, "200": 1}, tries)
	require.Len(t, told, 2, "the 500 is for the judge")
	require.Equal(t, 500, told[0].Status)
	require.Equal(t, "ch_1", told[1].Reference)
	require.True(t, told[1].Replayed)
	require.Equal(t, map[string]int{"POST " + cmd.IdempotencyKey.String(): 5}, a.keys)
}

// After a 202 a client may look until it is found, and send the request again.
func TestClients_AskOn(t *testing.T) {
	t.Parallel()
	a := &answers{left: []int{202, 404, 200}, keys: map[string]int{}}
	server := httptest.NewServer(a)
	defer server.Close()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	c := newClients(1, 100, []string{server.URL}, map[string]string{"shop": "token", "billing": "token"})
	defer c.end()
	require.True(t, c.pursue(t.Context(), request{command: w.payment(endsCharged, "").command, look: true, again: true}))
	told, _ := c.answers()
	require.Len(t, told, 3)
	require.Equal(t, []bool{false, true, false}, []bool{told[0].Looked, told[1].Looked, told[2].Looked})
}

// A run that ends leaves open what has no answer.
func TestClients_LeaveOpenWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	a := &answers{left: []int{503}, keys: map[string]int{}}
	server := httptest.NewServer(a)
	defer server.Close()
	w := &writer{script: &script{length: time.Second}, random: newRandom(1), start: begin, channels: one}
	c := newClients(1, 100, []string{server.URL}, map[string]string{"shop": "token", "billing": "token"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	c.start(ctx, request{command: w.payment(endsCharged, "").command}, true)
	c.end()
	_, open := c.progress()
	require.Equal(t, 1, open)
	var nobody *clients
	require.False(t, nobody.takes(&payment.Command{Amount: 1}))
}
