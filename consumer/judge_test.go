package consumer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Whatever gets a dead letter is counted among them, whether it was answered too
// or only the database found fault with it.
func TestEveryDeadLetterIsCounted(t *testing.T) {
	t.Parallel()
	c := &Consumer{cfg: Config{Metrics: telemetry.NewMetrics("test")}}
	dead := store.Arrival{Dead: &store.Dead{Reason: payment.DeadNoKey}}
	for _, seen := range []struct {
		outcome store.Outcome
		arrival store.Arrival
	}{
		{store.Outcome{Verdict: store.DeadLettered}, dead},
		{store.Outcome{Verdict: store.DeadLettered}, store.Arrival{}},
		{store.Outcome{Verdict: store.Rejected, Code: payment.CodeStaleCommand}, store.Arrival{}},
		{store.Outcome{Verdict: store.Rejected, Code: payment.CodeInvalidCommand}, store.Arrival{}},
		{store.Outcome{Verdict: store.Replayed, Code: payment.CodeStaleCommand}, store.Arrival{}},
		{store.Outcome{Verdict: store.Parked}, store.Arrival{}},
	} {
		c.count(&seen.outcome, &seen.arrival)
	}
	expected := map[payment.DeadLetterReason]float64{payment.DeadNoKey: 1, payment.DeadUnstorable: 1, payment.DeadStale: 1}
	families, err := c.cfg.Metrics.Registry().Gather()
	require.NoError(t, err)
	got := map[payment.DeadLetterReason]float64{}
	for _, family := range families {
		if family.GetName() == "settleonce_dead_letters_total" {
			for _, m := range family.GetMetric() {
				got[payment.DeadLetterReason(m.GetLabel()[0].GetValue())] = m.GetCounter().GetValue()
			}
		}
	}
	require.Equal(t, expected, got)
	n, err := testutil.GatherAndCount(c.cfg.Metrics.Registry(), "settleonce_rejections_total")
	require.NoError(t, err)
	require.Equal(t, 2, n)
}
