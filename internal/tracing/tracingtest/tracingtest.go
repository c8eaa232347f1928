// Package tracingtest records spans in memory, for tests.
package tracingtest

import (
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/settleonce/settleonce/internal/tracing"
)

// Recorder keeps every span that ended.
type Recorder struct {
	// Tracer records here.
	Tracer   *tracing.Tracer
	exporter *tracetest.InMemoryExporter
}

// Span is what a test looks at.
type Span struct {
	Name string
	// Kind is "server", "client", "producer", "consumer" or "internal".
	Kind string
	// Trace, ID and Parent are in hex; Parent is all zero for a root.
	Trace, ID, Parent string
	// Links are the span ids of what it links to.
	Links []string
	// Attributes by name, as text.
	Attributes map[string]string
	// Failed says that its status is an error.
	Failed bool
}

// New returns a recorder of that ratio of the traces that begin with it.
func New(ratio float64) *Recorder {
	exporter := tracetest.NewInMemoryExporter()
	return &Recorder{Tracer: tracing.New(tracing.Config{Ratio: ratio}, sdk.NewSimpleSpanProcessor(exporter)), exporter: exporter}
}

// Spans returns what has ended so far, in that order.
func (r *Recorder) Spans() []Span {
	stubs := r.exporter.GetSpans()
	spans := make([]Span, 0, len(stubs))
	for i := range stubs {
		s := &stubs[i]
		span := Span{
			Name: s.Name, Kind: strings.ToLower(s.SpanKind.String()), Trace: s.SpanContext.TraceID().String(), ID: s.SpanContext.SpanID().String(),
			Parent: s.Parent.SpanID().String(), Attributes: map[string]string{}, Failed: s.Status.Code.String() == "Error",
		}
		for _, l := range s.Links {
			span.Links = append(span.Links, l.SpanContext.SpanID().String())
		}
		for _, a := range s.Attributes {
			span.Attributes[string(a.Key)] = a.Value.String()
		}
		spans = append(spans, span)
	}
	return spans
}

// Trace returns the spans of one trace that have ended so far.
func (r *Recorder) Trace(id string) []Span {
	var found []Span
	for _, s := range r.Spans() {
		if s.Trace == id {
			found = append(found, s)
		}
	}
	return found
}
