package sim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/payment"
)

// What was said about every charge is contradicted, each time under another id.
func TestContradict(t *testing.T) {
	t.Parallel()
	b, e := setup(t, sim.DefaultBehaviour()), listen(t, 0)
	status, text := b.call(http.MethodPost, "/admin/callbacks/contradict", `{"times":2}`)
	require.Equal(t, http.StatusBadRequest, status, text)
	b.submit(request(""), timeout)
	b.submit(request("declined"), timeout)
	b.submit(request("authorized"), timeout) // nothing was decided about it
	require.NoError(t, b.server.SetCallbacks(sim.CallbackTarget{URL: e.url, Secret: secret}))
	for _, wrong := range []string{`{"times":0}`, `{"times":101}`, `{`} {
		status, text = b.call(http.MethodPost, "/admin/callbacks/contradict", wrong)
		require.Equal(t, http.StatusBadRequest, status, text)
	}
	status, text = b.call(http.MethodPost, "/admin/callbacks/contradict", `{"times":2}`)
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `"sent":4`)
	require.Eventually(t, func() bool { return b.server.CallbackCounts().Acknowledged == 4 }, timeout, time.Millisecond)
	heard, _ := e.told()
	ids, kinds := map[string]bool{}, map[uuid.UUID]string{}
	for i := range heard {
		ids[heard[i].ID] = true
		kinds[heard[i].ProviderKey] += string(heard[i].Kind) + ","
	}
	require.Len(t, ids, 4)
	require.Len(t, kinds, 2)
	for _, said := range kinds {
		require.Contains(t, []string{"declined,declined,", "succeeded,succeeded,"}, said)
	}
}

// The load tells what was turned away, of both kinds.
func TestLoadCountsWhatWasRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, sim.DefaultBehaviour())
	r := request("error_before,query_error")
	require.Equal(t, payment.ClassUnknown, b.submit(r, timeout).Class)
	b.query(r)
	b.query(r)
	var sum sim.LoadSecond
	for _, s := range b.server.Load().Seconds {
		sum.Submits, sum.Queries, sum.Refused = sum.Submits+s.Submits, sum.Queries+s.Queries, sum.Refused+s.Refused
	}
	require.Equal(t, sim.LoadSecond{Submits: 1, Queries: 2, Refused: 2}, sum)
}
