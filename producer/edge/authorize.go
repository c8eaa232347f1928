package edge

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"strings"
	"time"
)

// maxBearer bounds a token: a longer one is nobody's.
const maxBearer = 512

// authorized lets a request through whose credential is known and whose caller is
// below its rate limit (G12).
func (s *Server) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		caller, problem := s.authenticate(r)
		if problem != nil {
			if problem.Code == CodeUnauthenticated {
				w.Header().Set("WWW-Authenticate", `Bearer realm="settleonce"`)
			}
			writeProblem(w, r, problem)
			return
		}
		callOf(r.Context()).caller = caller
		if ok, wait := s.cfg.Callers.Allow(caller); !ok {
			writeProblem(w, r, problemOf(CodeRateLimited, "wait, then send the same request again, with the same key").
				after(max(wait, time.Second)))
			return
		}
		next(w, r)
	}
}

func (s *Server) authenticate(r *http.Request) (Caller, *Problem) {
	token, ok := bearer(r)
	if !ok {
		return Caller{}, problemOf(CodeUnauthenticated, "send Authorization: Bearer and the credential")
	}
	caller, err := s.cfg.Callers.Authenticate(r.Context(), token)
	switch {
	case err == nil:
		return caller, nil
	case errors.Is(err, ErrUnknownCredential):
		return Caller{}, problemOf(CodeUnauthenticated, "the credential is not known, or was revoked")
	default:
		return Caller{}, s.unavailable(r, err)
	}
}

// unavailable logs what does not answer, and tells the client to come again.
func (s *Server) unavailable(r *http.Request, err error) *Problem {
	if r.Context().Err() == nil {
		s.cfg.Logger.Warn().Err(err).Str("request_id", requestID(r.Context())).Msg("a request could not be served")
	}
	return problemOf(CodeUnavailable, "send the same request again, with the same key").after(time.Second)
}

func bearer(r *http.Request) (string, bool) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= maxBearer
}

// StaticCallers are callers known from the start, without rate limits: for
// development and tests.
type StaticCallers struct {
	byHash map[[sha256.Size]byte]Caller
}

// NewStaticCallers takes callers by their bearer tokens. Only hashes are kept, and
// they are what is looked up, so the time it takes tells nothing about a token.
func NewStaticCallers(tokens map[string]Caller) *StaticCallers {
	s := &StaticCallers{byHash: make(map[[sha256.Size]byte]Caller, len(tokens))}
	for token, caller := range tokens {
		s.byHash[sha256.Sum256([]byte(token))] = caller
	}
	return s
}

// Authenticate returns the caller of a token, or ErrUnknownCredential.
func (s *StaticCallers) Authenticate(_ context.Context, token string) (Caller, error) {
	caller, ok := s.byHash[sha256.Sum256([]byte(token))]
	if !ok {
		return Caller{}, ErrUnknownCredential
	}
	return caller, nil
}

// Allow always does.
func (s *StaticCallers) Allow(Caller) (bool, time.Duration) { return true, 0 }
