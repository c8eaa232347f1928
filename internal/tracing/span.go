package tracing

import (
	"context"
	"net/http"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Span is one step of a trace: one that is recorded, or only the context that
// came from elsewhere. The zero value is no trace at all. It is a value, safe to
// copy; End is called once, by whoever the last holder is.
type Span struct {
	context string
	span    trace.Span // nil: nothing is recorded here
}

// Carried is the step of somebody else, known by its context, "" for none.
func Carried(traceparent string) Span { return Span{context: traceparent} }

// Context is the traceparent to hand on, "" for none.
func (s Span) Context() string { return s.context }

// End ends the step.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Fail says that the step failed, and by what class of error. The word becomes
// error.type: one of few, never text of others.
func (s Span) Fail(kind string) {
	if s.span != nil {
		s.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		s.span.SetStatus(codes.Error, kind)
	}
}

// Result says what the step came to, in one word of ours.
func (s Span) Result(word string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("settleonce.result", word))
	}
}

// Answered ends an HTTP step with its status.
func (s Span) Answered(status int) {
	if s.span == nil {
		return
	}
	if status > 0 {
		s.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	if status >= http.StatusInternalServerError {
		s.Fail(strconv.Itoa(status))
	}
	s.span.End()
}

// Placed ends the sending of a message that Kafka has; offset is -1 where the
// broker did not say.
func (s Span) Placed(partition int, offset int64) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(semconv.MessagingDestinationPartitionID(strconv.Itoa(partition)))
	if offset >= 0 {
		s.span.SetAttributes(semconv.MessagingKafkaOffset(int(offset)))
	}
	s.span.End()
}

// Serve is the answering of one HTTP request. What the client sent as
// traceparent is taken where it is valid. Route is the pattern, not the path;
// empty where there is none.
func (t *Tracer) Serve(r *http.Request, route string) Span {
	traceparent := Valid(r.Header.Get("Traceparent"))
	if t == nil {
		return Span{context: traceparent}
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	name, method := "HTTP", semconv.HTTPRequestMethodOther
	if known(r.Method) {
		name, method = r.Method, semconv.HTTPRequestMethodKey.String(r.Method)
	}
	attributes := []attribute.KeyValue{method, semconv.URLScheme(scheme), semconv.URLPath(r.URL.Path)}
	if route != "" {
		name += " " + route
		attributes = append(attributes, semconv.HTTPRoute(route))
	}
	return t.start(traceparent, name, trace.SpanKindServer, attributes...)
}

// known are the methods that the convention lets into a name.
func known(method string) bool {
	switch method {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY":
		return true
	default:
		return false
	}
}

// Message names a record, as far as it is known.
type Message struct {
	Topic string
	// Key is the record's key; nil for none.
	Key []byte
	// Partition and Offset are used where the message was received.
	Partition int
	Offset    int64
}

// Send is the sending of a message that carries this step's context.
func (t *Tracer) Send(parent string, m Message) Span {
	if t == nil {
		return Span{context: parent}
	}
	return t.start(parent, "send "+m.Topic, trace.SpanKindProducer, m.attributes("send", semconv.MessagingOperationTypeSend)...)
}

// Publish is the sending of a message that was created, with the context it
// carries, in an earlier step.
func (t *Tracer) Publish(created string, m Message) Span {
	if t == nil {
		return Span{context: created}
	}
	return t.start(created, "send "+m.Topic, trace.SpanKindClient, m.attributes("send", semconv.MessagingOperationTypeSend)...)
}

// Process is all that is done for one message that was received, in a batch of
// others. Its parent is the message's own context, as the conventions allow; a
// message without one begins a trace.
func (t *Tracer) Process(created string, m Message) Span {
	if t == nil {
		return Span{context: created}
	}
	attributes := append(m.attributes("process", semconv.MessagingOperationTypeProcess),
		semconv.MessagingDestinationPartitionID(strconv.Itoa(m.Partition)), semconv.MessagingKafkaOffset(int(m.Offset)))
	return t.start(created, "process "+m.Topic, trace.SpanKindConsumer, attributes...)
}

func (m *Message) attributes(name string, kind attribute.KeyValue) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKafka, semconv.MessagingOperationName(name), kind, semconv.MessagingDestinationName(m.Topic),
	}
	if m.Key != nil && utf8.Valid(m.Key) {
		attributes = append(attributes, semconv.MessagingKafkaMessageKey(string(m.Key)))
	}
	return attributes
}

// Call is one request to a channel: "submit" or "query".
func (t *Tracer) Call(parent, operation, channel string) Span {
	if t == nil {
		return Span{context: parent}
	}
	return t.start(parent, operation+" "+channel, trace.SpanKindClient,
		attribute.String("settleonce.channel", channel), attribute.String("settleonce.operation", operation))
}

// Batch is one transaction over size payments, of which member gives the
// contexts. It is a child of a payment that is alone, and links to each of
// several; it is recorded when one of them is.
func (t *Tracer) Batch(name string, size int, member func(int) string) Span {
	if t == nil {
		return Span{}
	}
	var links []trace.Link
	for i := range size {
		if c := parse(member(i)); c.IsSampled() {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	if len(links) == 0 {
		return Span{}
	}
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.DBSystemNamePostgreSQL, semconv.DBQuerySummary(name)),
	}
	ctx := context.Background()
	if size == 1 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, links[0].SpanContext)
	} else {
		options = append(options, trace.WithLinks(links...), trace.WithAttributes(semconv.DBOperationBatchSize(size)))
	}
	return t.begin(ctx, name, options...)
}

func (t *Tracer) start(parent, name string, kind trace.SpanKind, attributes ...attribute.KeyValue) Span {
	ctx := context.Background()
	if c := parse(parent); c.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, c)
	}
	return t.begin(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}

func (t *Tracer) begin(ctx context.Context, name string, options ...trace.SpanStartOption) Span {
	_, span := t.tracer.Start(ctx, name, options...) //nolint:spancheck // whoever holds the Span ends it
	return Span{context: format(span.SpanContext()), span: span}
}
