package review_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/internal/review"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// absent is a provider that knows nothing.
type absent struct{}

func (absent) Submit(context.Context, channel.Request) payment.Answer { return payment.Answer{} }
func (absent) Query(context.Context, channel.Lookup) payment.Answer {
	return payment.Answer{Class: payment.ClassNotFound}
}

// room is a reader over a database of its own.
type room struct {
	*review.Reader

	t    *testing.T
	desk *settle.Desk
	look *pgxpool.Pool
}

func newRoom(t *testing.T) *room {
	t.Helper()
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: pgtest.DSN(t, pgtest.Schema)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()})
	registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: absent{}, Capabilities: channel.Capabilities{
		Identity: "acme/live", Query: true, VisibilityLag: 5 * time.Second, QueryReach: channel.Forever, NotFoundIsProof: true,
		LongestExecution: 30 * time.Second,
	}}})
	require.NoError(t, err)
	settler, err := settle.New(settle.Config{Store: s, Rules: settle.Rules{Channels: registry}, Logger: zerolog.Nop()})
	require.NoError(t, err)
	desk := &settle.Desk{Store: s, Settler: settler, Budget: store.QueryPolicy{}.WithDefaults()}
	return &room{Reader: &review.Reader{Store: s, Rules: settler.Rules()}, t: t, desk: desk, look: pool}
}

// claimed is a payment that was sent once.
func (r *room) claimed() payment.Command {
	r.t.Helper()
	c := payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-1", Amount: 1999, Currency: "EUR",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	fingerprint, err := c.Fingerprint()
	require.NoError(r.t, err)
	_, err = r.Store.Claim(r.t.Context(), store.Batch{
		Arrivals: []store.Arrival{{
			Origin: store.Origin{Topic: "payment.commands", Time: time.Unix(0, 0)}, Identity: c.Identity(), Command: c, Fingerprint: fingerprint,
			Namespace: "shop", ChannelIdentity: "acme/live", Admit: true,
		}},
		Lease: 5, LeaseFor: time.Second, SendWithin: 20 * time.Second, Freshness: payment.Freshness{}.WithDefaults(), Group: "group",
	})
	require.NoError(r.t, err)
	return c
}

func (r *room) apply(c payment.Command, decide func(store.Locked) *store.Change) {
	r.t.Helper()
	out, err := r.Store.Apply(r.t.Context(), []store.Step{{Payment: c.Identity().PaymentID(), Decide: decide}})
	require.NoError(r.t, err)
	require.NoError(r.t, out[0].Err)
}

// reviewed puts a payment before a person.
func (r *room) reviewed(c payment.Command) {
	r.t.Helper()
	r.apply(c, func(l store.Locked) *store.Change {
		open := *l.Open
		open.Lease, open.LeaseUntil, open.NextCheckAt = 0, l.Now, l.Now.Add(time.Hour)
		return &store.Change{
			To: payment.Review, Event: payment.EventReviewRequired, Open: &open, Actor: "test", Cause: "no answer",
			Review: &store.Review{Kind: store.ReviewUnresolved, Reason: "no answer"},
		}
	})
}

// dead makes the send so old that nothing can come of it.
func (r *room) dead() {
	r.t.Helper()
	for _, sql := range []string{
		`UPDATE settleonce.payments SET created_at = created_at - interval '1 hour'`,
		`UPDATE settleonce.payment_history SET at = at - interval '1 hour' WHERE state = 1`,
		`UPDATE settleonce.open_payments SET opened_at = opened_at - interval '2 hours', first_send_at = first_send_at - interval '1 hour',
			last_deadline = last_deadline - interval '1 hour'`,
	} {
		_, err := r.look.Exec(r.t.Context(), sql)
		require.NoError(r.t, err)
	}
}

func (r *room) show(c payment.Command) (review.Case, map[string]review.Action) {
	r.t.Helper()
	got, err := r.Show(r.t.Context(), c.Identity().PaymentID())
	require.NoError(r.t, err)
	byName := map[string]review.Action{}
	for _, a := range got.Actions {
		byName[a.Name] = a
	}
	return got, byName
}

