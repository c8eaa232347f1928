package sim_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

const secret = "whsec-test-0123456789"

// ear takes callbacks as an edge would, and remembers what it was told.
type ear struct {
	t       *testing.T
	adapter *sim.Adapter
	url     string
	failing int // so many deliveries are answered 503 first

	mu    sync.Mutex
	heard []channel.Callback
	wrong []error
}

func listen(t *testing.T, failing int) *ear {
	t.Helper()
	e := &ear{t: t, failing: failing}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.url = server.URL + "/v1/callbacks/sim"
	var err error
	e.adapter, err = sim.NewAdapter(sim.AdapterConfig{
		BaseURL: server.URL, Callbacks: channel.CallbackSigning{Secrets: []string{"an-older-secret", secret}},
	})
	require.NoError(t, err)
	t.Cleanup(e.adapter.Close)
	return e
}

// ServeHTTP verifies one delivery.
func (e *ear) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	callback, err := e.adapter.VerifyCallback(r.Header, body, time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil:
		e.wrong = append(e.wrong, err)
		w.WriteHeader(http.StatusUnauthorized)
	case e.failing > 0:
		e.failing--
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		e.heard = append(e.heard, callback)
	}
}

func (e *ear) told() ([]channel.Callback, []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]channel.Callback(nil), e.heard...), append([]error(nil), e.wrong...)
}

// kindsOf is the told kinds as one text.
func kindsOf(told []channel.Callback) string {
	words := make([]string, len(told))
	for i := range told {
		words[i] = string(told[i].Kind)
	}
	return strings.Join(words, " ")
}

var callbackCases = []struct {
	script  string
	heard   string
	refused error
}{
	{"slow:0s", "succeeded", nil},
	{"declined", "declined", nil},
	{"refused", "declined", nil},
	{"lost_answer", "succeeded", nil},
	{"authorized", "other", nil},
	{"late_settlement:10ms", "other succeeded", nil},
	{"callback_missing", "", nil},
	{"callback_duplicate", strings.TrimSpace(strings.Repeat("succeeded ", 5)), nil},
	{"callback_late:50ms", "succeeded", nil},
	{"callback_early", "succeeded", nil},
	{"callback_reordered", "succeeded other", nil},
	{"callback_forged", "succeeded", channel.ErrCallbackSignature},
	{"callback_stale", "succeeded", channel.ErrCallbackAge},
	{"callback_garbage", "succeeded", channel.ErrCallbackUnreadable},
	{"callback_opposite", "declined succeeded", nil},
	{"declined,callback_opposite", "succeeded declined", nil},
	{"callback_wrong_amount", "succeeded", nil},
	{"callback_refund", "refunded succeeded", nil},
	{"callback_part_refund", "succeeded refunded", nil},
}

// TestCallbacks runs every script of callbacks from the charge to the edge.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	for _, tt := range callbackCases {
		t.Run("script "+tt.script, func(t *testing.T) {
			t.Parallel()
			b, e := setup(t, sim.DefaultBehaviour()), listen(t, 0)
			require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret}))
			r := request(tt.script)
			b.submit(r, timeout)
			want := len(strings.Fields(tt.heard))
			require.Eventually(t, func() bool {
				heard, _ := e.told()
				return len(heard) == want && b.server.CallbackCounts().Waiting == 0
			}, timeout, time.Millisecond)
			heard, wrong := e.told()
			if strings.HasPrefix(tt.script, "late_settlement") { // two pieces of news, each on its own way
				require.ElementsMatch(t, strings.Fields(tt.heard), strings.Fields(kindsOf(heard)))
			} else {
				require.Equal(t, tt.heard, kindsOf(heard))
			}
			if tt.refused != nil {
				require.Len(t, wrong, 1)
				require.ErrorIs(t, wrong[0], tt.refused)
			}
			for _, c := range heard {
				require.Equal(t, r.ProviderKey, c.ProviderKey)
				require.Equal(t, r.PaymentID, c.PaymentID)
				require.NotEmpty(t, c.Reference)
			}
			require.Zero(t, b.server.CallbackCounts().ForgedAcknowledged)
		})
	}
}

// TestEarlyCallback: it is there before the charge's own answer.
func TestEarlyCallback(t *testing.T) {
	t.Parallel()
	b, e := setup(t, sim.DefaultBehaviour()), listen(t, 0)
	require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret}))
	require.Equal(t, payment.ClassSucceeded, b.submit(request("callback_early"), timeout).Class)
	heard, _ := e.told()
	require.Len(t, heard, 1)
}

// TestCallbackAmounts: what a callback says about the money.
func TestCallbackAmounts(t *testing.T) {
	t.Parallel()
	for script, amount := range map[string]int64{"slow:0s": 1999, "wrong_amount": 1998, "callback_wrong_amount": 1998} {
		b, e := setup(t, sim.DefaultBehaviour()), listen(t, 0)
		require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret}))
		b.submit(request(script), timeout)
		require.Eventually(t, func() bool { heard, _ := e.told(); return len(heard) == 1 }, timeout, time.Millisecond)
		heard, _ := e.told()
		require.Equal(t, amount, heard[0].Amount, script)
		require.Equal(t, "EUR", heard[0].Currency)
	}
}

