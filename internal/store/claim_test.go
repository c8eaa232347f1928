package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// TestClaimFresh: everything that G6 asks for is there before anything is sent.
func TestClaimFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := command()
	follows := uuid.New()
	c.Obligation, c.Follows, c.Metadata = "part-1", &follows, map[string]string{"cart": "c-55", "odd": "\u2028\"'{}"}
	a := w.arrive(c)
	b := batch(a)
	b.Next = map[store.Partition]int64{{Topic: "payment.commands", Number: 0}: 1, {Topic: "payment.commands", Number: 7}: 9}
	out, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []string{"fresh"}, verdicts(out))

	st := w.status(idOf(c))
	p := st.Payment
	require.Equal(t, payment.Pending, p.State)
	require.Equal(t, c.Identity(), p.Identity)
	require.Equal(t, a.Fingerprint, p.Fingerprint)
	require.Equal(t, c.Identity().ProviderKey(1), p.ProviderKey, "persisted before the first send (G6)")
	require.Equal(t, []any{"shop", "part-1", c.OrderID, int64(1999), "EUR", "cust-7", "tok_visa", "sim", "sim/test"},
		[]any{p.Namespace, p.Obligation, p.OrderID, p.Amount, p.Currency, p.CustomerID, p.PaymentMethod, p.Channel, p.ChannelIdentity})
	require.Equal(t, c.Metadata, p.Metadata)
	require.Equal(t, &follows, p.Follows)
	require.True(t, a.Origin.Time.Equal(p.Origin.Time))
	require.Equal(t, a.Origin.Offset, p.Origin.Offset)
	require.True(t, c.IssuedAt.Equal(p.IssuedAt) && c.IssuedAt.Equal(p.LatestIssuedAt))
	require.Equal(t, []int{0, 1, 1}, []int{p.Version, p.Attempt, p.Sends})
	require.True(t, p.EndedAt.IsZero())

	require.NotNil(t, st.Open)
	require.Equal(t, b.Lease, st.Open.Lease)
	require.Equal(t, 1, st.Open.Sends.Count)
	require.Equal(t, st.Open.OpenedAt, st.Open.Sends.First, "an earlier permit would be one of a lost claim")
	require.WithinDuration(t, st.Open.Sends.First.Add(b.SendWithin), st.Open.Sends.LastDeadline, 5*time.Second)
	require.WithinDuration(t, st.Open.OpenedAt.Add(b.LeaseFor), st.Open.LeaseUntil, 5*time.Second)
	require.WithinDuration(t, st.Open.LeaseUntil, st.Open.NextCheckAt, 5*time.Second)
	require.Equal(t, idOf(c), w.holder("shop", "part-1"))
	require.Empty(t, w.outbox(), "a fresh claim is answered by its outcome")
	require.Empty(t, st.Deliveries)
	require.Len(t, st.History, 1)
	require.Equal(t, p, *withStored(out[0].Payment, p), "what is sent is what is stored")
	require.Equal(t, 1, w.count(`SELECT next_offset FROM settleonce.consumed_offsets WHERE partition = 0`))
	require.Equal(t, 9, w.count(`SELECT next_offset FROM settleonce.consumed_offsets WHERE partition = 7`))
	w.consistent()
}

// withStored takes over what only the database knows.
func withStored(p *store.Payment, stored store.Payment) *store.Payment {
	p.CreatedAt, p.UpdatedAt = stored.CreatedAt, stored.UpdatedAt
	p.Origin.Time, p.IssuedAt, p.LatestIssuedAt = stored.Origin.Time, stored.IssuedAt, stored.LatestIssuedAt
	return p
}

// TestClaimParked: without admission nothing is permitted, and the sweep finds it.
func TestClaimParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.arrive(command()), w.arrive(command())
	a.Admit = false
	require.Equal(t, []string{"parked", "fresh"}, verdicts(w.claim(a, b)))
	open := w.status(a.Identity.PaymentID()).Open
	require.Zero(t, open.Sends)
	require.False(t, open.LeaseUntil.After(open.OpenedAt.Add(10*time.Second)), "nobody owns it")
	require.False(t, open.QueryFirst)

	late := batch(w.arrive(command()))
	late.QueryFirst = true
	out, err := w.store.Claim(t.Context(), late)
	require.NoError(t, err)
	require.Equal(t, []string{"parked"}, verdicts(out), "commits may be lost: ask before the first send")
	open = w.status(late.Arrivals[0].Identity.PaymentID()).Open
	require.True(t, open.QueryFirst)
	require.Zero(t, open.Sends)
	w.consistent()
}

