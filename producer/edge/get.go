package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// get shows a payment: GET /v1/payments/{key}. With Prefer: wait=N it waits for
// the outcome. Another caller's payment has another id: looking for it takes the
// same look-up, finds nothing, and says the same as for one that never was (G12).
func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	id, problem := s.paymentOf(r)
	if problem != nil {
		writeProblem(w, r, problem)
		return
	}
	found, err := s.cfg.Reader.Look(r.Context(), []uuid.UUID{id})
	if err != nil {
		writeProblem(w, r, s.unavailable(r, err))
		return
	}
	var p *store.Payment
	if len(found) > 0 {
		p = &found[0]
	}
	if wait := s.patience(w, r, 0); wait > 0 && (p == nil || !p.State.Terminal()) {
		p = s.outcome(w, r, id, p, wait)
	}
	if p == nil {
		writeProblem(w, r, notFound())
		return
	}
	writeJSON(w, http.StatusOK, viewOf(p))
}

func notFound() *Problem {
	return problemOf(CodeNotFound, "no payment of yours has this key; one that was just accepted shows up once it is claimed")
}

// paymentOf is the id that the path's key has for this caller.
func (s *Server) paymentOf(r *http.Request) (uuid.UUID, *Problem) {
	key, ok := payment.ParseKey(r.PathValue("key"))
	if !ok {
		return uuid.Nil, problemOf(CodeInvalidKey, "the path ends in the idempotency key: a UUID version 4 in its 36-character form")
	}
	c := callOf(r.Context())
	c.payment = payment.Identity{Caller: c.caller.Name, Operation: payment.OperationCharge, Key: key}.PaymentID()
	return c.payment, nil
}

// outcome waits for the end of a payment, and returns it as it was seen last.
func (s *Server) outcome(w http.ResponseWriter, r *http.Request, id uuid.UUID, p *store.Payment, wait time.Duration) *store.Payment {
	wait, leave := s.seat(w, callOf(r.Context()).caller.Name, wait)
	defer leave()
	if wait <= 0 {
		return p
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	if seen := s.watch.wait(ctx, s.draining, id, func(p *store.Payment) bool { return p.State.Terminal() }); seen != nil {
		return seen
	}
	return p
}

// maxStory bounds the entries of each list of a history.
const maxStory = 200

const (
	storiesAtOnce = 4
	storyTimeout  = 5 * time.Second
)

// historyView is what happened to a payment.
type historyView struct {
	Payment    *Payment         `json:"payment"`
	History    []transitionView `json:"history"`
	Deliveries []deliveryView   `json:"deliveries"`
}

// transitionView is a change of a payment. Who made it is ours to know.
type transitionView struct {
	At                time.Time `json:"at"`
	State             string    `json:"state"`
	Version           int       `json:"version"`
	Attempt           int       `json:"attempt"`
	Send              int       `json:"send"`
	ProviderReference string    `json:"providerReference,omitempty"`
	Cause             string    `json:"cause,omitempty"`
}

// deliveryView is what one delivery was told.
type deliveryView struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Code    string    `json:"code,omitempty"`
	State   string    `json:"state"`
	Version int       `json:"version"`
}

// history shows what happened: GET /v1/payments/{key}/history.
func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	id, problem := s.paymentOf(r)
	if problem != nil {
		writeProblem(w, r, problem)
		return
	}
	story, err := s.story(r.Context(), id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		writeProblem(w, r, notFound())
	case err != nil:
		writeProblem(w, r, s.unavailable(r, err))
	default:
		writeJSON(w, http.StatusOK, storyView(&story))
	}
}

// story reads a history, a few at a time: it reads what all payments did between
// the first and the last entry, which is no work for everybody at once.
func (s *Server) story(ctx context.Context, id uuid.UUID) (store.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	select {
	case s.stories <- struct{}{}:
		defer func() { <-s.stories }()
	case <-ctx.Done():
		return store.Status{}, ctx.Err()
	}
	return s.cfg.Reader.Story(ctx, id, maxStory)
}

func storyView(story *store.Status) historyView {
	v := historyView{
		Payment: viewOf(&story.Payment), History: make([]transitionView, 0, len(story.History)),
		Deliveries: make([]deliveryView, 0, len(story.Deliveries)),
	}
	for _, t := range story.History {
		v.History = append(v.History, transitionView{
			At: t.At.UTC(), State: t.State.String(), Version: t.Version, Attempt: t.Attempt, Send: t.Send,
			ProviderReference: t.ProviderReference, Cause: t.Cause,
		})
	}
	for _, d := range story.Deliveries {
		v.Deliveries = append(v.Deliveries, deliveryView{
			At: d.At.UTC(), Kind: string(d.Kind), Code: string(d.Code), State: d.State.String(), Version: d.Version,
		})
	}
	return v
}
