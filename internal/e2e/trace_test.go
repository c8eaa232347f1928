package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/internal/tracing/tracingtest"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer/edge"
)

const (
	clientTrace = "0af7651916cd43dd8448eb211c80319c"
	clientSpan  = "b7ad6b7169203331"
	clientSays  = "00-" + clientTrace + "-" + clientSpan + "-01"
)

func tracedBy(rec *tracingtest.Recorder) option {
	return func(s *settings) { s.tracer = rec.Tracer }
}

// sendTraced publishes a command with a traceparent, whatever it is.
func (s *stack) sendTraced(c payment.Command, traceparent string) {
	s.t.Helper()
	r := s.record(c)
	r.Headers = []kgo.RecordHeader{{Key: tracing.Header, Value: []byte(traceparent)}}
	require.NoError(s.t, s.producer().ProduceSync(s.ctx, r).FirstErr())
}

// published are the messages of a key so far, replies and events.
func (s *stack) published(key uuid.UUID) []*kgo.Record {
	return slices.Concat(s.watch.of(s.topics.Replies, key.String()), s.watch.of(s.topics.Events, key.String()))
}

// waitPublished waits for that many of them.
func (s *stack) waitPublished(key uuid.UUID, n int) []*kgo.Record {
	s.t.Helper()
	s.watch.until(s.t, func() bool { return len(s.published(key)) >= n }, "%d messages of %s", n, key)
	return s.published(key)
}

// waitSpans waits for the spans of a trace, in any order, and returns them by name. A send that the
// relay had to repeat is not counted: on a busy machine the broker's answer may be late.
func waitSpans(t *testing.T, rec *tracingtest.Recorder, trace string, names ...string) map[string]tracingtest.Span {
	t.Helper()
	slices.Sort(names)
	var byName map[string]tracingtest.Span
	var found []string
	for deadline := time.Now().Add(waitFor); !slices.Equal(names, found) && time.Now().Before(deadline); {
		found, byName = nil, map[string]tracingtest.Span{}
		for _, s := range rec.Trace(trace) {
			if s.Failed && strings.HasPrefix(s.Name, "send ") {
				continue
			}
			found, byName[s.Name] = append(found, s.Name), s
		}
		slices.Sort(found)
		<-time.After(tick)
	}
	require.Equal(t, names, found)
	return byName
}

// One payment over HTTP is one trace, from the client's request through Kafka,
// database and channel to its reply and event.
func TestTraceOfAPayment(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(0) // the client's decision counts
	s := start(t, tracedBy(rec), patient)
	d := s.openDoor(func(c *edge.Config) { c.Tracer = rec.Tracer })
	key := uuid.New()
	a := d.post(tokenShop, key, order(), "traceparent", clientSays, "tracestate", "till=7")
	require.Equal(t, http.StatusOK, a.status, a.body)
	records := s.waitPublished(key, 2)

	spans := waitSpans(t, rec, clientTrace, "POST /v1/payments", "send payment.commands", "process payment.commands",
		"claim payments", "submit sim", "finalize payments", "send payment.events", "send payment.replies")
	served, sent, step := spans["POST /v1/payments"], spans["send payment.commands"], spans["process payment.commands"]
	require.Equal(t, clientSpan, served.Parent)
	require.Equal(t, served.ID, sent.Parent)
	require.Equal(t, sent.ID, step.Parent)
	for _, name := range []string{"claim payments", "submit sim", "finalize payments", "send payment.events", "send payment.replies"} {
		require.Equal(t, step.ID, spans[name].Parent, name)
		require.False(t, spans[name].Failed, name)
	}
	require.Equal(t, "succeeded", step.Attributes["settleonce.result"])
	require.Equal(t, sent.Attributes["messaging.kafka.offset"], step.Attributes["messaging.kafka.offset"])

	require.Equal(t, "00-"+clientTrace+"-"+sent.ID+"-01", s.commandHeader(key, "traceparent"))
	require.Equal(t, "till=7", s.commandHeader(key, "tracestate"))
	calls := s.front.submits(commandOf("shop", key))
	require.Equal(t, "00-"+clientTrace+"-"+spans["submit sim"].ID+"-01", calls[0].trace)
	for _, r := range records {
		require.Equal(t, "00-"+clientTrace+"-"+step.ID+"-01", header(r, "traceparent"), r.Topic)
	}
}

