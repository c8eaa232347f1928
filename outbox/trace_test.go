package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/tracing/tracingtest"
)

const (
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	traceparent = "00-" + traceID + "-b7ad6b7169203331-01"
)

func TestTraceInHeaders(t *testing.T) {
	t.Parallel()
	both := Message{Subject: "p", Trace: traceparent, Headers: map[string]string{"traceparent": "of somebody else", "a": "b"}}
	require.JSONEq(t, `{"ce_subject":"p","traceparent":"`+traceparent+`","a":"b"}`, *encodeHeaders(&both))
	require.JSONEq(t, `{"traceparent":"`+traceparent+`"}`, *encodeHeaders(&Message{Trace: traceparent}))
	require.JSONEq(t, `{"ce_subject":"p"}`, *encodeHeaders(&Message{Subject: "p"}), "none is not an empty one")
	require.Nil(t, encodeHeaders(&Message{}))
	kept := Message{Headers: map[string]string{"traceparent": "of the record"}}
	require.JSONEq(t, `{"traceparent":"of the record"}`, *encodeHeaders(&kept), "a dead letter keeps what it had")
}

// Publishing is recorded for messages with a trace. They keep the header of their
// row: a repetition is the same record.
func TestRelayRecordsPublishing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	rec := tracingtest.New(1)
	traced, plain := s.message(s.events, "k1", 1), s.message(s.events, "k2", 1)
	traced.Trace = traceparent
	lost := s.message("no-such-topic", "k3", 1)
	lost.Trace = traceparent
	s.enqueue(traced, plain, lost)
	s.start(func(c *RelayConfig) { c.Tracer = rec.Tracer })
	byName := map[string]tracingtest.Span{}
	s.eventually("both are recorded", func() bool { // the lost one more than once, where looking for its topic took long
		for _, span := range rec.Trace(traceID) {
			byName[span.Name] = span
		}
		return len(byName) >= 2
	})
	s.eventually("both are published", func() bool { return len(s.log(s.events)) == 2 })
	for _, span := range rec.Spans() {
		require.Equal(t, traceID, span.Trace, "a message without a trace begins none")
	}
	require.Equal(t, "k1", byName["send "+s.events].Attributes["messaging.kafka.message.key"])
	require.False(t, byName["send "+s.events].Failed)
	require.True(t, byName["send no-such-topic"].Failed)
	for _, r := range s.log(s.events) {
		want := map[string]string{"k1": traceparent}[string(r.Key)]
		require.Equal(t, want, headersOf(r)["traceparent"])
	}
}

func BenchmarkEncodeHeaders(b *testing.B) {
	for name, m := range map[string]Message{
		"without trace": {Subject: "c5f2ad2c-9e8a-4a5e-9d93-3bd01bb3f77b"},
		"with trace":    {Subject: "c5f2ad2c-9e8a-4a5e-9d93-3bd01bb3f77b", Trace: traceparent},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encodeHeaders(&m)
			}
		})
	}
}
