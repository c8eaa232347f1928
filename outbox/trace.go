package outbox

import (
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/tracing"
)

// published is the span of one message that is presented to Kafka.
type published struct {
	batch, message int
	span           tracing.Span
}

// trace begins a span for each message with a context. The message goes out with
// the context of its row, not with that of the span: a repetition is the same
// record.
func (l *lane) trace(batches []kafka.FencedBatch) (spans []published) {
	tracer := l.relay.cfg.Tracer
	if tracer == nil {
		return nil
	}
	for b := range batches {
		for m := range batches[b].Messages {
			message := &batches[b].Messages[m]
			if created := tracing.Of(message.Headers); created != "" {
				spans = append(spans, published{b, m, tracer.Publish(created, tracing.Message{Topic: message.Topic, Key: message.Key})})
			}
		}
	}
	return spans
}

func endSpans(spans []published, results []kafka.FencedResult) {
	for _, p := range spans {
		if results[p.batch].Errors[p.message] != nil {
			p.span.Fail("not_published")
		}
		p.span.End()
	}
}
