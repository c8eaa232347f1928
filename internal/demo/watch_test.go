package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience counts from when all is whole again, and what breaks things has as long for it.
func TestPatienceCountsFromWhenNothingIsBroken(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	const length, patience = 20 * time.Second, 30 * time.Second
	for broken, end := range map[time.Duration]time.Duration{
		0: 50 * time.Second, 20 * time.Second: 50 * time.Second, 35 * time.Second: 65 * time.Second, 50 * time.Second: 80 * time.Second, time.Hour: 80 * time.Second,
	} {
		w := &watcher{
			run:    &run{begun: begun, script: &script{length: length}, cfg: Config{Patience: patience}},
			broken: begun.Add(broken),
		}
		require.False(t, w.impatient(begun.Add(end)), broken)
		require.True(t, w.impatient(begun.Add(end+1)), broken)
	}
}
