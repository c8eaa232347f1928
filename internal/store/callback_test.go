package store_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/schemas"
)

// callback is a verified callback about a command's first attempt.
func callback(c payment.Command, change ...func(*channel.Callback)) store.Callback {
	said := channel.Callback{
		ID: "evt_" + uuid.NewString(), PaymentID: idOf(c), ProviderKey: c.Identity().ProviderKey(1), Reference: "ref-1",
		Kind: channel.CallbackSucceeded, Amount: c.Amount, Currency: c.Currency, OccurredAt: time.Now(),
	}
	for _, f := range change {
		f(&said)
	}
	return store.Callback{Channel: "sim", Said: said, Body: []byte(`{"id":"as it came"}`)}
}

func keyOnly(c *channel.Callback)       { c.PaymentID, c.Reference = uuid.Nil, "" }
func referenceOnly(c *channel.Callback) { c.PaymentID, c.ProviderKey = uuid.Nil, uuid.Nil }

func (w *world) tell(callbacks ...store.Callback) {
	w.t.Helper()
	for _, c := range callbacks {
		fresh, err := w.store.StoreCallback(w.t.Context(), c)
		require.NoError(w.t, err)
		require.True(w.t, fresh)
	}
}

// pick takes what is due, which must be n callbacks.
func (w *world) pick(n int) []store.Callback {
	w.t.Helper()
	picked, err := w.store.PickCallbacks(w.t.Context(), time.Minute, 100)
	require.NoError(w.t, err)
	require.Len(w.t, picked, n)
	return picked
}

// decide picks one callback and applies the verdict to it.
func (w *world) decide(c store.Callback, about uuid.UUID, decide func(*store.Locked) store.CallbackVerdict) store.CallbackApplied {
	w.t.Helper()
	out, err := w.store.ApplyCallbacks(w.t.Context(), []store.CallbackStep{{Callback: c, Payment: about, Decide: decide}})
	require.NoError(w.t, err)
	return out[0]
}

func fixed(v store.CallbackVerdict) func(*store.Locked) store.CallbackVerdict {
	return func(*store.Locked) store.CallbackVerdict { return v }
}

