package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

var settledBy = store.Settlement{Operator: store.Operator{Actor: "ann", Reason: "given back"}, Second: "bob", Evidence: "re_5501"}

// conflicted is a payment that ended declined, with a success that came later.
func (w *world) conflicted() (payment.Command, store.ReviewItem) {
	w.t.Helper()
	c := w.claimed(command())
	w.reach(idOf(c), payment.Declined)
	w.apply(idOf(c), always(store.Change{
		Event: payment.EventEvidenceConflict, Actor: "test",
		Review: &store.Review{Kind: store.ReviewConflict, Blocks: true, Reason: "success after all", Evidence: "reference=ch_1"},
	}))
	return c, w.item(store.ReviewFilter{Payment: idOf(c)})
}

func (w *world) items(f store.ReviewFilter) []store.ReviewItem {
	w.t.Helper()
	found, err := w.store.ReviewItems(w.t.Context(), f)
	require.NoError(w.t, err)
	return found
}

func (w *world) item(f store.ReviewFilter) store.ReviewItem {
	w.t.Helper()
	found := w.items(f)
	require.Len(w.t, found, 1)
	return found[0]
}

// TestG9_SettledConflict: the item holds the obligation until a person settles it;
// the outcome stays, and who did it is on record (G15).
func TestG9_SettledConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k1, item := w.conflicted()
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(w.arrive(sameOrder(k1)))))
	version := w.status(idOf(k1)).Payment.Version
	require.NoError(t, w.store.SettleItem(t.Context(), item.ID, settledBy))

	st := w.status(idOf(k1))
	require.Equal(t, payment.Declined, st.Payment.State)
	require.Equal(t, version, st.Payment.Version, "no transition, and no event")
	last := st.History[len(st.History)-1]
	require.Equal(t, "ann", last.Actor)
	require.Contains(t, last.Cause, "settled: given back")
	closed := w.item(store.ReviewFilter{ID: item.ID})
	require.NotNil(t, closed.ClosedAt)
	require.Equal(t, "settled: given back", closed.Resolution)
	orders, err := w.store.Orders(t.Context(), idOf(k1))
	require.NoError(t, err)
	require.Len(t, orders, 1)
	require.JSONEq(t, `{"payment":"`+idOf(k1).String()+`","item":"1","kind":"conflict","evidence":"re_5501","second":"bob"}`, string(orders[0].Detail))
	require.Equal(t, []string{"fresh"}, verdicts(w.claim(w.arrive(sameOrder(k1)))))
	w.consistent()

	err = w.store.SettleItem(t.Context(), item.ID, settledBy)
	require.ErrorIs(t, err, store.ErrItemClosed)
	require.ErrorContains(t, err, "by ann at")
	require.ErrorIs(t, w.store.SettleItem(t.Context(), 4711, settledBy), store.ErrNoItem)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.audit`))
}

// TestSettleItem_OnlyWhatAPersonSettles: an item of an unresolved payment is closed
// by its outcome; one of a callback without a payment by a person.
func TestSettleItem_OnlyWhatAPersonSettles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	w.apply(idOf(c), func(l store.Locked) *store.Change {
		change := waiting(payment.Review, payment.EventReviewRequired)(l)
		change.Review = &store.Review{Kind: store.ReviewUnresolved, Reason: "no answer"}
		return change
	})
	unresolved := w.item(store.ReviewFilter{})
	require.ErrorIs(t, w.store.SettleItem(t.Context(), unresolved.ID, settledBy), store.ErrItemOfPayment)
	require.Nil(t, w.item(store.ReviewFilter{ID: unresolved.ID}).ClosedAt)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.audit`))

	w.exec(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason, evidence)
		VALUES ($1, 'callback', '', '', 0, false, 'matches nothing', '{"channel":"sim"}')`, uuid.New())
	callback := w.item(store.ReviewFilter{Kind: store.ReviewCallback})
	require.NoError(t, w.store.SettleItem(t.Context(), callback.ID, settledBy))
	require.Empty(t, w.items(store.ReviewFilter{Kind: store.ReviewCallback}))
	w.consistent()
}

// TestSettleItem_OneOfTwoOperators: both settle at once, one of them does.
func TestSettleItem_OneOfTwoOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, item := w.conflicted()
	errs := make([]error, 6)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = w.store.SettleItem(t.Context(), item.ID, settledBy) })
	}
	all.Wait()
	done := 0
	for _, err := range errs {
		if err == nil {
			done++
			continue
		}
		require.ErrorIs(t, err, store.ErrItemClosed)
	}
	require.Equal(t, 1, done)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'settle'`))
}

// TestP33_CallbackWithThePastAttemptsKey finds its payment by the key alone, on its own
// channel.
func TestP33_CallbackWithThePastAttemptsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	id, key := idOf(c), c.Identity().ProviderKey(1)
	w.reach(id, payment.Review)
	w.apply(id, func(l store.Locked) *store.Change {
		open := *l.Open
		open.Sends = channel.Sends{}
		return &store.Change{Attempt: 2, Open: &open, Cause: "attempt 2 opened", Actor: "ann", Audit: &store.Audit{Action: "attempt", Reason: "INC-42"}}
	})
	require.NotEqual(t, key, w.status(id).Payment.ProviderKey)
	said := channel.Callback{ID: "evt_1", Kind: channel.CallbackSucceeded, ProviderKey: key}
	found, err := w.store.MatchCallbacks(t.Context(), []store.Callback{{Channel: "sim", Said: said}, {Channel: "acme", Said: said}})
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{id, uuid.Nil}, found)
}

// TestReviewItems: each filter leaves out what it should, and the oldest is first.
func TestReviewItems(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, first := w.conflicted()
	k2, second := w.conflicted()
	w.exec(`UPDATE settleonce.review_items SET opened_at = opened_at - interval '2 hours' WHERE id = $1`, second.ID)
	w.exec(`UPDATE settleonce.payments SET channel = 'acme' WHERE id = $1`, idOf(k2))
	w.exec(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason, evidence)
		VALUES ($1, 'callback', '', '', 0, false, 'matches nothing', '{"channel":"acme"}')`, uuid.New())
	callback := w.item(store.ReviewFilter{Kind: store.ReviewCallback}).ID
	for name, test := range map[string]struct {
		f    store.ReviewFilter
		want []int64
	}{
		"all":     {store.ReviewFilter{}, []int64{second.ID, first.ID, callback}},
		"limit":   {store.ReviewFilter{Limit: 1}, []int64{second.ID}},
		"kind":    {store.ReviewFilter{Kind: store.ReviewConflict}, []int64{second.ID, first.ID}},
		"channel": {store.ReviewFilter{Channel: "acme"}, []int64{second.ID, callback}},
		"caller":  {store.ReviewFilter{Caller: "shop"}, []int64{second.ID, first.ID}},
		"nobody":  {store.ReviewFilter{Caller: "cron"}, nil},
		"older":   {store.ReviewFilter{OlderThan: time.Hour}, []int64{second.ID}},
		"one":     {store.ReviewFilter{ID: first.ID}, []int64{first.ID}},
		"payment": {store.ReviewFilter{Payment: idOf(k2)}, []int64{second.ID}},
	} {
		var got []int64
		for _, i := range w.items(test.f) {
			got = append(got, i.ID)
		}
		require.Equal(t, test.want, got, name)
	}
	require.NoError(t, w.store.SettleItem(t.Context(), first.ID, settledBy))
	require.Len(t, w.items(store.ReviewFilter{}), 2)
}
