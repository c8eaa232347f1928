package edge

import (
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/tracing"
)

// route is one resource of the edge.
type route struct {
	// name stands for the resource in logs and metrics, without what is variable.
	name string
	// handlers by method; HEAD goes with GET.
	handlers map[string]http.HandlerFunc
	// strangers may call it: nobody knows whose request it is before its body was read.
	strangers bool
}

// The names of the routes.
const (
	routePayments  = "/v1/payments"
	routePayment   = "/v1/payments/{key}"
	routeHistory   = "/v1/payments/{key}/history"
	routeCallbacks = "/v1/callbacks/{channel}"
	routeOpenAPI   = "/openapi.json"
	routeNone      = "none"
)

// handler is the whole edge. Paths are matched by hand: http.ServeMux would answer
// unclean ones with a redirect, which would make a client send a POST again.
func (s *Server) handler() http.Handler {
	routes := map[string]route{
		routePayments: {name: routePayments, handlers: map[string]http.HandlerFunc{
			http.MethodPost: s.authorized(s.post), http.MethodGet: s.authorized(s.list),
		}},
		routePayment: {name: routePayment, handlers: map[string]http.HandlerFunc{http.MethodGet: s.authorized(s.get)}},
		routeHistory: {name: routeHistory, handlers: map[string]http.HandlerFunc{http.MethodGet: s.authorized(s.history)}},
	}
	if s.cfg.Callbacks != nil {
		routes[routeCallbacks] = route{
			name: routeCallbacks, handlers: map[string]http.HandlerFunc{http.MethodPost: s.cfg.Callbacks.ServeHTTP}, strangers: true,
		}
	}
	if s.cfg.OpenAPI != nil {
		routes[routeOpenAPI] = route{name: routeOpenAPI, handlers: map[string]http.HandlerFunc{http.MethodGet: s.openAPI}}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := match(r)
		if _, ok := routes[name]; !ok {
			name = routeNone
		}
		s.observed(routes[name], name, w, r)
	})
}

// match returns the route of a path and puts what is variable into the request.
func match(r *http.Request) string {
	switch path := r.URL.Path; path {
	case routePayments, routeOpenAPI:
		return path
	default:
		rest, ok := strings.CutPrefix(path, routePayments+"/")
		if ok {
			return matchPayment(r, rest)
		}
		if channel, ok := strings.CutPrefix(path, "/v1/callbacks/"); ok && channel != "" && !strings.Contains(channel, "/") {
			r.SetPathValue("channel", channel)
			return routeCallbacks
		}
		return routeNone
	}
}

func matchPayment(r *http.Request, rest string) string {
	key, tail, deeper := strings.Cut(rest, "/")
	r.SetPathValue("key", key)
	switch {
	case key == "":
		return routeNone
	case !deeper:
		return routePayment
	case tail == "history":
		return routeHistory
	default:
		return routeNone
	}
}

// observed serves one request, with what every request needs: an id, bounds, a
// log line, metrics, and an answer when something breaks.
func (s *Server) observed(rt route, name string, w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	c := &call{id: requestIDOf(r), trace: s.serving(r, name)}
	r = r.WithContext(withCall(r.Context(), c))
	rec := &recorder{ResponseWriter: w}
	h := rec.Header()
	h.Set(requestIDHeader, c.id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	defer func() {
		if broken := recover(); broken != nil {
			s.broken(rec, r, broken)
		}
		s.cfg.Metrics.EdgeRequest(name, rec.status, time.Since(started))
		c.trace.Answered(rec.status)
		s.log(name, c, rec.status, r.Method, time.Since(started))
	}()
	free := s.free
	if rt.strangers {
		free = s.door
	}
	select {
	case free <- struct{}{}:
		defer func() { <-free }()
		s.dispatch(rt, rec, r)
	default:
		writeProblem(rec, r, problemOf(CodeOverloaded, "send the same request again, with the same key").after(time.Second))
	}
}

func (s *Server) dispatch(rt route, w http.ResponseWriter, r *http.Request) {
	if rt.handlers == nil {
		writeProblem(w, r, problemOf(CodeNotFound, "see /openapi.json for what there is"))
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	serve, ok := rt.handlers[method]
	if !ok {
		w.Header().Set("Allow", rt.allow())
		writeProblem(w, r, problemOf(CodeMethodNotAllowed, "use "+rt.allow()))
		return
	}
	serve(w, r)
}

func (rt route) allow() string {
	methods := make([]string, 0, len(rt.handlers)+1)
	for method := range rt.handlers {
		methods = append(methods, method)
		if method == http.MethodGet {
			methods = append(methods, http.MethodHead)
		}
	}
	slices.Sort(methods)
	return strings.Join(methods, ", ")
}

// broken answers for a handler that panicked: one request is lost, not the
// process with all the others.
func (s *Server) broken(w *recorder, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel that is thrown as it is
		panic(cause) //nolint:forbidigo // net/http ends the connection
	}
	s.cfg.Logger.Error().Str("request_id", requestID(r.Context())).Interface("panic", cause).Bytes("stack", debug.Stack()).
		Msg("a request broke its handler")
	if w.status == 0 {
		writeProblem(w, r, problemOf(CodeInternal, "tell us the request id; send the same request again, with the same key"))
	}
}

// log writes one line per request. Nothing in it was chosen by the client without
// a bound on its characters.
func (s *Server) log(name string, c *call, status int, method string, took time.Duration) {
	level := zerolog.DebugLevel
	if status >= http.StatusInternalServerError {
		level = zerolog.WarnLevel
	}
	line := s.cfg.Logger.WithLevel(level).Str("request_id", c.id).Str("route", name).Int("status", status).Dur("took", took)
	if len(method) <= maxMethod {
		line = line.Str("method", method)
	}
	if c.caller.Name != "" {
		line = line.Str("caller", c.caller.Name)
	}
	if c.caller.Credential != "" {
		line = line.Str("credential", c.caller.Credential)
	}
	if c.code != "" {
		line = line.Str("code", string(c.code))
	}
	if c.payment != uuid.Nil {
		line = line.Stringer("payment", c.payment)
	}
	if id := tracing.ID(c.trace.Context()); id != "" {
		line = line.Str("trace_id", id)
	}
	line.Msg("request")
}

// maxMethod is longer than any method there is.
const maxMethod = 16

// recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter

	status int
}

// WriteHeader notes the first status.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write means 200 where nothing else was said.
func (r *recorder) Write(body []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(s.cfg.OpenAPI) // the peer may be gone, nobody to tell
}
