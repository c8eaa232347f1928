// Package telemetry is what settleonce shows of itself: logs, metrics, and the
// admin endpoints that supervisors and Prometheus ask.
//
// Every metric is declared here, in one place, with the prefix settleonce_.
// Every log line passes a mask for card-like numbers and tokens.
package telemetry
