// Package mailgate simulates a mail gateway: it takes mails over HTTP, keeps the
// answer to some of them, and may or may not know a Message-Id that it has had
// before.
package mailgate

import (
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
)

// Gateway is the simulator.
type Gateway struct {
	// Dedupes says whether a Message-Id that was taken before is dropped, as good
	// gateways do.
	Dedupes bool
	// LostAnswers is the share of mails whose answer is lost after they were taken.
	LostAnswers float64

	mu        sync.Mutex
	delivered map[string]int // mails that went out, by Message-Id
	requests  int
}

// maxMail bounds a request's body.
const maxMail = 64 << 10

// ServeHTTP takes a mail (POST /mails, header Message-Id), or tells what was
// delivered (GET /mails).
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(g.Delivered()) //nolint:errchkjson // the client has gone, or it works
		return
	}
	id := r.Header.Get("Message-Id")
	if id == "" {
		http.Error(w, "send a Message-Id", http.StatusBadRequest)
		return
	}
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxMail)); err != nil {
		http.Error(w, "the mail is too large", http.StatusRequestEntityTooLarge)
		return
	}
	g.take(id)
	if rand.Float64() < g.LostAnswers {
		// The mail is out, and nobody is told.
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (g *Gateway) take(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests++
	if g.delivered == nil {
		g.delivered = map[string]int{}
	}
	if g.delivered[id] > 0 && g.Dedupes {
		return
	}
	g.delivered[id]++
}

// Delivered is how often each Message-Id went out.
func (g *Gateway) Delivered() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.delivered)
}
