package tracing

import (
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/settleonce/settleonce/internal/kafka"
)

// Header is the name of the header that carries the context of a trace, on
// requests and on records alike.
const Header = "traceparent"

// The parts of a traceparent of version 00: 00-<trace id>-<span id>-<flags>, in
// lower-case hex.
const (
	traceAt, traceEnd = 3, 35
	spanAt, spanEnd   = 36, 52
	flagsAt, length   = 53, 55
)

// Valid returns the traceparent if it is one (W3C Trace Context, version 00, no
// id all zero), and "" for everything else: what is not valid starts nothing and
// goes nowhere.
func Valid(traceparent string) string {
	if len(traceparent) != length || traceparent[:traceAt] != "00-" || traceparent[traceEnd] != '-' || traceparent[spanEnd] != '-' {
		return ""
	}
	traceID, spanID := traceparent[traceAt:traceEnd], traceparent[spanAt:spanEnd]
	if !isID(traceID) || !isID(spanID) || !isHex(traceparent[flagsAt:]) {
		return ""
	}
	return traceparent
}

// Of is the context that a record carries, "" where there is none, or no valid one.
func Of(headers []kafka.Header) string {
	for i := range headers {
		if headers[i].Key == Header {
			return Valid(string(headers[i].Value))
		}
	}
	return ""
}

// ID is the trace id in a valid traceparent, "" in none.
func ID(traceparent string) string {
	if len(traceparent) != length {
		return ""
	}
	return traceparent[traceAt:traceEnd]
}

func isID(text string) bool { return isHex(text) && strings.Trim(text, "0") != "" }

func isHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// parse reads a valid traceparent; any other text is no context.
func parse(traceparent string) trace.SpanContext {
	if Valid(traceparent) == "" {
		return trace.SpanContext{}
	}
	var c trace.SpanContextConfig
	var flags [1]byte
	// Valid has seen that it is hex, of these lengths.
	_, _ = hex.Decode(c.TraceID[:], []byte(traceparent[traceAt:traceEnd]))
	_, _ = hex.Decode(c.SpanID[:], []byte(traceparent[spanAt:spanEnd]))
	_, _ = hex.Decode(flags[:], []byte(traceparent[flagsAt:]))
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0]), true
	return trace.NewSpanContext(c)
}

func format(c trace.SpanContext) string {
	traceID, spanID := c.TraceID(), c.SpanID()
	text := make([]byte, 0, length)
	text = append(text, "00-"...)
	text = hex.AppendEncode(text, traceID[:])
	text = append(text, '-')
	text = hex.AppendEncode(text, spanID[:])
	text = append(text, '-')
	return string(hex.AppendEncode(text, []byte{byte(c.TraceFlags())}))
}
