package settle

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/internal/tracing/tracingtest"
	"github.com/settleonce/settleonce/payment"
)

// What a call or a command came to is in its span; only what is no answer failed.
func TestSpansSayWhatTheyCameTo(t *testing.T) {
	t.Parallel()
	rec := tracingtest.New(1)
	last := func() tracingtest.Span {
		spans := rec.Spans()
		return spans[len(spans)-1]
	}
	for class, failed := range map[payment.Class]bool{
		payment.ClassSucceeded: false, payment.ClassDeclined: false, payment.ClassRefused: false, payment.ClassNotFound: false,
		payment.ClassUnknown: true, payment.ClassMismatched: true, payment.ClassNotSent: true, payment.ClassThrottled: true,
	} {
		answered(rec.Tracer.Call("", telemetry.CallSubmit, "sim"), payment.Answer{Class: class})
		require.Equal(t, failed, last().Failed, class)
		require.Equal(t, class.String(), last().Attributes["settleonce.result"])
	}
	step := func() tracing.Span { return rec.Tracer.Process("", tracing.Message{Topic: "payment.commands"}) }
	for _, lost := range []store.Applied{{}, {Found: true, Err: errors.New("full")}} {
		ended(step(), lost)
		require.True(t, last().Failed)
		require.NotContains(t, last().Attributes, "settleonce.result")
	}
	ended(step(), store.Applied{Found: true, After: store.Payment{State: payment.Declined}}) // somebody else's change
	require.False(t, last().Failed)
	require.Equal(t, "declined", last().Attributes["settleonce.result"])
}
