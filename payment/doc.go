// Package payment is the domain of settleonce: what a payment is, how it is
// identified, which states it may be in, what a channel's answer means and when
// something may be sent.
//
// It imports nothing of ours and no infrastructure. Every rule that decides
// about money is a pure function or a table here; the packages around it only
// carry its decisions out. Guarantees are numbered G1–G16 as in
// docs/guarantees.
package payment
