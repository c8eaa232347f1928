package settle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// TestWorlds plays thousands of payments in worlds drawn from seeds: never two
// charges (G1), never declined and charged (G3), never succeeded without a
// charge, never rejected after a send (G2), and in the end everything has an
// outcome or is in review with a next look.
func TestWorlds(t *testing.T) {
	t.Parallel()
	worlds := uint64(20000)
	if testing.Short() {
		worlds = 2000
	}
	ends := make(map[payment.State]int)
	resumed, steps := 0, 0
	for seed := range worlds {
		w := newWorld(t, seed)
		w.run(8)
		if w.wrong != "" {
			require.Fail(t, "a guarantee does not hold", "seed %d: %s", seed, w.story())
		}
		ends[w.payment.State]++
		if w.wired > 1 {
			resumed++
		}
		steps += w.steps
	}
	t.Logf("%v, %d sent again, %d steps", ends, resumed, steps)
	for _, state := range []payment.State{payment.Succeeded, payment.Declined, payment.Review, payment.Rejected} {
		require.Positive(t, ends[state], "no world ends %s", state)
	}
	require.Positive(t, resumed)
}
