package store_test

import (
	"bytes"
	"strings"
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

// A traceparent goes on with every message of its delivery, and its id into the
// lines; nothing else makes one.
func TestTracesGoOn(t *testing.T) {
	t.Parallel()
	const id = "0af7651916cd43dd8448eb211c80319c"
	traces := []string{"00-" + id + "-b7ad6b7169203331-01", "00-" + id + "-b7ad6b7169203332-01", "00-" + id + "-b7ad6b7169203333-00"}
	w := newWorld(t)
	var out bytes.Buffer
	w.store = store.New(store.Config{Pool: w.pool, Topics: payment.NewTopics(""), Wake: func() {}, Logger: zerolog.New(&out)})
	c := command()
	first, repeat := w.arrive(c), w.arrive(c)
	first.Trace, repeat.Trace = traces[0], traces[1]
	b := batch(first, repeat)
	b.Announce = true
	_, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	asking := func(l store.Locked) *store.Change {
		change := waiting(payment.Unknown, payment.EventUnknown)(l)
		change.Requery = 1
		return change
	}
	for _, step := range []store.Step{
		{Decide: asking, Trace: traces[2]},
		{Decide: always(finish(payment.Succeeded))},
	} {
		step.Payment = idOf(c)
		_, err := w.store.Apply(t.Context(), []store.Step{step})
		require.NoError(t, err)
	}
	got := make([]string, 0, 7)
	for _, m := range w.outbox() {
		got = append(got, m.Type+" "+m.Headers["traceparent"])
	}
	require.Equal(t, []string{
		"payment.accepted " + traces[0], "payment.reply.accepted " + traces[0], "payment.reply.pending " + traces[1],
		"payment.unknown " + traces[2], "payment.requery " + traces[2], "payment.succeeded ", "payment.reply.outcome ",
	}, got)
	require.Equal(t, 3, strings.Count(out.String(), `"trace_id":"`+id+`"`), out.String())
	require.Equal(t, 4, strings.Count(out.String(), "\n"), out.String())
}
