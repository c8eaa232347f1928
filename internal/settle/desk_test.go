package settle_test

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
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// oracle is a channel whose lookup says what the test wants, and notes the keys it
// was asked about.
type oracle struct {
	silent

	says  payment.Answer
	asked []uuid.UUID
	// meanwhile happens while the question is on its way; nil for nothing.
	meanwhile func()
}

// Query implements channel.Adapter.
func (o *oracle) Query(_ context.Context, l channel.Lookup) payment.Answer {
	o.asked = append(o.asked, l.ProviderKey)
	if do := o.meanwhile; do != nil {
		o.meanwhile = nil
		do()
	}
	return o.says
}

// office is a desk over a real database, with one payment in review whose send is
// long dead.
type office struct {
	t       *testing.T
	desk    *settle.Desk
	store   *store.Store
	look    *pgxpool.Pool
	channel *oracle
	id      uuid.UUID
}

func newOffice(t *testing.T) *office {
	t.Helper()
	dsn := pgtest.DSN(t, pgtest.Schema)
	pool, err := store.OpenPool(t.Context(), store.PoolConfig{DSN: dsn})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	o := &office{t: t, look: pool, channel: &oracle{}}
	o.store = store.New(store.Config{Pool: pool, Topics: payment.NewTopics(""), Logger: zerolog.Nop()})
	caps := with(notIdempotent)
	registry, err := channel.NewRegistry(map[string]channel.Entry{"sim": {Adapter: o.channel, Capabilities: caps}})
	require.NoError(t, err)
	settler, err := settle.New(settle.Config{Store: o.store, Rules: settle.Rules{Channels: registry}, Logger: zerolog.Nop()})
	require.NoError(t, err)
	o.desk = &settle.Desk{Store: o.store, Settler: settler, Budget: store.QueryPolicy{}.WithDefaults()}
	o.claim(caps.Identity)
	return o
}

