package payment

import (
	"strings"
	"time"
)

// DurationText writes a duration as people write it: 336h and 5m, where
// time.Duration prints 336h0m0s and 5m0s.
func DurationText(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
