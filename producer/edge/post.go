package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// post takes a payment: POST /v1/payments. Every request is published, a repeat
// too: the consumer answers it from the first outcome, keeps the key for longer,
// and leaves in the history what this delivery was told.
func (s *Server) post(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	caller := &callOf(r.Context()).caller
	cmd, problem := s.read(w, r, caller, arrived)
	if problem != nil {
		writeProblem(w, r, problem)
		return
	}
	callOf(r.Context()).payment = cmd.Identity().PaymentID()
	fingerprint, err := cmd.Fingerprint()
	if err != nil { // it is valid UTF-8, so there is one
		writeProblem(w, r, commandProblem(err))
		return
	}
	place, problem := s.publish(r, &cmd, caller)
	if problem != nil {
		writeProblem(w, r, problem)
		return
	}
	crashpoint.Here(crashpoint.EdgePublished)
	w.Header().Set("Location", routePayments+"/"+cmd.IdempotencyKey.String())
	ours := content{&cmd, fingerprint}
	wait, leave := s.seat(w, caller.Name, s.patience(w, r, s.cfg.Wait))
	defer leave()
	found := s.judged(r, ours, wait)
	if found == nil {
		writeJSON(w, http.StatusAccepted, acceptedView(&cmd))
		return
	}
	repeat := !isFirst(found, place, arrived)
	crashpoint.Here(crashpoint.EdgeJudged)
	answer(w, r, found, ours, repeat)
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, caller *Caller, arrived time.Time) (payment.Command, *Problem) {
	key, problem := s.keyOrGrace(w, r, caller)
	if problem != nil {
		return payment.Command{}, problem
	}
	body, problem := readBody(w, r)
	if problem != nil {
		return payment.Command{}, problem
	}
	return command(body, key, caller, arrived)
}

// publish brings the command to Kafka (G5). An error says nothing about whether
// it is there: the client sends it again, with its key (G1).
func (s *Server) publish(r *http.Request, cmd *payment.Command, caller *Caller) (producer.Place, *Problem) {
	topic, ok := s.cfg.Topic(caller.Name)
	if !ok {
		return producer.Place{}, problemOf(CodeCallerNotAllowed, "no command topic carries this caller's commands: ask its operators")
	}
	// A client that hangs up does not take back what it asked for.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.PublishTimeout)
	defer cancel()
	crashpoint.Here(crashpoint.EdgeStart)
	span := s.sending(r, cmd, topic)
	place, err := s.cfg.Sender.Send(ctx, *cmd, producer.Options{Topic: topic, Headers: traceHeaders(r, span.Context())})
	sent(span, place, err)
	switch {
	case err == nil:
		return place, nil
	case errors.Is(err, producer.ErrInvalid):
		return producer.Place{}, commandProblem(err)
	case errors.Is(err, kafka.ErrMessageTooLarge):
		return producer.Place{}, problemOf(CodeBodyTooLarge, "the command topic does not take so large a payment")
	case errors.Is(err, producer.ErrClosed):
		return producer.Place{}, s.unavailable(r, err)
	}
	s.cfg.Logger.Warn().Err(err).Str("request_id", requestID(r.Context())).Msg("a payment was not acknowledged by Kafka")
	return producer.Place{}, problemOf(CodeNotDurable,
		"the payment may be taken or not: send the same request again, with the same key").after(time.Second)
}

// content is what a delivery asks for.
type content struct {
	command     *payment.Command
	fingerprint payment.Fingerprint
}

// of reports whether the payment is of this content, as the claim judges it: one
// that was imported may not know all of it (G8).
func (c content) of(p *store.Payment) bool { return p.Fingerprint.Matches(c.command, c.fingerprint) }

// judged waits for what this delivery comes to: an outcome, a rejection, or
// another content under the key. It returns what is known when the time is over,
// nil where the command was not claimed yet, or nobody can say.
func (s *Server) judged(r *http.Request, ours content, wait time.Duration) *store.Payment {
	id := ours.command.Identity().PaymentID()
	if wait <= 0 { // a repeat gets the first outcome even so
		return s.known(r, id)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	return s.watch.wait(ctx, s.draining, id, func(p *store.Payment) bool {
		return p.State.Terminal() || !ours.of(p)
	})
}

// known is the payment as it is now; nil where it is not there, or nobody can say.
func (s *Server) known(r *http.Request, id uuid.UUID) *store.Payment {
	found, err := s.cfg.Reader.Look(r.Context(), []uuid.UUID{id})
	if err != nil || len(found) == 0 {
		return nil
	}
	return &found[0]
}

// isFirst reports whether the delivery at that place is the one that brought the
// payment in. The database says which one that was; where Kafka did not say which
// one is ours, the time of arrival decides.
func isFirst(p *store.Payment, place producer.Place, arrived time.Time) bool {
	if place.Offset < 0 {
		return !p.CreatedAt.Before(arrived)
	}
	return p.Origin.Topic == place.Topic && p.Origin.Partition == place.Partition && p.Origin.Offset == place.Offset
}

// answer says what this delivery was told. A conflict is told from what the
// database holds, never guessed: the record of another request may have won (G8).
func answer(w http.ResponseWriter, r *http.Request, p *store.Payment, ours content, repeat bool) {
	if !ours.of(p) {
		writeProblem(w, r, problemOf(CodeIdempotencyClash,
			"nothing was changed: the payment under this key goes on; a new intent needs a new key"))
		return
	}
	if repeat {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	switch {
	case p.State == payment.Rejected:
		writeProblem(w, r, rejection(p))
	case p.State.Terminal():
		writeJSON(w, http.StatusOK, viewOf(p))
	default:
		writeJSON(w, http.StatusAccepted, viewOf(p))
	}
}

// rejection is the problem of a payment that was refused before any send, and
// stays so under its key (G2).
func rejection(p *store.Payment) *Problem {
	problem := problemOf(Code(p.Cause), p.Detail)
	if problem.Code != Code(p.Cause) { // a reason that is newer than this table
		problem.Status, problem.Code = http.StatusConflict, Code(p.Cause)
		problem.Title = "The command was refused, and is remembered as refused"
	}
	problem.BlockedBy, problem.Payment = p.BlockedBy, viewOf(p)
	return problem
}
