// Package tracing is the one owner of the OpenTelemetry libraries. It says which
// steps of a payment are spans, in the words of OpenTelemetry's semantic
// conventions, and hands their context on as text: a W3C traceparent.
//
// A nil *Tracer is tracing switched off. Every step then returns the context that
// it was given, so that what arrived with a command still goes on with its reply
// and its event, and nothing is recorded, allocated or invented.
package tracing
