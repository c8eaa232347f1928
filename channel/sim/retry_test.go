package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A date in Retry-After is counted from the date of the answer, whose clock it is
// of; ours may be hours off.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		date, after string
		want        time.Duration
	}{
		{"", "7", 7 * time.Second},
		{"", "0.5", 500 * time.Millisecond},
		{"", "-3", 0},
		{"", "soon", 0},
		{"", "", 0},
		{"Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 10:00:09 GMT", 9 * time.Second},
		{"Mon, 30 Nov 2037 10:00:00 GMT", "Mon, 30 Nov 2037 10:00:09 GMT", 9 * time.Second},
		{"Mon, 30 Nov 2026 10:00:00 GMT", "Mon, 30 Nov 2026 09:00:00 GMT", 0},
		{"", "Mon, 30 Nov 2020 10:00:00 GMT", 0},
	} {
		header := http.Header{"Retry-After": []string{c.after}}
		if c.date != "" {
			header.Set("Date", c.date)
		}
		require.Equal(t, c.want, retryAfter(header), c)
	}
}
