package sim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
)

// FuzzCallback: whatever a provider signs, what is read of it can be stored and
// found; and nothing is read of what it did not sign (P21).
func FuzzCallback(f *testing.F) {
	const key = `"f624c0b2-033b-5523-bf21-828c0d86925e"`
	for _, seed := range []string{
		`{"id":"evt_1","type":"charge.settled","createdAt":"2026-11-30T10:00:00Z","charge":{"id":"ch_1","providerKey":` + key + `,"paymentId":` + key + `,"amount":1999,"currency":"EUR"}}`,
		`{"id":"evt_1","type":"charge.refunded","charge":{"id":"ch_1"}}`, `{"id":"evt_1","charge":{"providerKey":` + key + `}}`,
		`{"id":"\u0000","charge":{"id":"ch_1"}}`, `{"id":"e","charge":{"id":"\ud800"}}`, `{"id":"e","charge":{"id":"c","amount":1e30,"currency":"EUR"}}`,
		`{"id":"e","charge":{"id":"c","amount":9007199254740993,"currency":"EUR"}}`, `{"id":"e","charge":{"id":"c","amount":1}}`, `null`, ``, `[]`,
	} {
		f.Add([]byte(seed), "t=1764496800,v1=00")
	}
	adapter, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: "http://127.0.0.1:1", Callbacks: channel.CallbackSigning{Secrets: []string{secret}}})
	require.NoError(f, err)
	f.Cleanup(adapter.Close)
	now := time.Unix(1764496800, 0)
	f.Fuzz(func(t *testing.T, body []byte, header string) {
		said, err := adapter.VerifyCallback(http.Header{sim.CallbackHeader: {header}}, body, now)
		require.Error(t, err, "nobody guesses a signature")
		require.Zero(t, said)
		header = channel.SignCallback(secret, now, body)
		said, err = adapter.VerifyCallback(http.Header{sim.CallbackHeader: {header}}, body, now)
		if err != nil {
			require.ErrorIs(t, err, channel.ErrCallbackUnreadable)
			require.Zero(t, said)
			return
		}
		require.NoError(t, said.Check())
		require.NotEmpty(t, said.ID)
	})
}
