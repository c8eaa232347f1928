package kafka

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
)

// A fresh cluster has no group coordinator for some seconds: nobody is warned
// of that. An outage is told at once, and then seldom.
func TestFailedJoinsAreToldSeldom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want int
	}{
		{"fresh cluster", kafkago.GroupCoordinatorNotAvailable, 0},
		{"outage", errors.New("connection refused"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := joinLog{log: zerolog.New(&out)}
			warnings := func() int { return strings.Count(out.String(), `"level":"warn"`) }
			at := time.Now()
			for range 59 { // twice a second
				log.add(at, c.err, "again")
				at = at.Add(500 * time.Millisecond)
			}
			require.Equal(t, c.want, warnings())
			for range 2 * 60 {
				at = at.Add(500 * time.Millisecond)
				log.add(at, c.err, "again")
			}
			require.Equal(t, c.want+1, warnings())
		})
	}
}
