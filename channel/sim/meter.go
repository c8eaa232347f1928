package sim

import (
	"net/http"
	"sync"
	"time"
)

// meterSpan is how many seconds the meter remembers.
const meterSpan = 3600

// Load is what arrived, second by second, since the server started, for the last
// hour at most.
type Load struct {
	// Since is when the server started.
	Since time.Time `json:"since"`
	// Seconds are those in which something arrived, the earliest first.
	Seconds []LoadSecond `json:"seconds"`
}

// LoadSecond is what arrived in one second.
type LoadSecond struct {
	// At is its begin, in seconds since 1970.
	At      int64 `json:"at"`
	Submits int   `json:"submits"`
	Queries int   `json:"queries"`
	// Refused are those of both that were turned away at once, as if the channel were
	// out of service (ErrorBefore, QueryError).
	Refused int `json:"refused,omitempty"`
}

// meter counts arrivals per second.
type meter struct {
	since time.Time

	mu      sync.Mutex
	seconds [meterSpan]LoadSecond
}

func (m *meter) count(submits, queries int) { m.add(LoadSecond{Submits: submits, Queries: queries}) }

// refuse counts a request that is turned away.
func (m *meter) refuse() { m.add(LoadSecond{Refused: 1}) }

func (m *meter) add(n LoadSecond) {
	at := time.Now().Unix()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.seconds[at%meterSpan]
	if s.At != at {
		*s = LoadSecond{At: at}
	}
	s.Submits += n.Submits
	s.Queries += n.Queries
	s.Refused += n.Refused
}

// load lists the seconds that are remembered.
func (m *meter) load() Load {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := Load{Since: m.since, Seconds: []LoadSecond{}}
	now := time.Now().Unix()
	for at := now - meterSpan + 1; at <= now; at++ {
		if s := m.seconds[at%meterSpan]; s.At == at {
			l.Seconds = append(l.Seconds, s)
		}
	}
	return l
}

// Load tells what arrived, second by second.
func (s *Server) Load() Load { return s.meter.load() }

func (s *Server) getLoad(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Load())
}
