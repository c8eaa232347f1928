package demo

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/fleet"
)

// Half of the payments come over HTTP, from clients that repeat, post at once and post
// other amounts, and the channel calls back, also with lies: the verdict is the same.
func TestEdge_EndsInTheSameVerdict(t *testing.T) {
	t.Parallel()
	lies := `"rates":{"callback_forged":0.2,"callback_stale":0.1,"callback_garbage":0.1,"callback_duplicate":0.1,"callback_opposite":0.1,"callback_early":0.1}`
	report := runDemo(t, Config{Commands: 400, Seed: 13, Kills: -1, EdgeShare: 50, Channels: []Channel{{
		Channel: fleet.Channel{Name: "sim", Behaviour: Behaviour(lies), Promises: Promises(nil)}, CallsBack: true,
	}}})
	require.True(t, report.Passed())
	require.NotZero(t, report.Requests["200"])
	require.NotZero(t, report.Requests["202"])
	require.NotZero(t, report.Requests["409"])
	require.Zero(t, report.Requests["500"])
	require.NotZero(t, report.Counts.Callbacks)
	require.NotZero(t, report.Counts.CallbacksRefused)
	require.Greater(t, report.Counts.Told, 100)
}

// Gateways that know the forger's secret too: the verdict of a real run must say so.
func TestVerdict_SeesARealForgeryTaken(t *testing.T) {
	t.Parallel()
	both := callbackSecret("sim") + "," + callbackSecret("sim") + "-of-somebody-else"
	report := runDemo(t, Config{Commands: 100, Seed: 14, Kills: -1, EdgeShare: 30, Channels: []Channel{{
		Channel:   fleet.Channel{Name: "sim", Behaviour: Behaviour(`"rates":{"callback_forged":0.5}`), Promises: Promises(map[string]string{"callback-secret": both})},
		CallsBack: true,
	}}})
	require.Len(t, report.Violations, 1, "it is asked, so nothing else is broken")
	require.Equal(t, "G3", report.Violations[0].Guarantee)
	require.Contains(t, report.Violations[0].Text, "forged")
	require.NoError(t, os.RemoveAll(report.Kept))
}
