package payment_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

func TestDurationText(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"336h": 336 * time.Hour, "5m": 5 * time.Minute, "1h5m": 65 * time.Minute, "10s": 10 * time.Second, "0s": 0,
		"1h0m1s": time.Hour + time.Second, "1.5s": 1500 * time.Millisecond,
	} {
		require.Equal(t, want, payment.DurationText(d))
	}
}
