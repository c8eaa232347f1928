package settle

import (
	"context"
	"math/rand/v2"
	"time"
)

// UntilDone tries until it succeeds, with pauses that grow from 50 ms to 2 s, and
// then returns nil; or until ctx ends, and then returns the last error. failed
// hears of each error after which it is tried again, before the pause.
func UntilDone(ctx context.Context, try func() error, failed func(error)) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Backoff is first, doubled with each round after round 0 up to longest, with a fifth
// of jitter, forward only.
func Backoff(round int, first, longest time.Duration) time.Duration {
	pause, longest := first, max(first, longest)
	for range min(round, 20) {
		if pause *= 2; pause >= longest {
			pause = longest
			break
		}
	}
	return pause + jitter(pause/5)
}

// jitter is a random part of d: it only ever delays.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}