// TestShow: while a send may live, each action says from when it is possible; later
// that the provider is asked first; and a second attempt is shown beside the first.
func TestShow(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	c := r.claimed()
	r.reviewed(c)
	got, may := r.show(c)
	require.Len(t, got.Sends, 1)
	send := got.Sends[0]
	require.Equal(t, c.Identity().ProviderKey(1), send.ProviderKey)
	require.Equal(t, send.Deadline.Add(30*time.Second), *send.DeadAfter)
	require.False(t, send.Dead)
	require.Equal(t, c.Identity().PaymentID(), *got.Obligation.HeldBy)
	require.True(t, may[review.Requery].Possible)
	require.WithinDuration(t, send.DeadAfter.Add(5*time.Second), *may[review.Declined].PossibleAt, time.Second)
	require.WithinDuration(t, *send.DeadAfter, *may[review.Statement].PossibleAt, time.Second)
	require.WithinDuration(t, *may[review.Declined].PossibleAt, *may[review.Attempt].PossibleAt, time.Second)
	require.Contains(t, may[review.Succeeded].Refused, "can be asked")
	require.NotContains(t, may, review.Settled)

	r.dead()
	got, may = r.show(c)
	require.True(t, got.Sends[0].Dead)
	for _, name := range []string{review.Declined, review.Attempt} {
		require.True(t, may[name].Possible, name)
		require.True(t, may[name].AsksFirst, name)
	}
	require.True(t, may[review.Statement].Possible)
	entries, err := r.List(t.Context(), store.ReviewFilter{})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []string{review.Requery, review.Declined, review.Statement, review.Attempt}, entries[0].May)
	require.Equal(t, "order-1", entries[0].OrderID)

	_, err = r.desk.OpenAttempt(t.Context(), c.Identity().PaymentID(), settle.Order{Actor: "ann", Reason: "renewed"})
	require.NoError(t, err)
	got, may = r.show(c)
	require.Len(t, got.Past, 1)
	require.Equal(t, c.Identity().ProviderKey(1), got.Past[0].ProviderKey)
	require.Len(t, got.Sends, 1, "the second was not sent yet")
	require.Len(t, got.Orders, 1)
	require.Contains(t, may[review.Attempt].Refused, "not sent yet")
	require.True(t, may[review.Declined].Possible)
	require.False(t, may[review.Declined].AsksFirst)

	_, err = r.Show(t.Context(), uuid.New())
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestShow_NotSent: a permit that its worker proved not sent is no send.
func TestShow_NotSent(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	c := r.claimed()
	r.apply(c, func(l store.Locked) *store.Change {
		open := *l.Open
		open.Sends, open.Lease, open.LeaseUntil = channel.Sends{}, 0, l.Now
		return &store.Change{Open: &open, Cause: "not_sent: connection refused", Actor: "test"}
	})
	got, may := r.show(c)
	require.Empty(t, got.Sends)
	require.True(t, may[review.Declined].Possible, "no send was ever permitted")
	require.False(t, may[review.Declined].AsksFirst)
	require.Contains(t, may[review.Requery].Refused, "nothing was sent")
}

// TestList_Settleable: conflicts and callbacks may be settled, and nothing else; what a
// callback says stands in for its payment.
func TestList_Settleable(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	c := r.claimed()
	r.apply(c, func(store.Locked) *store.Change {
		return &store.Change{To: payment.Declined, Event: payment.EventDeclined, Cause: "card_declined", Actor: "test"}
	})
	r.apply(c, func(store.Locked) *store.Change {
		return &store.Change{
			Event: payment.EventEvidenceConflict, Actor: "test", Review: &store.Review{Kind: store.ReviewConflict, Blocks: true, Reason: "success after all"},
		}
	})
	_, err := r.look.Exec(t.Context(), `INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason, evidence)
		VALUES ($1, 'callback', '', '', 0, false, 'matches nothing', '{"channel":"sim","amount":700,"currency":"EUR"}')`, uuid.New())
	require.NoError(t, err)
	entries, err := r.List(t.Context(), store.ReviewFilter{})
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		require.Equal(t, []string{review.Settled}, e.May)
		require.Equal(t, "sim", e.Channel)
	}
	require.EqualValues(t, 700, entries[1].Amount)
	require.Empty(t, entries[1].Key)

	got, may := r.show(c)
	require.Equal(t, c.Identity().PaymentID(), *got.Obligation.BlockedBy)
	require.Contains(t, got.Obligation.Meaning, "blocks it")
	require.True(t, may[review.Settled].Possible)
	require.Contains(t, may[review.Declined].Refused, "ended declined")
	require.NoError(t, r.Store.SettleItem(t.Context(), entries[0].ID, store.Settlement{Operator: store.Operator{Actor: "ann", Reason: "given back"}}))
	got, may = r.show(c)
	require.NotContains(t, may, review.Settled)
	require.Contains(t, got.Obligation.Meaning, "free")
}
