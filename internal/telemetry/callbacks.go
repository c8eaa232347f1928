package telemetry

// CallbackOutcome is what became of one delivery of a callback at the edge.
type CallbackOutcome string

// The outcomes of deliveries of callbacks.
const (
	CallbackStored         CallbackOutcome = "stored"
	CallbackDuplicate      CallbackOutcome = "duplicate"
	CallbackNotStored      CallbackOutcome = "not_stored"
	CallbackBadSignature   CallbackOutcome = "bad_signature"
	CallbackTooOld         CallbackOutcome = "too_old"
	CallbackTooLarge       CallbackOutcome = "too_large"
	CallbackUnreadable     CallbackOutcome = "unreadable"
	CallbackNoSecret       CallbackOutcome = "no_secret"
	CallbackUnknownChannel CallbackOutcome = "unknown_channel"
)

func (m *Metrics) declareCallbacks() {
	m.callbacks = m.counter("callbacks_total", "Deliveries of callbacks by what became of them at the edge.", "channel", "result")
	m.callbacksHandled = m.counter("callbacks_handled_total", "Looks at stored callbacks by what they came to.", "channel", "result")
}

// Callback counts one delivery at the edge. The channel of an unknown one is left
// empty: a stranger chose it.
func (m *Metrics) Callback(channel string, outcome CallbackOutcome) {
	if m != nil {
		m.callbacks.WithLabelValues(channel, string(outcome)).Inc()
	}
}

// CallbackHandled counts one look of the reconciler at a stored callback.
func (m *Metrics) CallbackHandled(channel, result string) {
	if m != nil {
		m.callbacksHandled.WithLabelValues(channel, result).Inc()
	}
}
