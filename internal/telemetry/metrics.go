package telemetry

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/settleonce/settleonce/payment"
)

// CommandResult is what became of one delivery of a command.
type CommandResult string

// The results of deliveries.
const (
	ResultFresh        CommandResult = "fresh"
	ResultReplayed     CommandResult = "replayed"
	ResultPending      CommandResult = "pending"
	ResultConflict     CommandResult = "conflict"
	ResultRejected     CommandResult = "rejected"
	ResultDeadLettered CommandResult = "dead_lettered"
)

// The kinds of channel calls, in metrics and traces.
const (
	CallSubmit = "submit"
	CallQuery  = "query"
)

// Metrics is every counter, gauge and histogram of a process. The methods of a
// nil *Metrics do nothing, so that a role works without. All are safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry

	commands, rejections, deadLetters, transitions *prometheus.CounterVec
	channelCalls                                   *prometheus.CounterVec
	channelSeconds                                 *prometheus.HistogramVec
	channelInFlight                                *prometheus.GaugeVec
	batchSize, batchSeconds                        *prometheus.HistogramVec
	budgetSpent, budgetRefused                     *prometheus.CounterVec
	requeryLateness                                *prometheus.HistogramVec
	removed                                        *prometheus.CounterVec
	edgeRequests, edgeKeys                         *prometheus.CounterVec
	edgeSeconds                                    *prometheus.HistogramVec
	callbacks, callbacksHandled                    *prometheus.CounterVec
}

// NewMetrics declares every metric in a registry of its own, with those of the
// Go runtime and the process. version goes into settleonce_build_info.
func NewMetrics(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.declareConsumer()
	m.declareChannel()
	m.declareEdge()
	m.declareCallbacks()
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := m.gauge("build_info", "Version of the binary; the value is always 1.", "version", "goversion")
	info.WithLabelValues(version, runtime.Version()).Set(1)
	return m
}

// Registry is where the metrics are, for the admin endpoint and for collectors.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

func (m *Metrics) declareConsumer() {
	m.commands = m.counter("commands_total", "Deliveries of commands by what became of them.", "result")
	m.rejections = m.counter("rejections_total", "Rejected commands by code.", "code")
	m.deadLetters = m.counter("dead_letters_total", "Records that could not be processed, by reason.", "reason")
	m.transitions = m.counter("transitions_total", "Payments that entered a state.", "state")
	m.batchSize = m.histogram("batch_size", "Payments per database transaction, by kind of transaction.",
		prometheus.ExponentialBuckets(1, 2, 11), "kind")
	m.batchSeconds = m.histogram("batch_duration_seconds", "Time of one database transaction, by kind.",
		prometheus.ExponentialBuckets(0.0005, 2, 14), "kind")
}

func (m *Metrics) declareChannel() {
	m.channelCalls = m.counter("channel_calls_total", "Calls to a channel by the class of the answer.", "channel", "call", "class")
	m.channelSeconds = m.histogram("channel_call_duration_seconds", "Time of one call to a channel.",
		prometheus.ExponentialBuckets(0.001, 2, 15), "channel", "call")
	m.channelInFlight = m.gauge("channel_calls_in_flight", "Calls to a channel that are under way in this process.", "channel", "call")
	m.budgetSpent = m.counter("query_budget_spent_total", "Queries paid from the retry budget.", "channel")
	m.budgetRefused = m.counter("query_budget_refused_total", "Queries put off because the retry budget was spent or the breaker open.",
		"channel")
	m.requeryLateness = m.histogram("requery_lateness_seconds", "Time between due and the query that was sent, by tier.",
		[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60}, "tier")
	m.removed = m.counter("retention_removed_total", "Rows that retention removed, by table.", "table")
}

// Commands counts n deliveries with one result.
func (m *Metrics) Commands(result CommandResult, n int) {
	if m != nil {
		m.commands.WithLabelValues(string(result)).Add(float64(n))
	}
}

// Rejections counts n rejected commands by code.
func (m *Metrics) Rejections(code payment.Code, n int) {
	if m != nil {
		m.rejections.WithLabelValues(string(code)).Add(float64(n))
	}
}

// DeadLetters counts n dead letters by reason.
func (m *Metrics) DeadLetters(reason payment.DeadLetterReason, n int) {
	if m != nil {
		m.deadLetters.WithLabelValues(string(reason)).Add(float64(n))
	}
}

// Transitions counts n payments that entered a state.
func (m *Metrics) Transitions(state payment.State, n int) {
	if m != nil {
		m.transitions.WithLabelValues(state.String()).Add(float64(n))
	}
}

// Batch records one database transaction: its kind (claim, finalize, duplicate,
// sweep …), how many payments it held and how long it took.
func (m *Metrics) Batch(kind string, size int, took time.Duration) {
	if m != nil {
		m.batchSize.WithLabelValues(kind).Observe(float64(size))
		m.batchSeconds.WithLabelValues(kind).Observe(took.Seconds())
	}
}

// ChannelCallStarted counts a call that is under way; ChannelCallDone ends it.
func (m *Metrics) ChannelCallStarted(channel, call string) {
	if m != nil {
		m.channelInFlight.WithLabelValues(channel, call).Inc()
	}
}

// ChannelCallDone records the class of a call's answer and how long it took.
func (m *Metrics) ChannelCallDone(channel, call string, class payment.Class, took time.Duration) {
	if m != nil {
		m.channelInFlight.WithLabelValues(channel, call).Dec()
		m.channelCalls.WithLabelValues(channel, call, class.String()).Inc()
		m.channelSeconds.WithLabelValues(channel, call).Observe(took.Seconds())
	}
}

// BudgetSpent counts n queries paid from a channel's retry budget.
func (m *Metrics) BudgetSpent(channel string, n int) {
	if m != nil {
		m.budgetSpent.WithLabelValues(channel).Add(float64(n))
	}
}

// BudgetRefused counts n queries that budget or breaker put off.
func (m *Metrics) BudgetRefused(channel string, n int) {
	if m != nil {
		m.budgetRefused.WithLabelValues(channel).Add(float64(n))
	}
}

// RequeryLateness records how long after its due time a query of a tier was sent.
func (m *Metrics) RequeryLateness(tier string, late time.Duration) {
	if m != nil {
		m.requeryLateness.WithLabelValues(tier).Observe(late.Seconds())
	}
}

// Removed counts n rows that retention removed from a table.
func (m *Metrics) Removed(table string, n int64) {
	if m != nil {
		m.removed.WithLabelValues(table).Add(float64(n))
	}
}