func (o *office) claim(identity string) {
	o.t.Helper()
	c := payment.Command{
		IdempotencyKey: uuid.New(), Caller: "shop", Operation: payment.OperationCharge, OrderID: "order-1", Amount: 1999, Currency: "EUR",
		CustomerID: "cust-7", PaymentMethod: "tok_visa", Channel: "sim", IssuedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	fingerprint, err := c.Fingerprint()
	require.NoError(o.t, err)
	o.id = c.Identity().PaymentID()
	out, err := o.store.Claim(o.t.Context(), store.Batch{
		Arrivals: []store.Arrival{{
			Origin: store.Origin{Topic: "payment.commands", Time: time.Unix(0, 0)}, Identity: c.Identity(), Command: c, Fingerprint: fingerprint,
			Namespace: "shop", ChannelIdentity: identity, Admit: true,
		}},
		Lease: 5, LeaseFor: time.Second, SendWithin: time.Second, Freshness: payment.Freshness{}.WithDefaults(), Group: "group",
	})
	require.NoError(o.t, err)
	require.Equal(o.t, store.Claimed, out[0].Verdict)
	_, err = o.look.Exec(o.t.Context(), `UPDATE settleonce.open_payments SET opened_at = opened_at - interval '2 hours'`)
	require.NoError(o.t, err)
	o.apply(func(l store.Locked) *store.Change {
		open := *l.Open
		open.Lease, open.LeaseUntil = 0, l.Now
		open.Sends.First, open.Sends.LastDeadline = l.Now.Add(-time.Hour), l.Now.Add(-time.Hour)
		return &store.Change{
			To: payment.Review, Event: payment.EventReviewRequired, Open: &open, Actor: "test", Cause: "no answer",
			Review: &store.Review{Kind: store.ReviewUnresolved, Reason: "no answer"},
		}
	})
}

func (o *office) apply(decide func(store.Locked) *store.Change) store.Applied {
	o.t.Helper()
	out, err := o.store.Apply(o.t.Context(), []store.Step{{Payment: o.id, WithGround: true, Decide: decide}})
	require.NoError(o.t, err)
	require.NoError(o.t, out[0].Err)
	return out[0]
}

func (o *office) row() store.Locked {
	o.t.Helper()
	found, err := o.store.Read(o.t.Context(), []uuid.UUID{o.id})
	require.NoError(o.t, err)
	require.Len(o.t, found, 1)
	return found[0]
}

func (o *office) count(sql string) (n int) {
	o.t.Helper()
	require.NoError(o.t, o.look.QueryRow(o.t.Context(), sql).Scan(&n))
	return n
}

// TestDesk_OpensAnAttempt: the provider is asked under the old key, the new attempt
// has its own, and who wanted it is on record.
func TestDesk_OpensAnAttempt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.channel.says = payment.Answer{Class: payment.ClassNotFound}
	old := o.row().Payment.ProviderKey
	got, err := o.desk.OpenAttempt(t.Context(), o.id, operator)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{old}, o.channel.asked)
	l := o.row()
	require.Equal(t, 2, got.Attempt)
	require.Equal(t, 2, l.Payment.Attempt)
	require.Equal(t, payment.Review, l.Payment.State)
	require.Equal(t, l.Payment.Identity.ProviderKey(2), l.Payment.ProviderKey)
	require.Zero(t, l.Payment.Sends)
	require.Zero(t, l.Open.Sends)
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.attempts a JOIN settleonce.payments p ON p.id = a.payment
		WHERE a.attempt = 1 AND a.sends = 1 AND a.provider_key <> p.provider_key AND a.actor = 'ann' AND a.evidence LIKE '%not_found%'`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'attempt' AND actor = 'ann' AND reason <> ''`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.payment_history WHERE attempt = 2 AND send = 0`))

	_, err = o.desk.OpenAttempt(t.Context(), o.id, operator)
	var refused *settle.RefusalError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "not sent yet")
	require.Len(t, o.channel.asked, 1, "what is refused anyway is not asked about")
}

// TestP33_StoredUntilTheLaterAttemptIsResolved: success of the first attempt while
// the second is on its way is kept in the database, and becomes the end.
func TestP33_StoredUntilTheLaterAttemptIsResolved(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.channel.says = payment.Answer{Class: payment.ClassNotFound}
	before := o.row().Payment
	_, err := o.desk.OpenAttempt(t.Context(), o.id, operator)
	require.NoError(t, err)
	rules, lease := o.desk.Settler.Rules(), int64(77)
	o.apply(func(l store.Locked) *store.Change {
		open := *l.Open
		open.Lease = lease
		return &store.Change{Open: &open, Actor: "test", Quiet: true}
	})
	granted := o.apply(rules.Permitted(settle.Grant{Lease: lease, Admitted: true, Actor: "test"}))
	require.Equal(t, settle.Granted, granted.Change.Cause)
	require.Equal(t, 2, granted.After.Attempt)

	o.apply(rules.Answered(settle.Permit{Payment: before, Lease: 5, Actor: "late"}, success()))
	l := o.row()
	require.Equal(t, payment.Review, l.Payment.State)
	require.Equal(t, 1, l.Open.PaidAttempt)
	require.Equal(t, "ch_1", l.Open.PaidReference)
	require.True(t, l.Open.NoMoreSends)

	ended := o.apply(rules.Answered(settle.Permit{Payment: granted.After, Lease: lease, Actor: "test"}, decline()))
	require.Equal(t, payment.Succeeded, ended.After.State)
	require.Equal(t, 1, o.row().Payment.Attempt)
	require.Equal(t, before.ProviderKey, o.row().Payment.ProviderKey)
	require.Zero(t, o.count(`SELECT count(*) FROM settleonce.obligation_holds`))
	require.Zero(t, o.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL`))
}

// TestDesk_Resolves: closed with evidence; without, nothing changes; and a success
// that the desk hears is the outcome.
func TestDesk_Resolves(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.channel.says = silence()
	_, err := o.desk.Resolve(t.Context(), o.id, operator)
	require.ErrorContains(t, err, "no definite answer")
	require.Equal(t, payment.Review, o.row().Payment.State)
	_, err = o.desk.Resolve(t.Context(), o.id, settle.Order{Actor: "ann"})
	require.ErrorContains(t, err, "actor and a reason")
	_, err = o.desk.Resolve(t.Context(), uuid.New(), operator)
	require.ErrorIs(t, err, store.ErrNotFound)

	o.channel.says = payment.Answer{Class: payment.ClassNotFound}
	got, err := o.desk.Resolve(t.Context(), o.id, operator)
	require.NoError(t, err)
	require.Equal(t, payment.Declined, got.State)
	require.Equal(t, settle.NotExecuted, got.Cause)
	require.Equal(t, operator.Reason, got.Detail)
	require.Zero(t, o.count(`SELECT count(*) FROM settleonce.obligation_holds`))
	require.Zero(t, o.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL`))
	require.Equal(t, 1, o.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'resolve'`))

	other := newOffice(t)
	other.channel.says = success()
	got, err = other.desk.Resolve(t.Context(), other.id, operator)
	require.ErrorContains(t, err, "success")
	require.Equal(t, payment.Succeeded, got.State)
	require.Equal(t, payment.Succeeded, other.row().Payment.State)
}