// P12: the same callback five times at once is one row, one wake-up, and four
// times nothing.
func TestStoreCallbackOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := callback(command())
	var mu sync.Mutex
	fresh := map[bool]int{}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			ok, err := w.store.StoreCallback(context.WithoutCancel(t.Context()), c)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				fresh[ok]++
			}
		})
	}
	all.Wait()
	require.Equal(t, map[bool]int{true: 1, false: 4}, fresh)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.callbacks WHERE body = '{"id":"as it came"}' AND next_check_at IS NOT NULL`))
	messages := w.outbox()
	require.Len(t, messages, 1)
	require.Equal(t, "payment.callbacks", messages[0].Topic)
	require.Equal(t, c.Said.ProviderKey.String(), messages[0].Key)
	validator, err := schemas.NewValidator()
	require.NoError(t, err)
	require.NoError(t, validator.Validate(schemas.Callback, messages[0].Payload))
	var message payment.CallbackMessage
	require.NoError(t, json.Unmarshal(messages[0].Payload, &message))
	require.Equal(t, c.Said.ID, message.CallbackID)
	require.EqualValues(t, 1, w.wakes.Load())

	// The same id on another channel is another callback.
	c.Channel = "other"
	w.tell(c)
}

// What was picked is not picked again at once, and comes again when its worker
// died; what is done with never does.
func TestPickCallbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := callback(command())
	w.tell(c)
	picked := w.pick(1)[0]
	require.Equal(t, c.Said.ID, picked.Said.ID)
	require.Equal(t, c.Said.ProviderKey, picked.Said.ProviderKey)
	require.Equal(t, 1, picked.Tries)
	w.pick(0)
	w.exec(`UPDATE settleonce.callbacks SET next_check_at = now()`)
	require.Equal(t, 2, w.pick(1)[0].Tries)
	out := w.decide(picked, uuid.Nil, fixed(store.CallbackVerdict{Result: store.CallbackRecorded}))
	require.True(t, out.Settled)
	w.exec(`UPDATE settleonce.callbacks SET next_check_at = now() WHERE processed_at IS NULL`)
	w.pick(0)
	require.False(t, w.decide(picked, uuid.Nil, fixed(store.CallbackVerdict{})).Settled, "the marker stands")
}

// A callback finds its payment by what it repeats of ours, and by nothing else.
func TestMatchCallbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open, ended, imported := w.claimed(command()), w.claimed(command()), w.claimed(command())
	w.reach(idOf(ended), payment.Succeeded)
	w.reach(idOf(imported), payment.Succeeded)
	w.exec(`INSERT INTO settleonce.provider_references (channel, reference, payment) VALUES ('sim', 'legacy-7', $1)`, idOf(imported).String())
	elsewhere := callback(open, keyOnly)
	elsewhere.Channel = "other"
	callbacks := []store.Callback{
		callback(open), callback(ended), callback(open, keyOnly), callback(ended, keyOnly), callback(command(), keyOnly), elsewhere,
		callback(imported, referenceOnly, func(c *channel.Callback) { c.Reference = "legacy-7" }),
		callback(imported, referenceOnly, func(c *channel.Callback) { c.Reference = "legacy-8" }),
	}
	found, err := w.store.MatchCallbacks(t.Context(), callbacks)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{idOf(open), idOf(ended), idOf(open), uuid.Nil, uuid.Nil, uuid.Nil, idOf(imported), uuid.Nil}, found)
}

// Where callbacks do not repeat our payment id, the names of a payment are kept
// as it ends; nowhere else is a row written.
func TestNamesOfEndedPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	plain := w.claimed(command())
	w.reach(idOf(plain), payment.Succeeded)
	named := store.New(store.Config{
		Pool: w.pool, Topics: payment.NewTopics(""), Named: func(channel string) bool { return channel == "sim" }, Logger: zerolog.Nop(),
	})
	w.store = named
	kept, refused := w.claimed(command()), w.claimed(command())
	w.reach(idOf(kept), payment.Succeeded)
	w.reach(idOf(refused), payment.Declined)
	found, err := named.MatchCallbacks(t.Context(), []store.Callback{
		callback(plain, keyOnly), callback(kept, keyOnly), callback(refused, keyOnly),
		callback(kept, referenceOnly, func(c *channel.Callback) { c.Reference = "ref-1" }),
	})
	require.NoError(t, err)
	require.Equal(t, uuid.Nil, found[0])
	require.Equal(t, []uuid.UUID{idOf(kept), idOf(refused)}, found[1:3])
	require.NotEqual(t, uuid.Nil, found[3], "of two payments with one reference the first one is found")
	require.Equal(t, 3, w.count(`SELECT count(*) FROM settleonce.provider_references`))
}

// Marker and effect are one transaction, and an effect that cannot be stored
// fails alone (G7).
func TestApplyCallbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, bad, twice := w.claimed(command()), w.claimed(command()), w.claimed(command())
	w.reach(idOf(bad), payment.Succeeded)
	w.tell(callback(good), callback(bad), callback(twice), callback(twice))
	picked := w.pick(4)
	success := fixed(store.CallbackVerdict{Result: store.CallbackEvidence, Matched: true, Change: &store.Change{
		To: payment.Succeeded, Reference: "ref-1", Event: payment.EventSucceeded, Reply: payment.ReplyOutcome, Actor: "test",
	}})
	steps := make([]store.CallbackStep, len(picked))
	for i, c := range picked {
		steps[i] = store.CallbackStep{Callback: c, Payment: c.Said.PaymentID, Decide: success}
		if c.Said.PaymentID == idOf(bad) {
			steps[i].Decide = fixed(store.CallbackVerdict{Result: store.CallbackEvidence, Change: &store.Change{To: payment.Declined}})
		}
	}
	out, err := w.store.ApplyCallbacks(t.Context(), steps)
	require.NoError(t, err)
	results := map[store.CallbackResult]int{}
	for i := range out {
		results[out[i].Verdict.Result]++
		require.Equal(t, picked[i].Said.PaymentID == idOf(bad), out[i].Applied.Err != nil)
	}
	require.Equal(t, map[store.CallbackResult]int{store.CallbackEvidence: 2, store.CallbackFailed: 1, store.CallbackWaits: 1}, results)
	for _, c := range []payment.Command{good, bad, twice} {
		require.Equal(t, payment.Succeeded, w.status(idOf(c)).Payment.State)
	}
	require.Equal(t, 3, w.count(`SELECT count(*) FROM settleonce.callbacks WHERE processed_at IS NOT NULL`))
	w.consistent()
}

// A callback that matches nothing is reported once, and the item is closed when
// its payment is there.
func TestUnmatchedCallbackIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := callback(command())
	w.tell(c)
	report := fixed(store.CallbackVerdict{Result: store.CallbackReported, Report: "not here", Again: time.Hour})
	for range 2 {
		w.exec(`UPDATE settleonce.callbacks SET next_check_at = now()`)
		w.decide(w.pick(1)[0], uuid.Nil, report)
	}
	open := `SELECT count(*) FROM settleonce.review_items WHERE kind = 'callback' AND closed_at IS NULL AND NOT blocks
		AND payment = $1 AND evidence->>'callbackId' = $2`
	require.Equal(t, 1, w.count(open, payment.CallbackID("sim", c.Said.ID).String(), c.Said.ID))
	o, err := w.store.Overview(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"sim": 1}, o.UnmatchedCallbacks)
	require.EqualValues(t, 1, o.Reviews["callback"])

	w.exec(`UPDATE settleonce.callbacks SET next_check_at = now()`)
	picked := w.pick(1)[0]
	require.True(t, picked.Reported)
	w.decide(picked, c.Said.PaymentID, fixed(store.CallbackVerdict{Result: store.CallbackAgreed, Matched: true}))
	require.Zero(t, w.count(open, payment.CallbackID("sim", c.Said.ID).String(), c.Said.ID))
	o, err = w.store.Overview(t.Context())
	require.NoError(t, err)
	require.Empty(t, o.UnmatchedCallbacks)
}

// Callbacks, and the other names of payments, go with the keys.
func TestCallbacksAreForgottenWithTheKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gone, kept := w.claimed(command()), w.claimed(command())
	w.reach(idOf(gone), payment.Succeeded)
	w.reach(idOf(kept), payment.Succeeded)
	w.tell(callback(gone), callback(kept), callback(command()), callback(command()))
	for _, c := range []payment.Command{gone, kept} {
		w.exec(`INSERT INTO settleonce.provider_references (channel, reference, payment) VALUES ('sim', $1, $2)`, c.OrderID, idOf(c).String())
	}
	w.exec(`UPDATE settleonce.payments SET created_at = now() - interval '30 days', ended_at = now() - interval '30 days',
		latest_issued_at = now() - interval '30 days' WHERE id = $1`, idOf(gone).String())
	w.exec(`UPDATE settleonce.callbacks SET received_at = now() - interval '30 days' WHERE callback_id <> (SELECT max(callback_id)
		FROM settleonce.callbacks WHERE payment NOT IN (SELECT id FROM settleonce.payments))`)
	removed, err := w.store.RemoveExpired(t.Context(), payment.Freshness{}.WithDefaults())
	require.NoError(t, err)
	require.EqualValues(t, 1, removed["payments"])
	require.EqualValues(t, 2, removed["callbacks"])
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.callbacks WHERE payment = $1`, idOf(kept).String()))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.provider_references WHERE payment = $1`, idOf(kept).String()))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.provider_references`))
}
