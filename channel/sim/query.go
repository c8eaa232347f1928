package sim

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// getCharge answers a lookup by provider key.
func (s *Server) getCharge(w http.ResponseWriter, r *http.Request) {
	s.queries.Add(1)
	s.meter.count(0, 1)
	key, err := uuid.Parse(r.PathValue("key"))
	if err != nil {
		failure(http.StatusBadRequest, "invalid_request").send(w)
		return
	}
	s.look(r.Context(), key).send(w)
}

func (s *Server) look(ctx context.Context, key uuid.UUID) reply {
	rules := s.live.Load()
	if !rules.Query {
		return failure(http.StatusNotImplemented, "no_lookup")
	}
	seen, n, content, found := s.books.lookup(key, &rules.Behaviour)
	faults := s.planQuery(rules, key, n, &content)
	answer := failure(http.StatusNotFound, "not_found")
	answer.body.ProviderKey = key.String()
	if found && !faults.has(QueryHidden) {
		answer = reply{status: http.StatusOK, body: Answer{
			ID: seen.booking.reference, Status: seen.status, ProviderKey: key.String(),
			Amount: seen.booking.amount, Currency: seen.booking.currency,
		}}
		if seen.status.failed() {
			answer.body.Cause = "card_" + string(seen.status)
		}
	}
	for _, fault := range faults {
		answer = s.spoilQuery(ctx, answer, fault)
	}
	return answer
}

func (s *Server) spoilQuery(ctx context.Context, answer reply, fault Fault) reply {
	switch fault.Kind {
	case QueryError:
		s.meter.refuse()
		return failure(http.StatusServiceUnavailable, "unavailable")
	case QueryLost:
		return reply{hangUp: true, reset: true}
	case QueryThrottled:
		return throttled()
	case QueryAccountRefused:
		return failure(http.StatusUnauthorized, "account_refused")
	default:
		return s.spoil(ctx, answer, fault)
	}
}
