package edge

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// patience is how long a request may wait, and says in the answer what was
// granted (RFC 7240). What cannot be read is ignored, as that RFC wants it.
func (s *Server) patience(w http.ResponseWriter, r *http.Request, usual time.Duration) time.Duration {
	asked, ok := preferredWait(r.Header.Values("Prefer"))
	if !ok {
		return usual
	}
	granted := min(asked, s.cfg.MaxWait)
	setApplied(w, granted)
	w.Header().Set("Vary", "Prefer")
	return granted
}

// preferenceApplied says in an answer what was granted.
const preferenceApplied = "Preference-Applied"

func setApplied(w http.ResponseWriter, granted time.Duration) {
	w.Header().Set(preferenceApplied, "wait="+strconv.FormatInt(int64(granted/time.Second), 10))
}

// preferredWait finds wait=N among preferences. The first one counts.
func preferredWait(values []string) (time.Duration, bool) {
	for _, value := range values {
		for preference := range strings.SplitSeq(value, ",") {
			preference, _, _ = strings.Cut(preference, ";") // parameters
			name, text, _ := strings.Cut(preference, "=")
			if !strings.EqualFold(strings.TrimSpace(name), "wait") {
				continue
			}
			seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(text), `"`), 10, 31)
			return time.Duration(seconds) * time.Second, err == nil
		}
	}
	return 0, false
}