// TestClaimMixedBatch judges one of everything in one transaction.
func TestClaimMixedBatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pending, paid, declined := w.claimed(command()), w.claimed(command()), w.claimed(command())
	w.reach(idOf(paid), payment.Succeeded)
	w.reach(idOf(declined), payment.Declined)

	fresh, old, future := command(), command(), command()
	old.IssuedAt, future.IssuedAt = old.IssuedAt.Add(-15*24*time.Hour), future.IssuedAt.Add(time.Hour)
	changed := pending
	changed.Amount++
	before := sameOrder(paid)
	before.IssuedAt = before.IssuedAt.Add(-time.Minute)
	unknown := w.arrive(command())
	unknown.Refusal = &store.Refusal{Code: payment.CodeUnknownChannel, Detail: "no channel \"sim\""}
	dead := store.Arrival{Origin: w.origin(), Dead: &store.Dead{Reason: payment.DeadUnreadable, Error: "is not JSON"}}
	dead.Raw = store.Raw{Key: []byte{0xff, 0}, Value: []byte("\x00\xff{"), Headers: map[string]string{"x": "y", "bin": "\x00\xff"}}

	arrivals := append(w.arriveAll(fresh, fresh, pending, paid, declined, changed, sameOrder(pending), before, sameOrder(declined), old, future), unknown, dead)
	require.Equal(t, []string{
		"fresh", "pending", "pending", "replayed", "replayed", "conflict IDEMPOTENCY_CONFLICT",
		"rejected PRIOR_ATTEMPT_UNRESOLVED", "rejected OBLIGATION_ALREADY_PAID", "fresh",
		"rejected STALE_COMMAND", "rejected INVALID_COMMAND", "rejected UNKNOWN_CHANNEL", "dead_lettered",
	}, verdicts(w.claim(arrivals...)))
	w.consistent()

	letters := w.letters()
	require.Len(t, letters, 2)
	require.Equal(t, arrivals[9].Raw.Value, letters[0].Payload, "a stale command is also dead-lettered, unchanged")
	require.Equal(t, "stale", letters[0].Headers["dl_reason"])
	require.Equal(t, dead.Raw.Value, letters[1].Payload, "bytes unchanged (G5)")
	require.Equal(t, string(dead.Raw.Key), letters[1].Key)
	require.Equal(t, payment.DeadLetterID("payment.commands", 0, dead.Origin.Offset, dead.Origin.Time), letters[1].ID)
	require.Equal(t, "unreadable", letters[1].Headers["dl_reason"])
	require.Equal(t, "is not JSON", letters[1].Headers["dl_error"])
	require.Equal(t, "y", letters[1].Headers["x"])

	blocked := w.replyTo(arrivals[6])
	require.Equal(t, idOf(pending), *blocked.BlockedBy)
	require.Equal(t, idOf(paid), *w.replyTo(arrivals[7]).BlockedBy)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.payments WHERE state = 6 AND obligation_hash IS NOT NULL`),
		"a rejection owns no obligation (G14)")
	require.Equal(t, 10, w.count(`SELECT count(*) FROM settleonce.deliveries`), "whoever was told something")
}

// letters are the dead letters in the outbox.
func (w *world) letters() []sent {
	w.t.Helper()
	var out []sent
	for _, m := range w.outbox() {
		if m.Topic == "payment.deadletter" {
			out = append(out, m)
		}
	}
	return out
}

// replyTo finds the reply to one delivery by the id that is derived from it.
func (w *world) replyTo(a store.Arrival) payment.Reply {
	w.t.Helper()
	for _, m := range w.outbox() {
		for _, kind := range []payment.ReplyKind{
			payment.ReplyOutcome, payment.ReplyReplayed, payment.ReplyPending, payment.ReplyConflict, payment.ReplyRejected,
		} {
			if m.Topic == "payment.replies" && m.ID == payment.ReplyID(a.Origin.Topic, a.Origin.Partition, a.Origin.Offset, a.Origin.Time, kind) {
				var r payment.Reply
				require.NoError(w.t, json.Unmarshal(m.Payload, &r))
				require.Equal(w.t, a.Identity.Key.String(), m.Key)
				require.Equal(w.t, kind, r.Kind)
				return r
			}
		}
	}
	require.Fail(w.t, "no reply", "to offset %d", a.Origin.Offset)
	return payment.Reply{}
}

// TestP24_DuplicatesInEveryState: the right reply in each state, no send.
func TestP24_DuplicatesInEveryState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tests := []struct {
		state   payment.State
		verdict store.Verdict
		kind    payment.ReplyKind
		outcome bool
	}{
		{payment.Pending, store.Pending, payment.ReplyPending, false},
		{payment.Unknown, store.Pending, payment.ReplyPending, false},
		{payment.Review, store.Pending, payment.ReplyPending, false},
		{payment.Succeeded, store.Replayed, payment.ReplyReplayed, true},
		{payment.Declined, store.Replayed, payment.ReplyReplayed, true},
	}
	for _, tt := range tests {
		c := w.claimed(command())
		w.reach(idOf(c), tt.state)
		before := w.status(idOf(c))
		again := w.arrive(c)
		out := w.claim(again)
		require.Equal(t, tt.verdict, out[0].Verdict, tt.state)
		require.Nil(t, out[0].Payment, "nothing to send")
		r := w.replyTo(again)
		require.Equal(t, []any{tt.kind, tt.state, true, before.Payment.Version}, []any{r.Kind, r.State, r.Replayed, r.Version})
		require.Equal(t, tt.outcome, r.Outcome != nil, tt.state)
		if tt.outcome {
			require.Equal(t, []any{tt.state, "ref-1", causeOf(tt.state)}, []any{r.Outcome.State, r.Outcome.ProviderReference, r.Outcome.Cause})
			require.WithinDuration(t, before.Payment.EndedAt, r.Outcome.OccurredAt, time.Millisecond)
		}
		after := w.status(idOf(c))
		require.Equal(t, before.Payment, after.Payment, "a repeat changes nothing")
		require.Equal(t, before.Open, after.Open)
		require.Len(t, after.Deliveries, 1, "what it was told is kept")
		require.Equal(t, tt.kind, after.Deliveries[0].Kind)
	}
	w.consistent()
}

// TestG8_Conflicts: other content under a known key, in every state and in the
// batch of the first.
func TestG8_Conflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, state := range []payment.State{payment.Pending, payment.Unknown, payment.Review, payment.Succeeded, payment.Declined} {
		c := w.claimed(command())
		w.reach(idOf(c), state)
		before := w.status(idOf(c))
		changed := c
		changed.Amount = 1
		again := w.arrive(changed)
		require.Equal(t, []string{"conflict IDEMPOTENCY_CONFLICT"}, verdicts(w.claim(again)))
		r := w.replyTo(again)
		require.Equal(t, payment.CodeIdempotencyConflict, r.Code)
		require.Nil(t, r.Outcome, "nothing of the other content is told")
		after := w.status(idOf(c))
		require.Equal(t, before.Payment, after.Payment)
	}
	c := command()
	changed := c
	changed.PaymentMethod = "tok_other"
	out := w.claim(w.arriveAll(c, changed, c)...)
	require.Equal(t, []string{"fresh", "conflict IDEMPOTENCY_CONFLICT", "pending"}, verdicts(out))
	require.Equal(t, "tok_visa", out[0].Payment.PaymentMethod)
	w.consistent()
}

// TestP18_CallersAreApart: the same key of two callers is two payments.
func TestP18_CallersAreApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mine := command()
	theirs := mine
	theirs.Caller = "rival"
	theirs.Amount = 5
	out := w.claim(w.arriveAll(mine, theirs)...)
	require.Equal(t, []string{"fresh", "fresh"}, verdicts(out))
	require.NotEqual(t, out[0].Payment.ProviderKey, out[1].Payment.ProviderKey)
	w.reach(idOf(mine), payment.Succeeded)
	again := w.arrive(theirs)
	w.claim(again)
	require.Equal(t, "rival", w.replyTo(again).Caller)
	require.Nil(t, w.replyTo(again).Outcome)
	w.consistent()
}

// TestP2_NewKeyWhileUnknown: the same key gets the same row, another key for the
// order is refused, also inside one batch.
func TestP2_NewKeyWhileUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.claimed(command())
	w.reach(idOf(first), payment.Unknown)
	second := w.arrive(sameOrder(first))
	require.Equal(t, []string{"pending", "rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(w.arrive(first), second)))
	require.Equal(t, idOf(first), *w.replyTo(second).BlockedBy)
	require.Equal(t, idOf(first), w.holder("shop", first.OrderID))

	a := command()
	b, other := sameOrder(a), command()
	require.Equal(t, []string{"fresh", "rejected PRIOR_ATTEMPT_UNRESOLVED", "fresh", "pending", "replayed PRIOR_ATTEMPT_UNRESOLVED"},
		verdicts(w.claim(w.arriveAll(a, b, other, a, b)...)))
	w.consistent()
}
