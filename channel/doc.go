// Package channel is the port to payment providers: what an adapter offers, the
// capability record that drives every policy towards it, and the rules that say
// when something may be sent, when a decline counts and what "not found" means.
//
// The rules are pure functions of the record and of what was sent so far, so
// that the consumer and the reconciler decide alike. They were checked by model
// (world LAG, FORGET, LATE, PINNED; rules HOLD, WAIT, BOUND): leaving one out
// charges twice or declines what was paid (G1, G3).
package channel
