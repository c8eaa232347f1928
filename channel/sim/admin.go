package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
)

// Summary counts what the ledger holds.
type Summary struct {
	// Keys counts provider keys that arrived.
	Keys int `json:"keys"`
	// Settled and Declined count the keys that stand so.
	Settled  int `json:"settled"`
	Declined int `json:"declined"`
	// Charges counts how often money was taken, over all keys.
	Charges int `json:"charges"`
	// DoubleCharged counts the keys whose money was taken more than once.
	DoubleCharged int `json:"doubleCharged"`
	// DeclinedAndCharged counts keys with a settlement and a decline.
	DeclinedAndCharged int `json:"declinedAndCharged"`
	// Executions counts executed requests.
	Executions int `json:"executions"`
	// Requests and Queries count what arrived since the server started.
	Requests int64 `json:"requests"`
	Queries  int64 `json:"queries"`
	// Redirected counts submits that followed a redirect, which nobody may.
	Redirected int64 `json:"redirected"`
	// InFlight and MaxInFlight count the submits under way now and at most.
	InFlight    int64 `json:"inFlight"`
	MaxInFlight int64 `json:"maxInFlight"`
}

// Summary counts the ledger.
func (s *Server) Summary() Summary {
	sum := Summary{
		Requests: s.requests.Load(), Queries: s.queries.Load(), Redirected: s.redirected.Load(),
		InFlight: s.inFlight.Load(), MaxInFlight: s.maxInFlight.Load(),
	}
	s.books.each(func(c Charge) bool {
		sum.add(&c)
		return true
	})
	return sum
}

func (sum *Summary) add(c *Charge) {
	sum.Keys++
	sum.Charges += c.Settled
	sum.Executions += c.Executions
	if c.Status == StatusSettled {
		sum.Settled++
	}
	if c.Status.failed() {
		sum.Declined++
	}
	if c.Settled > 1 {
		sum.DoubleCharged++
	}
	if c.Settled > 0 && c.Declined > 0 {
		sum.DeclinedAndCharged++
	}
}

// Charges returns a copy of every charge in the ledger, in no order.
func (s *Server) Charges() []Charge {
	var charges []Charge
	s.books.each(func(c Charge) bool {
		charges = append(charges, c)
		return true
	})
	return charges
}

// AddRule scripts faults.
func (s *Server) AddRule(rule Rule) error { return s.rules.add(rule) }

func (s *Server) getLedger(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := bufio.NewWriterSize(w, 64<<10)
	encoder := json.NewEncoder(out)
	s.books.each(func(c Charge) bool { return encoder.Encode(c) == nil })
	_ = out.Flush()
}

func (s *Server) getSummary(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Summary())
}

func (s *Server) getBehaviour(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Behaviour())
}

// putBehaviour replaces the behaviour; PATCH changes what is given only.
func (s *Server) putBehaviour(w http.ResponseWriter, r *http.Request) {
	behaviour := DefaultBehaviour()
	if r.Method == http.MethodPatch {
		behaviour = s.live.Load().given
		behaviour.Rates = maps.Clone(behaviour.Rates)
	}
	if err := readJSON(r, &behaviour); err != nil {
		writeJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := s.SetBehaviour(behaviour); err != nil {
		writeJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, s.Behaviour())
}

func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	var rule Rule
	err := readJSON(r, &rule)
	if err == nil {
		err = s.rules.add(rule)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusCreated, rule)
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.rules.list())
}

func (s *Server) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	s.rules.clear()
	w.WriteHeader(http.StatusNoContent)
}

func readJSON(r *http.Request, into any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	return nil
}
