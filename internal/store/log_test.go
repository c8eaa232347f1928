package store_test

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// A line holds what there is to say, and no content.
func TestTransitionsAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var out bytes.Buffer
	w.store = store.New(store.Config{Pool: w.pool, Topics: payment.NewTopics(""), Wake: func() {}, Logger: zerolog.New(&out)})
	c := w.claimed(command())
	w.apply(idOf(c), always(finish(payment.Succeeded)))
	require.NotContains(t, out.String(), "trace_id")
	require.Contains(t, out.String(), `"state":"succeeded"`)
	require.Contains(t, out.String(), c.IdempotencyKey.String())
	require.NotContains(t, out.String(), `""`)
	require.NotContains(t, out.String(), "tok_visa")
}
