package payment_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

// The plain types have the fields and tags but none of the methods, so
// encoding/json writes them its own way.
type (
	plainCommand payment.Command
	plainEvent   payment.Event
	plainReply   payment.Reply
	plainRequery payment.Requery
)

// sameMeaning checks that both texts are JSON of one meaning.
func sameMeaning(t require.TestingT, plain any, got []byte) {
	want, err := json.Marshal(plain)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))
}

func drawEvent(t *rapid.T) payment.Event {
	text := rapid.String()
	c := drawCommand(t)
	return payment.Event{
		PaymentID: c.Identity().PaymentID(), Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey,
		OrderID: c.OrderID, Obligation: c.Obligation, Amount: c.Amount, Currency: c.Currency, Channel: c.Channel,
		State: rapid.SampledFrom(states()).Draw(t, "state"), Version: rapid.Int().Draw(t, "version"),
		Attempt: rapid.Int().Draw(t, "attempt"), ProviderReference: text.Draw(t, "reference"),
		Cause: text.Draw(t, "cause"), OccurredAt: c.IssuedAt,
	}
}

func drawReply(t *rapid.T) payment.Reply {
	e := drawEvent(t)
	reply := payment.Reply{
		Kind: payment.ReplyKind(e.Channel), Code: payment.Code(e.Cause), Detail: e.ProviderReference,
		Caller: e.Caller, Operation: e.Operation, IdempotencyKey: e.IdempotencyKey, PaymentID: e.PaymentID,
		State: e.State, Version: e.Version, Replayed: rapid.Bool().Draw(t, "replayed"),
	}
	if rapid.Bool().Draw(t, "blocked") {
		id := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "blockedBy"))
		reply.BlockedBy = &id
	}
	if rapid.Bool().Draw(t, "outcome?") {
		reply.Outcome = &payment.Outcome{
			State: e.State, ProviderReference: e.ProviderReference, Cause: e.Cause, OccurredAt: e.OccurredAt,
		}
	}
	return reply
}

func TestAppendJSONMeansWhatEncodingJSONMeans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := drawCommand(t)
		sameMeaning(t, plainCommand(c), c.AppendJSON(nil))
		e := drawEvent(t)
		sameMeaning(t, plainEvent(e), e.AppendJSON(nil))
		r := drawReply(t)
		sameMeaning(t, plainReply(r), r.AppendJSON(nil))
		q := payment.Requery{PaymentID: e.PaymentID, Attempt: e.Attempt, Query: e.Version, DueAt: e.OccurredAt}
		sameMeaning(t, plainRequery(q), q.AppendJSON(nil))
	})
}

// What was written is read back the same by encoding/json.
func TestAppendJSONRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, r := drawEvent(t), drawReply(t)
		var event payment.Event
		require.NoError(t, json.Unmarshal(e.AppendJSON(nil), &event))
		require.Equal(t, e, event)
		var reply payment.Reply
		require.NoError(t, json.Unmarshal(r.AppendJSON(nil), &reply))
		require.Equal(t, r, reply)
		marshalled, err := json.Marshal(&r)
		require.NoError(t, err)
		require.JSONEq(t, string(r.AppendJSON(nil)), string(marshalled))
	})
}

// A provider may answer anything; what we publish is JSON all the same.
func TestAppendJSONIsAlwaysJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := payment.Event{Cause: string(rapid.SliceOf(rapid.Byte()).Draw(t, "cause")), State: payment.Declined}
		var back payment.Event
		require.NoError(t, json.Unmarshal(e.AppendJSON(nil), &back))
		want, err := json.Marshal(e.Cause)
		require.NoError(t, err)
		var cause string
		require.NoError(t, json.Unmarshal(want, &cause))
		require.Equal(t, cause, back.Cause, "bytes that are no text are replaced as encoding/json does")
	})
}

func TestAppendJSONAppends(t *testing.T) {
	t.Parallel()
	c, q := sample(), payment.Requery{DueAt: time.Unix(0, 0)}
	require.Equal(t, "prefix"+string(c.AppendJSON(nil)), string(c.AppendJSON([]byte("prefix"))))
	require.JSONEq(t, `{"paymentId":"00000000-0000-0000-0000-000000000000","attempt":0,"query":0,"dueAt":"1970-01-01T00:00:00Z"}`,
		string(q.AppendJSON(nil)))
}

// The database keeps microseconds in UTC, so messages say no more.
func TestTimesAreUTCWithMicroseconds(t *testing.T) {
	t.Parallel()
	zone := time.FixedZone("x", 5400)
	q := payment.Requery{DueAt: time.Date(2026, 11, 30, 11, 30, 0, 123456999, zone)}
	require.Contains(t, string(q.AppendJSON(nil)), `"dueAt":"2026-11-30T10:00:00.123456Z"`)
	q.DueAt = time.Date(2026, 11, 30, 11, 30, 0, 0, zone)
	require.Contains(t, string(q.AppendJSON(nil)), `"dueAt":"2026-11-30T10:00:00Z"`)
}

func BenchmarkAppendEvent(b *testing.B) {
	c := sample()
	e := payment.Event{
		PaymentID: c.Identity().PaymentID(), Caller: c.Caller, Operation: c.Operation, IdempotencyKey: c.IdempotencyKey,
		OrderID: c.OrderID, Obligation: c.Obligation, Amount: c.Amount, Currency: c.Currency, Channel: c.Channel,
		State: payment.Succeeded, Version: 1, Attempt: 1, ProviderReference: "ch_1001", OccurredAt: c.IssuedAt,
	}
	buffer := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buffer = e.AppendJSON(buffer[:0])
	}
}