// TestCallbackIsRedelivered until it is acknowledged, under the same id, and not
// after that; a repeated answer is no news.
func TestCallbackIsRedelivered(t *testing.T) {
	t.Parallel()
	b, e := setup(t, sim.DefaultBehaviour()), listen(t, 3)
	require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret}))
	r := request("slow:0s")
	b.submit(r, timeout)
	b.submit(r, timeout)
	require.Eventually(t, func() bool { return b.server.CallbackCounts().Acknowledged == 1 }, timeout, time.Millisecond)
	require.Eventually(t, func() bool { return b.server.CallbackCounts().Waiting == 0 }, timeout, time.Millisecond)
	counts := b.server.CallbackCounts()
	require.EqualValues(t, 4, counts.Sent)
	require.EqualValues(t, 3, counts.Refused)
}

// TestCallbackEcho: a provider that repeats less of ours.
func TestCallbackEcho(t *testing.T) {
	t.Parallel()
	for echo, want := range map[string][2]bool{"": {true, true}, "key": {false, true}, "reference": {false, false}} {
		b, e := setup(t, sim.DefaultBehaviour()), listen(t, 0)
		require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret, Echo: echo}))
		b.submit(request(""), timeout)
		require.Eventually(t, func() bool { heard, _ := e.told(); return len(heard) == 1 }, timeout, time.Millisecond)
		heard, _ := e.told()
		require.Equal(t, want, [2]bool{heard[0].PaymentID != uuid.Nil, heard[0].ProviderKey != uuid.Nil}, echo)
	}
}

// TestCallbackAdmin: the target is set over HTTP, and the secret never shown.
func TestCallbackAdmin(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	put := func(body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.url+"/admin/callbacks", strings.NewReader(body))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	status, text := put(`{"url":"http://127.0.0.1:1/v1/callbacks/sim","secret":"` + secret + `"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.NotContains(t, text, secret)
	require.Contains(t, text, `"signed":true`)
	for _, wrong := range []string{`{"url":"nowhere","secret":"x"}`, `{"url":"http://a/"}`, `{"url":"http://a/","secret":"x","echo":"all"}`, `{`} {
		status, _ = put(wrong)
		require.Equal(t, http.StatusBadRequest, status, wrong)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestVerifyCallbackReads: what is signed and no callback is told apart from what
// is not signed.
func TestVerifyCallbackReads(t *testing.T) {
	t.Parallel()
	e := listen(t, 0)
	key := uuid.NewString()
	cases := map[string]error{
		`{"id":"e","type":"charge.settled","charge":{"id":"ch","providerKey":"` + key + `","amount":1,"currency":"EUR"}}`: nil,
		`{"id":"e","type":"charge.settled","charge":{"id":"ch","providerKey":"nonsense"}}`:                                channel.ErrCallbackUnreadable,
		`{"id":"e","type":"charge.settled","charge":{"id":"ch","paymentId":"nonsense"}}`:                                  channel.ErrCallbackUnreadable,
		`{"id":"e\u0000","type":"charge.settled","charge":{"id":"ch"}}`:                                                   channel.ErrCallbackUnreadable,
		`{"id":"e","type":"charge.settled","charge":{}}`:                                                                  channel.ErrCallbackUnreadable,
		`[]`: channel.ErrCallbackUnreadable,
		``:   channel.ErrCallbackUnreadable,
	}
	for body, want := range cases {
		header := http.Header{sim.CallbackHeader: {channel.SignCallback(secret, time.Now(), []byte(body))}}
		_, err := e.adapter.VerifyCallback(header, []byte(body), time.Now())
		require.ErrorIs(t, err, want, body)
		_, err = e.adapter.VerifyCallback(http.Header{}, []byte(body), time.Now())
		require.ErrorIs(t, err, channel.ErrCallbackSignature, body)
	}
	for kind, want := range map[string]channel.CallbackKind{
		sim.CallbackRefunded: channel.CallbackRefunded, sim.CallbackDisputed: channel.CallbackDisputed, "payout.paid": channel.CallbackOther,
	} {
		body := []byte(`{"id":"e","type":"` + kind + `","charge":{"id":"ch"}}`)
		header := http.Header{sim.CallbackHeader: {channel.SignCallback(secret, time.Now(), body)}}
		c, err := e.adapter.VerifyCallback(header, body, time.Now())
		require.NoError(t, err)
		require.Equal(t, want, c.Kind)
	}
	_, err := sim.NewInstant().VerifyCallback(http.Header{}, nil, time.Now())
	require.ErrorIs(t, err, channel.ErrNoCallbackSecret)
}
