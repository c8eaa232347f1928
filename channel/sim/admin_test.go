package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// call makes one request to the server and returns status and body.
func (b *bench) call(method, path, body string) (int, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text)
}

func TestLedgerEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("")
	b.submit(r, timeout)
	b.submit(request("declined"), timeout)
	b.query(r)

	status, text := b.call(http.MethodGet, "/ledger", "")
	require.Equal(t, http.StatusOK, status)
	require.Len(t, strings.Split(strings.TrimSpace(text), "\n"), 2)
	for line := range strings.Lines(text) {
		var c sim.Charge
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		require.Equal(t, b.chargeOf(c), normal(c))
	}
	status, text = b.call(http.MethodGet, "/ledger/summary", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"keys":2,"settled":1,"declined":1,"charges":1,"doubleCharged":0,"declinedAndCharged":0,"executions":2,
		"requests":2,"queries":1,"redirected":0,"inFlight":0,"maxInFlight":1}`, text)
	status, text = b.call(http.MethodGet, "/ledger/load", "")
	require.Equal(t, http.StatusOK, status)
	var load sim.Load
	require.NoError(t, json.Unmarshal([]byte(text), &load))
	require.False(t, load.Since.IsZero())
	submits, queries := 0, 0
	for _, s := range load.Seconds {
		submits, queries = submits+s.Submits, queries+s.Queries
	}
	require.Equal(t, []int{2, 1}, []int{submits, queries})
	require.Len(t, b.charge(r).QueriedAt, 1)
	status, _ = b.call(http.MethodGet, "/healthz", "")
	require.Equal(t, http.StatusOK, status)
}

func (b *bench) chargeOf(c sim.Charge) sim.Charge {
	r := request("")
	r.ProviderKey = c.ProviderKey
	return normal(b.charge(r))
}

func TestBehaviourEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	require.NoError(t, b.adapter.Check(within(t)))
	status, text := b.call(http.MethodPatch, "/admin/behaviour", `{"latency":"5ms","rates":{"declined":1}}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, 5*time.Millisecond, b.server.Behaviour().Latency)
	require.True(t, b.server.Behaviour().IdempotentSubmit)
	require.Equal(t, payment.ClassDeclined, b.submit(request(""), timeout).Class)

	status, text = b.call(http.MethodPatch, "/admin/behaviour", `{"latency":"5s"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, 7*time.Second, b.server.Behaviour().LongestExecution, "it follows the latency unless it is given")

	status, text = b.call(http.MethodPut, "/admin/behaviour", `{"visibilityLag":"3s","latency":"10s"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.Empty(t, b.server.Behaviour().Rates, "PUT replaces all of it")
	require.Equal(t, 12*time.Second, b.server.Behaviour().LongestExecution)
	_, text = b.call(http.MethodGet, "/admin/behaviour", "")
	var behaviour sim.Behaviour
	require.NoError(t, json.Unmarshal([]byte(text), &behaviour))
	require.Equal(t, b.server.Behaviour(), behaviour)
	require.ErrorContains(t, b.adapter.Check(within(t)), "differs")

	for _, bad := range []string{`{`, `{"latency":"soon"}`, `{"latency":-1}`, `{"rates":{"nonsense":0.5}}`, `{"rates":{"slow":2}}`, `{"keyMemory":"-1s"}`, `{"latancy":"1s"}`} {
		status, _ = b.call(http.MethodPatch, "/admin/behaviour", bad)
		require.Equal(t, http.StatusBadRequest, status, bad)
	}
}

func TestFaultEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	other := request("")
	r := request("")
	r.OrderID = "order-2"
	status, text := b.call(http.MethodPost, "/admin/faults", `{"faults":"error_after,query_error","match":{"order":"order-2","metadata":{"cart":"c-55"}},"times":2}`)
	require.Equal(t, http.StatusCreated, status, text)
	require.Equal(t, payment.ClassSucceeded, b.submit(other, timeout).Class)
	require.Equal(t, payment.ClassUnknown, b.submit(r, timeout).Class)
	require.Equal(t, payment.ClassUnknown, b.query(r).Class)
	require.Equal(t, payment.ClassSucceeded, b.query(r).Class, "the rule is spent")
	_, text = b.call(http.MethodGet, "/admin/faults", "")
	require.JSONEq(t, `[]`, text)

	for _, match := range []string{
		`{"providerKey":"` + r.ProviderKey.String() + `"}`, `{"paymentId":"` + r.PaymentID.String() + `"}`,
		`{"customer":"cust-7"}`, `{"amount":1999}`, `{}`,
	} {
		status, text = b.call(http.MethodPost, "/admin/faults", `{"faults":"query_error","match":`+match+`}`)
		require.Equal(t, http.StatusCreated, status, text)
		require.Equal(t, payment.ClassUnknown, b.query(r).Class, match)
		require.Equal(t, payment.ClassUnknown, b.query(r).Class, "a rule without times stays")
		status, _ = b.call(http.MethodDelete, "/admin/faults", "")
		require.Equal(t, http.StatusNoContent, status)
		require.Equal(t, payment.ClassSucceeded, b.query(r).Class)
	}
	status, _ = b.call(http.MethodPost, "/admin/faults", `{"faults":"nonsense"}`)
	require.Equal(t, http.StatusBadRequest, status)
}

