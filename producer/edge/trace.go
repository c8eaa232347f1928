package edge

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// traceHeaders are what goes on with the command of the trace that the request is
// in (W3C Trace Context). What is not valid starts nothing.
func traceHeaders(r *http.Request, traceparent string) map[string]string {
	if traceparent == "" {
		return nil
	}
	headers := map[string]string{tracing.Header: traceparent}
	if tracing.Valid(r.Header.Get("Traceparent")) == "" {
		return headers // a state without its parent is nobody's
	}
	if state := strings.Join(r.Header.Values("Tracestate"), ","); state != "" && len(state) <= maxTracestate && isPrintable(state) {
		headers["tracestate"] = state
	}
	return headers
}

// maxTracestate is what everybody must be able to carry.
const maxTracestate = 512

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// serving begins the span of a request.
func (s *Server) serving(r *http.Request, route string) tracing.Span {
	if route == routeNone {
		route = ""
	}
	return s.cfg.Tracer.Serve(r, route)
}

// sending begins the span of a command on its way to Kafka.
func (s *Server) sending(r *http.Request, cmd *payment.Command, topic string) tracing.Span {
	return s.cfg.Tracer.Send(callOf(r.Context()).trace.Context(), tracing.Message{
		Topic: cmp.Or(topic, payment.NewTopics("").Commands), Key: []byte(cmd.IdempotencyKey.String()),
	})
}

// sent ends it.
func sent(span tracing.Span, place producer.Place, err error) {
	if err != nil {
		span.Fail("not_acknowledged")
		span.End()
		return
	}
	span.Placed(place.Partition, place.Offset)
}
