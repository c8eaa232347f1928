package sim

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"
)

// Server is the provider: an http.Handler over its books. Close ends it.
type Server struct {
	books *books
	live  atomic.Pointer[settings]
	rules ruleBook
	mux   *http.ServeMux
	news  *newsroom

	inFlight, maxInFlight atomic.Int64
	requests, queries     atomic.Int64
	redirected            atomic.Int64
	meter                 meter

	// early bounds how long an answer waits for its own callback, drain what requests
	// under way get when the server stops.
	early, drain time.Duration

	stop  chan struct{}
	close sync.Once
	tasks sync.WaitGroup
}

// settings are a behaviour and what belongs to it; replaced as a whole.
type settings struct {
	Behaviour // with its defaults

	given   Behaviour // without them, for changes to some fields
	limiter *rate.Limiter
}

// NewServer opens the ledger at the path (empty: kept in memory only) and makes
// a server with the behaviour. It starts nothing before the first request, but
// the settlements that an earlier process left open go on.
func NewServer(ledgerPath string, behaviour Behaviour) (*Server, error) {
	if err := behaviour.Validate(); err != nil {
		return nil, err
	}
	opened, err := openBooks(ledgerPath)
	if err != nil {
		return nil, err
	}
	s := &Server{
		books: opened, news: newNewsroom(), stop: make(chan struct{}), meter: meter{since: time.Now().UTC()},
		early: earlyPatience, drain: drainTime,
	}
	s.apply(behaviour)
	s.mux = s.routes()
	for key, due := range opened.unsettled() {
		s.settleIn(nil, key, time.Until(due))
	}
	return s, nil
}

// SetBehaviour changes what the server does from now on.
func (s *Server) SetBehaviour(behaviour Behaviour) error {
	if err := behaviour.Validate(); err != nil {
		return err
	}
	s.apply(behaviour)
	return nil
}

// Behaviour returns a copy of what the server does now.
func (s *Server) Behaviour() Behaviour {
	behaviour := s.live.Load().Behaviour
	behaviour.Rates = maps.Clone(behaviour.Rates)
	return behaviour
}

func (s *Server) apply(behaviour Behaviour) {
	set := &settings{Behaviour: behaviour.WithDefaults(), given: behaviour}
	if behaviour.RateLimit > 0 {
		set.limiter = rate.NewLimiter(rate.Limit(behaviour.RateLimit), max(1, int(behaviour.RateLimit/10)))
	}
	s.live.Store(set)
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close drops what is held, ends what waits, and closes the ledger. Requests
// must have ended before, or end with an error.
func (s *Server) Close() error {
	s.halt()
	s.tasks.Wait()
	s.news.client.CloseIdleConnections()
	return s.books.journal.close()
}

// halt ends every wait: held requests are dropped.
func (s *Server) halt() {
	s.close.Do(func() {
		close(s.stop)
		s.news.cut()
	})
}

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/charges", s.postCharge)
	mux.HandleFunc("GET /v1/charges/{key}", s.getCharge)
	mux.HandleFunc("GET /ledger", s.getLedger)
	mux.HandleFunc("GET /ledger/summary", s.getSummary)
	mux.HandleFunc("GET /ledger/load", s.getLoad)
	mux.HandleFunc("GET /admin/behaviour", s.getBehaviour)
	mux.HandleFunc("PUT /admin/behaviour", s.putBehaviour)
	mux.HandleFunc("PATCH /admin/behaviour", s.putBehaviour)
	mux.HandleFunc("POST /admin/faults", s.postFaults)
	mux.HandleFunc("GET /admin/faults", s.getFaults)
	mux.HandleFunc("DELETE /admin/faults", s.deleteFaults)
	mux.HandleFunc("GET /admin/callbacks", s.getCallbacks)
	mux.HandleFunc("PUT /admin/callbacks", s.putCallbacks)
	mux.HandleFunc("POST /admin/callbacks/contradict", s.postContradict)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, "ok") })
	return mux
}

// settleIn settles a charge in processing after the duration, unless the server
// is closed before; the next process goes on with it then.
func (s *Server) settleIn(p plan, key uuid.UUID, d time.Duration) {
	s.tasks.Go(func() {
		if s.wait(context.Background(), d) == nil && s.books.settle(key) == nil { // a broken ledger tells itself with the next charge
			s.tellSettled(p, key)
		}
	})
}

var errStopped = errors.New("the server is stopping")

// wait returns after the duration, or earlier with an error when the context or
// the server ends.
func (s *Server) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enter counts a submit as in flight and returns how many there are.
func (s *Server) enter() int64 {
	s.meter.count(1, 0)
	n := s.inFlight.Add(1)
	for top := s.maxInFlight.Load(); n > top && !s.maxInFlight.CompareAndSwap(top, n); top = s.maxInFlight.Load() {
	}
	return n
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "cannot show the answer", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}
