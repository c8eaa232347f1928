package tracing_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/internal/tracing/tracingtest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	parent  = "00-" + traceID + "-" + spanID + "-01"
	// other is in another trace.
	other = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
	// unsampled is a trace that somebody decided not to record.
	unsampled = "00-" + traceID + "-" + spanID + "-00"
)

func TestValid(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		parent: true, unsampled: true, "": false, parent + "-x": false, parent[1:]: false, strings.ToUpper(parent): false,
		"ff" + parent[2:]: false, "01" + parent[2:]: false, "00-" + strings.Repeat("0", 32) + parent[35:]: false,
		strings.Replace(parent, spanID, strings.Repeat("0", 16), 1): false, strings.Replace(parent, "-01", "-0g", 1): false,
		strings.ReplaceAll(parent, "-", "_"): false, strings.Replace(parent, "0af7", "0af\n", 1): false,
		strings.Replace(parent, "c-b", "c_b", 1): false, strings.Replace(parent, "1-01", "1_01", 1): false,
	} {
		want := ""
		if valid {
			want = text
		}
		require.Equal(t, want, tracing.Valid(text), text)
		require.Equal(t, want, tracing.Of([]kafka.Header{{Key: "a"}, {Key: "traceparent", Value: []byte(text)}}), text)
	}
	require.Equal(t, traceID, tracing.ID(parent))
	require.Empty(t, tracing.ID(""))
	require.Empty(t, tracing.Of(nil))
}

// Off: what came goes on, nothing is invented, and nothing is allocated.
func TestOffCarriesOn(t *testing.T) {
	t.Parallel()
	var off *tracing.Tracer
	m := tracing.Message{Topic: "payment.commands", Key: []byte("k")}
	for _, given := range []string{parent, ""} {
		require.Equal(t, given, off.Send(given, m).Context())
		require.Equal(t, given, off.Process(given, m).Context())
		require.Equal(t, given, off.Call(given, "submit", "sim").Context())
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/payments", http.NoBody)
	require.Empty(t, off.Serve(r, "/v1/payments").Context())
	r.Header.Set("Traceparent", "garbage")
	require.Empty(t, off.Serve(r, "/v1/payments").Context())
	r.Header.Set("Traceparent", parent)
	require.Equal(t, parent, off.Serve(r, "/v1/payments").Context())
	off.Close()
}

//nolint:paralleltest // allocations of other tests would count
func TestOffCostsNothing(t *testing.T) {
	var off *tracing.Tracer
	m := tracing.Message{Topic: "payment.commands", Key: []byte("k")}
	headers := []kafka.Header{{Key: "ce_id", Value: []byte("x")}, {Key: "ce_type", Value: []byte("y")}}
	traces := []string{"", ""}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s := off.Process(tracing.Of(headers), m)
		call := off.Call(s.Context(), "submit", "sim")
		call.Result("succeeded")
		call.Fail("unknown")
		call.End()
		off.Batch("claim payments", len(traces), func(i int) string { return traces[i] }).End()
		s.Placed(1, 2)
		s.Answered(http.StatusOK)
		s.End()
	}))
}

