package sim

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// mostContradictions bounds how often each charge is contradicted at once.
const mostContradictions = 100

// Contradict sends callbacks that say the opposite of what the books say, rightly
// signed, about every charge that was decided: so many of each, every one with an id
// that no other has. It returns how many there are, and does not wait for them.
func (s *Server) Contradict(times int) (int, error) {
	if times < 1 || times > mostContradictions {
		return 0, fmt.Errorf("set times between 1 and %d", mostContradictions)
	}
	if s.news.target.Load() == nil {
		return 0, errors.New("there is nobody to call back: set the callback target first")
	}
	sent, now := 0, time.Now()
	s.books.each(func(charge Charge) bool {
		b := booking{charge.Reference, charge.BookedAmount, charge.BookedCurrency}
		c, news := callbackOf(charge.ProviderKey, charge.Status, b, charge.PaymentID, now)
		if !news || charge.Status != StatusSettled && !charge.Status.failed() {
			return true
		}
		for n := range times {
			said := c.opposite()
			said.ID = fmt.Sprintf("%s_%d_%d", said.ID, now.UnixNano(), n)
			s.deliver([]posting{{body: said}})
			sent++
		}
		return true
	})
	return sent, nil
}

// contradiction is the body of POST /admin/callbacks/contradict, and sent what is
// answered.
type contradiction struct {
	Times int `json:"times"`
	Sent  int `json:"sent,omitempty"`
}

func (s *Server) postContradict(w http.ResponseWriter, r *http.Request) {
	var ordered contradiction
	err := readJSON(r, &ordered)
	if err == nil {
		ordered.Sent, err = s.Contradict(ordered.Times)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest, err.Error())
		return
	}
	writeJSON(w, http.StatusOK, ordered)
}
