package consumer

import (
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/tracing"
)

// traced are the spans of a batch: one per command, which lasts until its outcome
// is stored, and one of the claim's transaction. Empty where tracing is off.
type traced struct {
	steps []tracing.Span
	claim tracing.Span
}

// trace begins the spans of a batch, and has what is published of it carry their
// contexts.
func (c *Consumer) trace(arrivals []store.Arrival) traced {
	if c.cfg.Tracer == nil {
		return traced{}
	}
	t := traced{steps: make([]tracing.Span, len(arrivals))}
	for i := range arrivals {
		a := &arrivals[i]
		t.steps[i] = c.cfg.Tracer.Process(a.Trace, tracing.Message{
			Topic: a.Origin.Topic, Partition: a.Origin.Partition, Offset: a.Origin.Offset, Key: a.Raw.Key,
		})
		a.Trace = t.steps[i].Context()
	}
	t.claim = c.cfg.Tracer.Batch("claim payments", len(arrivals), func(i int) string { return arrivals[i].Trace })
	return t
}

// claimed ends the span of the claim. Where it was given up, its commands are
// delivered again, to spans of their own.
func (t traced) claimed(ok bool) {
	if !ok {
		t.claim.Fail("database")
		for _, step := range t.steps {
			step.Fail("not_claimed")
			step.End()
		}
	}
	t.claim.End()
}

// judged ends the span of a command that is not sent now.
func (t traced) judged(i int, o *store.Outcome) {
	if t.steps == nil {
		return
	}
	t.steps[i].Result(o.Verdict.String())
	if o.Verdict == store.DeadLettered {
		t.steps[i].Fail(o.Verdict.String())
	}
	t.steps[i].End()
}

// step is the span that a command's send goes on with.
func (t traced) step(i int, a *store.Arrival) tracing.Span {
	if t.steps == nil {
		return tracing.Carried(a.Trace)
	}
	return t.steps[i]
}
