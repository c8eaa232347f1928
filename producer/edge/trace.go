package edge

import (
	"net/http"
	"strings"
)

// traceHeaders are what goes on with the command of the trace that the client is
// in (W3C Trace Context). What is not valid starts nothing.
func traceHeaders(r *http.Request) map[string]string {
	parent := r.Header.Get("Traceparent")
	if !isTraceparent(parent) {
		return nil
	}
	headers := map[string]string{"traceparent": parent}
	if state := strings.Join(r.Header.Values("Tracestate"), ","); state != "" && len(state) <= maxTracestate && isPrintable(state) {
		headers["tracestate"] = state
	}
	return headers
}

// maxTracestate is what everybody must be able to carry.
const maxTracestate = 512

// isTraceparent checks version 00: 00-<32 hex>-<16 hex>-<2 hex>, none of the ids
// all zero.
func isTraceparent(text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != 4 || parts[0] != "00" || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return false
	}
	hex := strings.Trim(strings.Join(parts, ""), "0123456789abcdef") == ""
	return hex && strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
