package edge_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/producer/edge"
)

const callbackSecret = "whsec-edge-test"

// keepsNothing is a store that remembers ids, or fails.
type keepsNothing struct {
	mu   sync.Mutex
	err  error
	seen map[string]bool
}

// StoreCallback takes one callback.
func (k *keepsNothing) StoreCallback(_ context.Context, c store.Callback) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return false, k.err
	}
	fresh := !k.seen[c.Said.ID]
	k.seen[c.Said.ID] = true
	return fresh, nil
}

// silent is an adapter that offers no callbacks.
type silent struct{ channel.Adapter }

// door is the handler under the path of the edge.
type door struct {
	t       *testing.T
	url     string
	kept    *keepsNothing
	metrics *telemetry.Metrics
}

func openDoor(t *testing.T) *door {
	t.Helper()
	adapter := func(secrets ...string) channel.Adapter {
		a, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: "http://127.0.0.1:1", Callbacks: channel.CallbackSigning{Secrets: secrets}})
		require.NoError(t, err)
		t.Cleanup(a.Close)
		return a
	}
	caps := sim.DefaultBehaviour().Capabilities("sim:test")
	registry, err := channel.NewRegistry(map[string]channel.Entry{
		"sim": {Adapter: adapter("older", callbackSecret), Capabilities: caps}, "mute": {Adapter: adapter(), Capabilities: caps},
		"silent": {Adapter: silent{adapter(callbackSecret)}, Capabilities: caps},
	})
	require.NoError(t, err)
	d := &door{t: t, kept: &keepsNothing{seen: map[string]bool{}}, metrics: telemetry.NewMetrics("test")}
	handler, err := edge.NewCallbackHandler(edge.CallbackConfig{
		Channels: registry, Store: d.kept, MaxBody: 4096, Metrics: d.metrics, Logger: zerolog.Nop(),
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /v1/callbacks/{channel}", handler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	d.url = server.URL + "/v1/callbacks/"
	return d
}

// post sends a body signed with a secret at a time, and returns status and body.
func (d *door) post(channelName, body, secret string, age time.Duration) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.url+channelName, strings.NewReader(body))
	require.NoError(d.t, err)
	if secret != "" {
		req.Header.Set(sim.CallbackHeader, channel.SignCallback(secret, time.Now().Add(-age), []byte(body)))
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	if resp.StatusCode == http.StatusServiceUnavailable {
		require.NotEmpty(d.t, resp.Header.Get("Retry-After"))
	}
	return resp.StatusCode, string(text)
}

const goodCallback = `{"id":"evt_1","type":"charge.settled","charge":{"id":"ch_1","providerKey":"f624c0b2-033b-5523-bf21-828c0d86925e","amount":1999,"currency":"EUR"}}`

// P21, P12: what is answered to whom, and counted as what.
func TestP21_CallbackHandler(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		channel, body, secret string
		age                   time.Duration
		status                int
		code                  string
		counted               [2]string
	}{
		"right":              {"sim", goodCallback, callbackSecret, 0, 200, "", [2]string{"sim", "stored"}},
		"older secret":       {"sim", goodCallback, "older", 0, 200, "", [2]string{"sim", "stored"}},
		"unsigned":           {"sim", goodCallback, "", 0, 401, "INVALID_SIGNATURE", [2]string{"sim", "bad_signature"}},
		"forged":             {"sim", goodCallback, "guess", 0, 401, "INVALID_SIGNATURE", [2]string{"sim", "bad_signature"}},
		"replayed later":     {"sim", goodCallback, callbackSecret, time.Hour, 401, "INVALID_SIGNATURE", [2]string{"sim", "too_old"}},
		"from the future":    {"sim", goodCallback, callbackSecret, -time.Hour, 401, "INVALID_SIGNATURE", [2]string{"sim", "too_old"}},
		"signed nonsense":    {"sim", `{"id":7}`, callbackSecret, 0, 400, "UNREADABLE_BODY", [2]string{"sim", "unreadable"}},
		"signed zero byte":   {"sim", strings.Replace(goodCallback, "evt_1", `evt\u0000`, 1), callbackSecret, 0, 400, "UNREADABLE_BODY", [2]string{"sim", "unreadable"}},
		"too large":          {"sim", strings.Repeat(" ", 5000), callbackSecret, 0, 413, "BODY_TOO_LARGE", [2]string{"sim", "too_large"}},
		"empty":              {"sim", "", "", 0, 401, "INVALID_SIGNATURE", [2]string{"sim", "bad_signature"}},
		"no secret":          {"mute", goodCallback, callbackSecret, 0, 503, "UNAVAILABLE", [2]string{"mute", "no_secret"}},
		"no secret, no sign": {"mute", goodCallback, "", 0, 503, "UNAVAILABLE", [2]string{"mute", "no_secret"}},
		"unknown channel":    {"nobody", goodCallback, callbackSecret, 0, 404, "NOT_FOUND", [2]string{"", "unknown_channel"}},
		"none offered":       {"silent", goodCallback, callbackSecret, 0, 404, "NOT_FOUND", [2]string{"", "unknown_channel"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openDoor(t)
			status, text := d.post(tc.channel, tc.body, tc.secret, tc.age)
			require.Equal(t, tc.status, status, text)
			require.NotContains(t, text, callbackSecret)
			if tc.code != "" {
				var problem edge.Problem
				require.NoError(t, json.Unmarshal([]byte(text), &problem))
				require.Equal(t, tc.code, string(problem.Code))
				require.Empty(t, d.kept.seen, "nothing that was not verified is stored")
			}
			require.InDelta(t, 1, d.counted(tc.counted[0], tc.counted[1]), 0)
		})
	}
}

func (d *door) counted(channelName, result string) float64 {
	d.t.Helper()
	families, err := d.metrics.Registry().Gather()
	require.NoError(d.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "settleonce_callbacks_total" && m.GetLabel()[0].GetValue() == channelName && m.GetLabel()[1].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// P12: five deliveries, five times 2xx, one row.
func TestP12_CallbackHandlerRepeats(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	for n := range 5 {
		status, text := d.post("sim", goodCallback, callbackSecret, time.Duration(n)*time.Second)
		require.Equal(t, http.StatusOK, status)
		want := "duplicate"
		if n == 0 {
			want = "stored"
		}
		require.JSONEq(t, `{"result":"`+want+`"}`, text)
	}
	require.Len(t, d.kept.seen, 1)
}

// P11: what is not stored is not acknowledged.
func TestP11_CallbackHandlerNotStored(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	d.kept.err = errors.New("the database is down")
	status, text := d.post("sim", goodCallback, callbackSecret, 0)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.NotContains(t, text, "database is down", "no internals")
	d.kept.err = nil
	status, _ = d.post("sim", goodCallback, callbackSecret, 0)
	require.Equal(t, http.StatusOK, status)
}

func TestCallbackConfig(t *testing.T) {
	t.Parallel()
	registry, err := channel.NewRegistry(nil)
	require.NoError(t, err)
	for want, cfg := range map[string]edge.CallbackConfig{
		"needs channels":  {Store: &keepsNothing{}},
		"at least 1024":   {Channels: registry, Store: &keepsNothing{}, MaxBody: 10},
		"positive durati": {Channels: registry, Store: &keepsNothing{}, Timeout: -1},
	} {
		_, err := edge.NewCallbackHandler(cfg)
		require.ErrorContains(t, err, want)
	}
}
