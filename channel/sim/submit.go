package sim

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"
)

const maxBody = 64 << 10

// KeyHeader carries the provider key of a submit.
const KeyHeader = "Idempotency-Key"

// submit is one POST on its way through the server.
type submit struct {
	key     uuid.UUID
	content Content
	send    int
	plan    plan
	rules   *settings
}

// postCharge takes a submit. Once it is counted nothing about the client matters
// any more: a request is executed though the client has left.
func (s *Server) postCharge(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	now := s.enter()
	defer s.inFlight.Add(-1)
	key, content, err := readCharge(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, Answer{Code: "invalid_request", ProviderKey: r.Header.Get(KeyHeader), Cause: err.Error()})
		return
	}
	if r.URL.RawQuery == "redirected" {
		s.redirected.Add(1)
	}
	sub := &submit{key: key, content: content, rules: s.live.Load()}
	sub.send = s.books.arrive(key, &sub.content, time.Now())
	sub.plan = s.planSubmit(sub)
	s.take(r.Context(), sub, now).send(w)
}

func readCharge(r *http.Request) (uuid.UUID, Content, error) {
	key, err := uuid.Parse(r.Header.Get(KeyHeader))
	if err != nil {
		return uuid.Nil, Content{}, errBadKey
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return uuid.Nil, Content{}, errBadBody
	}
	content, err := readContent(body)
	if err != nil || content.Amount <= 0 || content.Currency == "" {
		return uuid.Nil, Content{}, errBadBody
	}
	return key, content, nil
}

func readContent(body []byte) (Content, error) {
	var content Content
	if content.readPlain(body) {
		return content, nil
	}
	content = Content{}
	err := json.Unmarshal(body, &content)
	return content, err
}

// take decides about a submit: first what keeps it from being executed, then the
// execution, then what happens to the answer.
func (s *Server) take(ctx context.Context, sub *submit, inFlight int64) reply {
	if answer, refused := s.refuse(ctx, sub, inFlight); refused {
		return answer
	}
	if hold, held := sub.plan.find(Late); held && !s.hold(sub, hold.For) {
		return s.drop(sub, Late, reply{hangUp: true, reset: true})
	}
	if !s.books.begin(sub.key, sub.rules.IdempotentSubmit) {
		return s.drop(sub, InProgress, inProgress(sub.key))
	}
	if s.wait(context.Background(), sub.rules.Latency) != nil {
		s.books.abandon(sub.key)
		return s.drop(sub, "stopped", reply{hangUp: true, reset: true})
	}
	result, err := s.books.execute(sub.key, sub.send, &sub.content, sub.plan, &sub.rules.Behaviour)
	if err != nil {
		return failure(http.StatusInternalServerError, "ledger_unavailable")
	}
	if result.settleIn > 0 {
		s.settleIn(sub.plan, sub.key, result.settleIn)
	}
	s.tell(sub.plan, sub.key, &sub.content, result)
	return s.answer(ctx, sub, result)
}

// hold keeps a request in the network; false when it is dropped there.
func (s *Server) hold(sub *submit, d time.Duration) bool {
	return d+sub.rules.Latency <= sub.rules.LongestExecution && s.wait(context.Background(), d) == nil
}

// refuse answers what is not executed.
func (s *Server) refuse(ctx context.Context, sub *submit, inFlight int64) (reply, bool) {
	for _, fault := range sub.plan {
		switch fault.Kind {
		case AccountRefused:
			return s.drop(sub, AccountRefused, failure(http.StatusUnauthorized, "account_refused")), true
		case ErrorBefore:
			s.meter.refuse()
			return s.drop(sub, ErrorBefore, failure(http.StatusServiceUnavailable, "unavailable")), true
		case ResetBefore:
			return s.drop(sub, ResetBefore, reply{hangUp: true, reset: true}), true
		case InProgress:
			return s.drop(sub, InProgress, inProgress(sub.key)), true
		case Redirect:
			return s.drop(sub, Redirect, reply{status: http.StatusTemporaryRedirect, location: "/v1/charges?redirected"}), true
		case Blackhole:
			_ = s.wait(ctx, fault.For)
			return s.drop(sub, Blackhole, reply{hangUp: true, reset: true}), true
		default:
		}
	}
	scripted := sub.plan.has(Throttled) && sub.rules.ThrottleNotApplied
	if scripted || s.overLimit(sub.rules, inFlight) {
		return s.drop(sub, Throttled, throttled()), true
	}
	return reply{}, false
}

func (s *Server) overLimit(rules *settings, inFlight int64) bool {
	if rules.MaxInFlight > 0 && inFlight > int64(rules.MaxInFlight) {
		return true
	}
	return rules.limiter != nil && !rules.limiter.Allow()
}

func (s *Server) drop(sub *submit, why Kind, answer reply) reply {
	s.books.note(sub.key, sub.send, string(why), &sub.content)
	return answer
}

// answer tells the client what an execution came to, if it is to hear of it.
func (s *Server) answer(ctx context.Context, sub *submit, v verdict) reply {
	answer := reply{status: statusOf(v.status), body: Answer{
		ID: v.reference, Status: v.status, ProviderKey: sub.key.String(), Amount: v.amount, Currency: v.currency, Replayed: v.repeated,
	}}
	if v.reused {
		answer = reply{status: http.StatusUnprocessableEntity, body: Answer{Code: "key_reused", ProviderKey: sub.key.String()}}
	}
	if v.status.failed() {
		answer.body.Cause = "card_" + string(v.status)
	}
	for _, fault := range sub.plan {
		answer = s.spoil(ctx, answer, fault)
	}
	return answer
}

// spoil applies one fault to an answer whose charge is in the ledger.
func (s *Server) spoil(ctx context.Context, answer reply, fault Fault) reply {
	switch fault.Kind {
	case LostAnswer:
		return reply{hangUp: true, reset: true}
	case Hangup:
		return reply{hangUp: true}
	case ErrorAfter:
		return failure(http.StatusInternalServerError, "internal")
	case Throttled:
		return throttled()
	case Slow, QuerySlow:
		_ = s.wait(ctx, fault.For)
	case Garbage, QueryGarbage:
		answer.garbage = true
	case Truncated:
		answer.truncated = true
	case WrongKey:
		answer.body.ProviderKey = uuid.NewSHA1(uuid.Nil, []byte(answer.body.ProviderKey)).String()
	case NoEcho:
		answer.body.ProviderKey, answer.body.Amount, answer.body.Currency = "", 0, ""
	default:
	}
	return answer
}

func statusOf(status Status) int {
	switch status {
	case StatusDeclined:
		return http.StatusPaymentRequired
	case StatusRefused:
		return http.StatusUnprocessableEntity
	case StatusProcessing:
		return http.StatusAccepted
	case StatusSettled, StatusAuthorized:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}
