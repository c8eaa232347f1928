package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// declareEdge declares the metrics of the HTTP edge.
func (m *Metrics) declareEdge() {
	m.edgeRequests = m.counter("edge_requests_total", "Requests of the HTTP edge, by route and status.", "route", "status")
	m.edgeSeconds = m.histogram("edge_request_duration_seconds", "Time of a request, with what it waited for an outcome.",
		prometheus.ExponentialBuckets(0.001, 2, 16), "route")
	m.edgeKeys = m.counter("edge_keys_made_up_total", "Payments that came without a key and got one, by caller: nobody may send these when the period of grace ends.",
		"caller")
}

// EdgeRequest counts one request of the HTTP edge. route is the pattern, never
// the path.
func (m *Metrics) EdgeRequest(route string, status int, took time.Duration) {
	if m != nil {
		m.edgeRequests.WithLabelValues(route, strconv.Itoa(status)).Inc()
		m.edgeSeconds.WithLabelValues(route).Observe(took.Seconds())
	}
}

// EdgeKeyMadeUp counts a payment of a client that does not send keys yet.
func (m *Metrics) EdgeKeyMadeUp(caller string) {
	if m != nil {
		m.edgeKeys.WithLabelValues(caller).Inc()
	}
}