// A wake-up carries the trace on, into the query and the event that it leads to.
// One that comes a moment early leaves its payment to the sweep, which knows no
// trace: that is allowed, and not every time.
func TestTraceOfAnUnknownPayment(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(1)
	s := start(t, tracedBy(rec), patient)
	var c payment.Command
	trace, woken := "", false
	for range 10 {
		c, trace = command(fault("lost_answer")), strings.ReplaceAll(uuid.NewString(), "-", "")
		s.sendTraced(c, "00-"+trace+"-"+clientSpan+"-01")
		s.waitPublished(c.IdempotencyKey, 3) // unknown; succeeded, and its reply
		if woken = tracing.ID(s.front.queries(c)[0].trace) == trace; woken {
			break
		}
	}
	require.True(t, woken, "no query is in the trace of its command")
	spans := waitSpans(t, rec, trace, "process payment.commands", "claim payments", "submit sim", "finalize payments",
		"send payment.events", "send payment.requery.1s", "query sim", "finalize payments", "send payment.events", "send payment.replies")
	require.True(t, spans["submit sim"].Failed)
	require.Equal(t, "unknown", spans["submit sim"].Attributes["error.type"])
	step := spans["process payment.commands"]
	require.Equal(t, step.ID, spans["query sim"].Parent)
	require.Equal(t, "unknown", step.Attributes["settleonce.result"])
	for _, r := range append(s.published(c.IdempotencyKey), s.watch.of(s.topics.Requery[0], c.IdempotencyKey.String())...) {
		require.Equal(t, "00-"+trace+"-"+step.ID+"-01", header(r, "traceparent"), r.Topic)
	}
}

// What is no traceparent is not taken for one: the payment is a trace of its own.
func TestForgedTraceIsIgnored(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(1)
	s := start(t, tracedBy(rec), patient)
	c := command()
	forged := "00-" + clientTrace + "-" + clientSpan + "-01\r\nX-Evil: 1"
	s.sendTraced(c, forged)
	repeated := command()
	s.send(repeated)
	s.waitPublished(repeated.IdempotencyKey, 2)
	s.send(repeated)
	s.waitReply(repeated.IdempotencyKey, payment.ReplyReplayed)
	require.Empty(t, rec.Trace(clientTrace))
	traces := map[string]bool{}
	for _, r := range append(s.waitPublished(c.IdempotencyKey, 2), s.published(repeated.IdempotencyKey)...) {
		own := header(r, "traceparent")
		require.NotEmpty(t, tracing.Valid(own), r.Topic)
		traces[tracing.ID(own)] = true
	}
	require.Len(t, traces, 3, "one for each delivery")
}

// Switched off nothing is invented. What came with the command goes on, unchanged.
func TestTraceSwitchedOff(t *testing.T) {
	t.Parallel()
	s := shared(t)
	without, forged, with, declined := command(), command(), command(), command(fault("declined"))
	s.send(without)
	s.sendTraced(forged, strings.ToUpper(clientSays))
	s.sendTraced(with, clientSays)
	s.sendTraced(declined, clientSays)
	for _, c := range []payment.Command{without, forged} {
		for _, r := range s.waitPublished(c.IdempotencyKey, 2) {
			require.Empty(t, header(r, "traceparent"), r.Topic)
			for _, h := range r.Headers {
				require.NotEqual(t, tracing.Header, h.Key)
			}
		}
		require.Empty(t, s.front.submits(c)[0].trace)
	}
	for _, c := range []payment.Command{with, declined} {
		for _, r := range s.waitPublished(c.IdempotencyKey, 2) {
			require.Equal(t, clientSays, header(r, "traceparent"), r.Topic)
		}
		require.Equal(t, clientSays, s.front.submits(c)[0].trace)
	}
}