// The names, kinds and attributes are those of the semantic conventions.
func TestConventions(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(1)
	r := httptest.NewRequest(http.MethodPost, "/v1/payments?x=1", http.NoBody)
	r.Header.Set("Traceparent", parent)
	served := rec.Tracer.Serve(r, "/v1/payments")
	sent := rec.Tracer.Send(served.Context(), tracing.Message{Topic: "payment.commands", Key: []byte("key")})
	step := rec.Tracer.Process(sent.Context(), tracing.Message{Topic: "payment.commands", Key: []byte("key"), Partition: 3, Offset: 9})
	call := rec.Tracer.Call(step.Context(), "submit", "sim")
	published := rec.Tracer.Publish(step.Context(), tracing.Message{Topic: "payment.events", Key: []byte{0xff}})
	published.End()
	call.Fail("unknown")
	call.End()
	step.Result("succeeded")
	step.End()
	sent.Placed(3, 9)
	served.Answered(http.StatusServiceUnavailable)

	spans := rec.Trace(traceID)
	require.Len(t, spans, 5)
	byName := map[string]tracingtest.Span{}
	for _, s := range spans {
		byName[s.Name] = s
	}
	kafkaWords := func(topic, name string) map[string]string {
		return map[string]string{
			"messaging.system": "kafka", "messaging.destination.name": topic, "messaging.operation.name": name,
			"messaging.operation.type": name,
		}
	}
	with := func(m map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	server, send, process := byName["POST /v1/payments"], byName["send payment.commands"], byName["process payment.commands"]
	require.Equal(t, "server", server.Kind)
	require.Equal(t, spanID, server.Parent)
	require.True(t, server.Failed)
	require.Equal(t, map[string]string{
		"http.request.method": "POST", "http.route": "/v1/payments", "url.path": "/v1/payments", "url.scheme": "http",
		"http.response.status_code": "503", "error.type": "503",
	}, server.Attributes)
	require.Equal(t, "producer", send.Kind)
	require.Equal(t, server.ID, send.Parent)
	where := []string{"messaging.kafka.message.key", "key", "messaging.destination.partition.id", "3", "messaging.kafka.offset", "9"}
	require.Equal(t, with(kafkaWords("payment.commands", "send"), where...), send.Attributes)
	require.Equal(t, "consumer", process.Kind)
	require.Equal(t, send.ID, process.Parent)
	require.Equal(t, with(kafkaWords("payment.commands", "process"), append(where, "settleonce.result", "succeeded")...), process.Attributes)
	require.Equal(t, "client", byName["submit sim"].Kind)
	require.Equal(t, process.ID, byName["submit sim"].Parent)
	require.True(t, byName["submit sim"].Failed)
	require.Equal(t, "client", byName["send payment.events"].Kind)
	require.Equal(t, process.ID, byName["send payment.events"].Parent)
	require.Equal(t, kafkaWords("payment.events", "send"), byName["send payment.events"].Attributes, "a key that is no text is left out")
}

// A method that a client made up is no name of a span.
func TestUnknownMethods(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(1)
	rec.Tracer.Serve(httptest.NewRequest("GURGLE", "/x", http.NoBody), "").Answered(http.StatusMethodNotAllowed)
	span := rec.Spans()[0]
	require.Equal(t, "HTTP", span.Name)
	require.Equal(t, "_OTHER", span.Attributes["http.request.method"])
	require.NotContains(t, span.Attributes, "http.route")
	require.False(t, span.Failed)
}

func TestBatches(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(0) // nothing that begins here
	batch := func(traces ...string) tracing.Span {
		return rec.Tracer.Batch("claim payments", len(traces), func(i int) string { return traces[i] })
	}
	batch("", unsampled, "garbage").End()
	require.Empty(t, rec.Spans())

	batch(parent).End()
	alone := rec.Spans()[0]
	require.Equal(t, []string{traceID, spanID}, []string{alone.Trace, alone.Parent})
	require.Equal(t, map[string]string{"db.system.name": "postgresql", "db.query.summary": "claim payments"}, alone.Attributes)

	failed := batch(parent, "", unsampled, other)
	failed.Fail("database")
	failed.End()
	several := rec.Spans()[1]
	require.NotContains(t, []string{traceID, tracing.ID(other)}, several.Trace)
	require.Equal(t, []string{spanID, "c7ad6b7169203331"}, several.Links)
	require.Equal(t, "4", several.Attributes["db.operation.batch.size"])
	require.True(t, several.Failed)
}

// The decision of whoever began the trace holds; the ratio is for the others.
func TestSampling(t *testing.T) {
	t.Parallel()
	m := tracing.Message{Topic: "payment.commands"}
	rec := tracingtest.New(0)
	begun := rec.Tracer.Process("", m)
	require.Equal(t, begun.Context(), tracing.Valid(begun.Context()))
	require.True(t, strings.HasSuffix(begun.Context(), "-00"), begun.Context())
	begun.End()
	require.Empty(t, rec.Spans())
	rec.Tracer.Process(parent, m).End()
	require.Len(t, rec.Spans(), 1)

	rec = tracingtest.New(1)
	kept := rec.Tracer.Process(unsampled, m)
	kept.End()
	require.Empty(t, rec.Spans())
	require.Equal(t, traceID, tracing.ID(kept.Context()))
	forged := rec.Tracer.Process("00-forged", m)
	forged.End()
	require.Len(t, rec.Spans(), 1)
	require.Equal(t, strings.Repeat("0", 16), rec.Spans()[0].Parent)
}

// The exporter speaks OTLP over HTTP, and Close waits for it.
func TestExport(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer collector.Close()
	tracer, err := tracing.Open(t.Context(), tracing.Config{Endpoint: collector.URL, Ratio: 1, Service: "till", Version: "1.2.3", Logger: zerolog.Nop()})
	require.NoError(t, err)
	tracer.Process("", tracing.Message{Topic: "payment.commands"}).End()
	tracer.Close()
	text := <-got
	require.True(t, strings.HasPrefix(text, "/v1/traces application/x-protobuf "), text)
	for _, part := range []string{"till", "1.2.3", "process payment.commands"} {
		require.Contains(t, text, part)
	}
}

// A collector that hangs holds up neither a payment nor the end of the process.
func TestCollectorHangs(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer hanging.Close()
	defer close(over)
	tracer, err := tracing.Open(t.Context(), tracing.Config{Endpoint: hanging.URL, Ratio: 1, Logger: zerolog.Nop()})
	require.NoError(t, err)
	started := time.Now()
	for range 10_000 { // more than the queue holds
		tracer.Process("", tracing.Message{Topic: "payment.commands"}).End()
	}
	require.Less(t, time.Since(started), time.Minute, "each export is waited for")
	tracer.Close()
	require.Less(t, time.Since(started), 2*time.Minute)
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	off, err := tracing.Open(t.Context(), tracing.Config{})
	require.NoError(t, err)
	require.Nil(t, off)
	for text, fine := range map[string]bool{
		"": true, "http://localhost:4318": true, "https://collector/otlp/v1/traces": true,
		"localhost:4318": false, "collector": false, "ftp://collector": false, "http://": false, "http://a b": false,
		"http://user:secret@collector": false, "http://collector?x=1": false,
	} {
		require.Equal(t, fine, tracing.CheckEndpoint(text) == nil, text)
		if !fine {
			_, err := tracing.Open(t.Context(), tracing.Config{Endpoint: text})
			require.Error(t, err, text)
		}
	}
}
