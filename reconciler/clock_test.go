package reconciler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is set while a wake-up waits, or a step is under way, makes neither
// early nor late: times are counted by the monotonic clock, which String shows.
func TestClock_MayBeSetAtAnyTime(t *testing.T) {
	t.Parallel()
	now, theirs := time.Now(), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	a := newAlarms()
	a.setClock(reading{now, theirs})
	at := a.local(theirs.Add(700*time.Millisecond), 0, now)
	require.Equal(t, 705*time.Millisecond, at.Sub(now))
	require.Contains(t, at.String(), " m=")
	var p pulse
	p.step(func() {
		require.Contains(t, p.since.Load().String(), " m=")
		require.Positive(t, p.stuck(time.Now()))
	})
	require.Zero(t, p.stuck(time.Now()))
}
