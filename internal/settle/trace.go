package settle

import (
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// answered ends the span of a call with the class of its answer. A decline is an
// answer like any other; no answer, and one that does not match, are failures.
func answered(call tracing.Span, a payment.Answer) {
	word := a.Class.String()
	call.Result(word)
	if a.Class == payment.ClassUnknown || a.Class == payment.ClassMismatched || a.Class.EndsPermit() {
		call.Fail(word)
	}
	call.End()
}

// ended ends the span of a command with the state that its payment is in then,
// whoever brought it there.
func ended(step tracing.Span, a store.Applied) {
	if a.Err != nil || !a.Found {
		step.Fail("not_stored")
	} else {
		step.Result(a.After.State.String())
	}
	step.End()
}
