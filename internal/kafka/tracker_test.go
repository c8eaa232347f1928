package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The tracker against the plainest model: a list of records, each finished or
// not. Offsets have gaps, as control records and aborted ones leave them.
func TestTrackerModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type rec struct {
			offset              int64
			bytes               int
			finished, abandoned bool
		}
		tr := newTracker()
		var model []rec
		next := rapid.Int64Range(0, 1000).Draw(t, "start")
		last := int64(-1)
		some := func(t *rapid.T) int64 {
			return rapid.Int64Range(-2, int64(len(model)+1)).Draw(t, "index")
		}
		known := func(i int64) bool { return i >= 0 && i < int64(len(model)) }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 700).Draw(t, "count") {
					next += rapid.Int64Range(0, 3).Draw(t, "gap")
					bytes := rapid.IntRange(0, 100).Draw(t, "bytes")
					require.Equal(t, int64(len(model)), tr.add(next, time.Time{}, time.Time{}, bytes))
					model = append(model, rec{offset: next, bytes: bytes})
					next++
				}
			},
			"finish": func(t *rapid.T) {
				i := some(t)
				tr.finish(i)
				if known(i) {
					model[i].finished = true
				}
			},
			"finishRun": func(t *rapid.T) {
				for i := range min(int64(len(model)), rapid.Int64Range(0, 2000).Draw(t, "upto")) {
					tr.finish(i)
					model[i].finished = true
				}
			},
			"abandon": func(t *rapid.T) {
				i := some(t)
				tr.abandon(i)
				if known(i) && !model[i].finished {
					model[i].abandoned = true
				}
			},
			"": func(t *rapid.T) {
				done, unfinished, awaited, bytes, span := int64(-1), 0, 0, 0, len(model)
				hole := false
				for i, r := range model {
					if !r.finished {
						if !hole {
							span = len(model) - i
						}
						hole = true
						unfinished++
						bytes += r.bytes
						if !r.abandoned {
							awaited++
						}
					}
					if !hole {
						done = r.offset + 1
					}
				}
				if !hole {
					span = 0
				}
				require.Equal(t, done, tr.committable())
				require.GreaterOrEqual(t, tr.committable(), last, "never backwards")
				last = done
				require.Equal(t, unfinished, tr.unfinished)
				require.Equal(t, awaited, tr.awaited)
				require.Equal(t, bytes, tr.bytes)
				require.Equal(t, span, tr.span())
				require.Equal(t, hole, tr.oldest() != nil)
				if hole {
					require.Equal(t, model[len(model)-span].offset, tr.oldest().offset)
				}
			},
		})
	})
}

// The tracker gives memory back while a consumer runs for ever.
func TestTrackerCompacts(t *testing.T) {
	t.Parallel()
	tr := newTracker()
	for i := range int64(100_000) {
		tr.add(i, time.Time{}, time.Time{}, 1)
		if i >= 10 {
			tr.finish(i - 10)
		}
	}
	require.Less(t, cap(tr.entries), 4096)
	require.Equal(t, 10, tr.span())
}