func TestInvalidCharges(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	for _, body := range []string{``, `{`, `{"amount":0,"currency":"EUR"}`, `{"amount":1}`, `{"amount":"1","currency":"EUR"}`} {
		status, _ := b.call(http.MethodPost, "/v1/charges", body)
		require.Equal(t, http.StatusBadRequest, status, body)
	}
	r := request("")
	r.Amount = 0
	require.Equal(t, payment.ClassRefused.String(), b.submit(r, timeout).Class.String())
	require.Zero(t, b.server.Summary().Keys)
	status, _ := b.call(http.MethodGet, "/v1/charges/nonsense", "")
	require.Equal(t, http.StatusBadRequest, status)
}

// TestCheck: the record may ask for less than the server gives, not for more.
func TestCheck(t *testing.T) {
	t.Parallel()
	limited := sim.DefaultBehaviour()
	limited.MaxInFlight, limited.RateLimit = 100, 50
	tests := map[string]struct {
		behaviour sim.Behaviour
		change    func(c *channel.Capabilities)
		differs   bool
	}{
		"as it is":            {sim.DefaultBehaviour(), func(*channel.Capabilities) {}, false},
		"limits of our own":   {sim.DefaultBehaviour(), func(c *channel.Capabilities) { c.MaxInFlight, c.RateLimit = 4096, 10 }, false},
		"below the limits":    {limited, func(c *channel.Capabilities) { c.MaxInFlight, c.RateLimit = 99, 49 }, false},
		"too many in flight":  {limited, func(c *channel.Capabilities) { c.MaxInFlight = 101 }, true},
		"too fast":            {limited, func(c *channel.Capabilities) { c.RateLimit = 51 }, true},
		"as fast as we like":  {limited, func(c *channel.Capabilities) { c.RateLimit = 0 }, true},
		"a longer memory":     {sim.DefaultBehaviour(), func(c *channel.Capabilities) { c.KeyMemory = channel.Forever }, true},
		"timeouts of our own": {sim.DefaultBehaviour(), func(c *channel.Capabilities) { c.SubmitTimeout = time.Second }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, tt.behaviour)
			record := tt.behaviour.Capabilities("sim")
			tt.change(&record)
			adapter, err := sim.NewAdapter(sim.AdapterConfig{BaseURL: b.url, ConnectTimeout: timeout, Capabilities: record})
			require.NoError(t, err)
			defer adapter.Close()
			if err = adapter.Check(within(t)); tt.differs {
				require.ErrorContains(t, err, "differs")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
