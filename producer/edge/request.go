package edge

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/tracing"
)

// call is what is known about one request beside the request: for its answer, its
// log line and its metrics.
type call struct {
	id     string
	caller Caller
	code   Code
	// extra goes into the log line.
	payment uuid.UUID
	trace   tracing.Span
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the request's call; outside of one, a fresh one.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

func requestID(ctx context.Context) string { return callOf(ctx).id }

func noteCode(ctx context.Context, code Code) { callOf(ctx).code = code }

const requestIDHeader = "X-Request-ID"

// maxRequestID bounds what a client may choose.
const maxRequestID = 64

// requestIDOf takes the client's request id where it is harmless, and makes one
// otherwise.
func requestIDOf(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if id == "" || len(id) > maxRequestID {
		return uuid.NewString()
	}
	for i := range len(id) {
		b := id[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if !letter && b != '-' && b != '_' && b != '.' {
			return uuid.NewString()
		}
	}
	return id
}
