package edge

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/payment"
)

const keyHeader = "Idempotency-Key"

// keyOf reads the Idempotency-Key header: a UUID v4, as a string of structured
// fields (draft-ietf-httpapi-idempotency-key-header) or bare.
func keyOf(r *http.Request) (uuid.UUID, *Problem) {
	values := r.Header.Values(keyHeader)
	if len(values) == 0 {
		return uuid.Nil, problemOf(CodeMissingKey, "make a UUID version 4 once per intent, keep it, and send it in every retry")
	}
	text := strings.TrimSpace(values[0])
	if inner, ok := strings.CutPrefix(text, `"`); ok {
		text = strings.TrimSuffix(inner, `"`)
		if len(text) == len(inner) {
			text = "" // a quote that is not closed
		}
	}
	key, ok := payment.ParseKey(text)
	if !ok || len(values) > 1 {
		return uuid.Nil, problemOf(CodeInvalidKey, `send one UUID version 4 in its 36-character form, bare or as "..."`)
	}
	return key, nil
}

// keyOrGrace is keyOf, and makes up a key for a caller that may still leave it
// out. A key that is there and wrong is refused from everybody: it is no sign of
// a client that does not know keys.
func (s *Server) keyOrGrace(w http.ResponseWriter, r *http.Request, caller *Caller) (uuid.UUID, *Problem) {
	key, problem := keyOf(r)
	if problem == nil || problem.Code != CodeMissingKey || !time.Now().Before(caller.GraceUntil) {
		return key, problem
	}
	key, err := uuid.NewRandom()
	if err != nil {
		return uuid.Nil, s.unavailable(r, err)
	}
	h := w.Header()
	h.Set(keyHeader, `"`+key.String()+`"`)
	h.Set("Deprecation", "@"+strconv.FormatInt(s.cfg.KeysSince.Unix(), 10)) // RFC 9745
	h.Set("Sunset", caller.GraceUntil.UTC().Format(http.TimeFormat))        // RFC 8594
	h.Set("Link", `<`+docs+`#clients-without-a-key>; rel="deprecation"; type="text/html"`)
	s.cfg.Metrics.EdgeKeyMadeUp(caller.Name)
	return key, nil
}
