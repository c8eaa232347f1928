package sim

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

var (
	errBadKey  = errors.New("the Idempotency-Key is not a UUID")
	errBadBody = errors.New("the body is not a charge")
)

// Answer is the body of every answer about a charge.
type Answer struct {
	// ID is the provider's id of the charge.
	ID string `json:"id,omitempty"`
	// Status is what became of it.
	Status Status `json:"status,omitempty"`
	// ProviderKey, Amount and Currency echo what was charged.
	ProviderKey string `json:"providerKey,omitempty"`
	Amount      int64  `json:"amount,omitempty"`
	Currency    string `json:"currency,omitempty"`
	// Cause is the reason of a decline or refusal.
	Cause string `json:"cause,omitempty"`
	// Code names what went wrong where there is no status: "not_found", "in_progress",
	// "throttled", "account_refused", "key_reused" and others.
	Code string `json:"code,omitempty"`
	// Replayed says that the answer comes from the memory of the key.
	Replayed bool `json:"replayed,omitempty"`
}

// reply is what goes back on the connection.
type reply struct {
	status     int
	body       Answer
	retryAfter int
	location   string
	hangUp     bool // no answer, the connection is closed
	reset      bool // closed with a reset
	garbage    bool
	truncated  bool
}

func failure(status int, code string) reply { return reply{status: status, body: Answer{Code: code}} }

func throttled() reply {
	return reply{status: http.StatusTooManyRequests, body: Answer{Code: "throttled"}, retryAfter: 1}
}

func inProgress(key uuid.UUID) reply {
	return reply{status: http.StatusConflict, body: Answer{Code: "in_progress", ProviderKey: key.String()}}
}

// send writes the reply, or takes the connection over to misbehave on it.
func (r reply) send(w http.ResponseWriter) {
	switch {
	case r.hangUp:
		hangUp(w, nil, r.reset)
	case r.truncated:
		hangUp(w, []byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 400\r\n\r\n{\"status\":\"settl"), false)
	case r.garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>the gateway is thinking of something else</html>"))
	default:
		r.write(w)
	}
}

func (r reply) write(w http.ResponseWriter) {
	text := r.body.appendJSON(make([]byte, 0, 256))
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Content-Length"] = []string{strconv.Itoa(len(text))}
	if r.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(r.retryAfter))
	}
	if r.location != "" {
		header.Set("Location", r.location)
	}
	w.WriteHeader(r.status)
	_, _ = w.Write(text)
}

var jsonType = []string{"application/json"}

// hangUp writes raw bytes and closes the connection, cleanly or with a reset.
func hangUp(w http.ResponseWriter, raw []byte, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil { // not a real connection: all that can be done
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = conn.Write(raw)
	if tcp, ok := conn.(interface{ SetLinger(seconds int) error }); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
