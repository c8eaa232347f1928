package store_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// TestApplyOutcome: outcome, event, reply, history, and the release of the order
// in one transaction (G7).
func TestApplyOutcome(t *testing.T) {
	t.Parallel()
	for _, state := range []payment.State{payment.Succeeded, payment.Declined} {
		w := newWorld(t)
		a := w.arrive(command())
		w.claim(a)
		id := a.Identity.PaymentID()
		change := finish(state)
		change.RequestHash, change.Detail = "hash", "do not honour"
		out := w.apply(id, always(change))
		require.True(t, out.Found)
		require.Equal(t, payment.Pending, out.Before.Payment.State)
		st := w.status(id)
		require.Equal(t, st.Payment, out.After, "what is returned is what is stored")
		require.Equal(t, []any{state, 1, "ref-1", causeOf(state), "do not honour"},
			[]any{st.Payment.State, st.Payment.Version, st.Payment.ProviderReference, st.Payment.Cause, st.Payment.Detail})
		require.True(t, st.Payment.EndedAt.Equal(out.Before.Now))
		require.Nil(t, st.Open)
		require.Zero(t, w.holder("shop", a.Command.OrderID))
		require.Len(t, st.History, 2)
		require.Equal(t, []any{"hash", "test", "ref-1"}, []any{st.History[1].RequestHash, st.History[1].Actor, st.History[1].ProviderReference})

		e := w.events()[0]
		require.Equal(t, []any{id, state, 1, int64(1999), "EUR", a.Command.OrderID, "ref-1"},
			[]any{e.PaymentID, e.State, e.Version, e.Amount, e.Currency, e.OrderID, e.ProviderReference})
		r := w.replyTo(a)
		require.Equal(t, []any{payment.ReplyOutcome, state, 1, false, state}, []any{r.Kind, r.State, r.Version, r.Replayed, r.Outcome.State})
		all := w.outbox()
		require.Len(t, all, 2)
		require.Equal(t, []string{"payment.events", "payment.replies"}, []string{all[0].Topic, all[1].Topic})
		require.Equal(t, payment.EventID(id, 1, change.Event), all[0].ID)
		require.Equal(t, id.String(), all[0].Headers["ce_subject"])
		require.Positive(t, w.wakes.Load())
		w.consistent()
	}
}

// TestApplyWaiting: an unresolved payment keeps its order, its open row becomes
// what was decided, its re-query is announced for the same time, and a person is
// told once.
func TestApplyWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	id := idOf(c)
	var want store.Open
	out := w.apply(id, func(l store.Locked) *store.Change {
		want = *l.Open
		want.Lease, want.LeaseUntil, want.NextCheckAt = 0, l.Now, l.Now.Add(time.Second)
		want.Queries, want.Watches, want.NoMoreSends, want.QueryFirst = 2, 3, true, true
		want.DeclineCause, want.DeclineReference = "no funds", "ch_9"
		want.Sends.Count, want.Sends.LastDeadline = 2, l.Now.Add(time.Minute)
		open := want
		return &store.Change{
			To: payment.Review, Event: payment.EventReviewRequired, Cause: "odd \x00 answer \xff", Open: &open, Requery: 3, Actor: "test",
			Review: &store.Review{Kind: store.ReviewUnresolved, Reason: "look", Evidence: "5xx \x00"},
		}
	})
	st := w.status(id)
	require.Equal(t, &want, st.Open)
	require.Equal(t, 2, st.Payment.Sends)
	require.Equal(t, id, w.holder("shop", c.OrderID))
	require.Equal(t, "odd \uFFFD answer \uFFFD", st.History[1].Cause, "foreign text is made storable")
	all := w.outbox()
	require.Equal(t, "payment.requery.16s", all[1].Topic)
	var q payment.Requery
	require.NoError(t, json.Unmarshal(all[1].Payload, &q))
	require.Equal(t, 3, q.Query)
	require.True(t, want.NextCheckAt.Equal(q.DueAt))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL AND payment = $1`, id))

	quiet := w.apply(id, func(l store.Locked) *store.Change { return &store.Change{Open: l.Open, Quiet: true} })
	require.Equal(t, out.After.Version, quiet.After.Version)
	require.Len(t, w.status(id).History, 2, "nothing worth a row")

	done := finish(payment.Succeeded)
	done.CloseReviews = "the provider reports success"
	w.apply(id, always(done))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL`))
	w.consistent()
}

// TestP8_ConflictBesideTheOutcome: the outcome stays, the item blocks the order.
func TestP8_ConflictBesideTheOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	w.reach(idOf(c), payment.Declined)
	before := w.status(idOf(c)).Payment
	conflict := func(l store.Locked) *store.Change {
		if l.Conflicted {
			return nil
		}
		return &store.Change{
			Event: payment.EventEvidenceConflict, Actor: "test",
			Review: &store.Review{Kind: store.ReviewConflict, Blocks: true, Reason: "success after all", Evidence: strings.Repeat("é", 900)},
		}
	}
	k2 := w.claimed(sameOrder(c)) // P35: the order's next payment is open
	require.NotNil(t, w.apply(idOf(c), conflict).Change)
	require.Nil(t, w.apply(idOf(c), conflict).Change, "more of the same adds nothing")
	after := w.status(idOf(c)).Payment
	require.Equal(t, 2, after.Version)
	after.Version, after.UpdatedAt = before.Version, before.UpdatedAt
	require.Equal(t, before, after)
	require.Equal(t, idOf(k2), w.holder("shop", c.OrderID))
	out, err := w.store.Apply(t.Context(), []store.Step{{Payment: idOf(k2), WithGround: true, Decide: func(store.Locked) *store.Change { return nil }}})
	require.NoError(t, err)
	require.Equal(t, idOf(c), *out[0].Before.Ground.OpenConflict, "its permits see the conflict")
	require.Equal(t, idOf(k2), *out[0].Before.Ground.Holder)
	w.consistent()
}

// TestG9_ImpossibleChange: what the table of states forbids is not stored, and
// does not stop the others of its group.
func TestG9_ImpossibleChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paid, open, unknown := w.paid(), w.claimed(command()), w.claimed(command())
	w.reach(idOf(unknown), payment.Unknown)
	out, err := w.store.Apply(t.Context(), []store.Step{
		{Payment: idOf(paid), Decide: always(finish(payment.Declined))},
		{Payment: idOf(open), Decide: always(finish(payment.Succeeded))},
		{Payment: idOf(unknown), Decide: always(store.Change{To: payment.Rejected, Event: payment.EventRejected})},
		{Payment: uuid.New(), Decide: always(finish(payment.Succeeded))},
	})
	require.NoError(t, err)
	require.Error(t, out[0].Err)
	require.Nil(t, out[0].Change)
	require.NoError(t, out[1].Err)
	require.Error(t, out[2].Err)
	require.False(t, out[3].Found)
	require.Equal(t, payment.Succeeded, w.status(idOf(paid)).Payment.State)
	require.Equal(t, payment.Succeeded, w.status(idOf(open)).Payment.State)
	require.Equal(t, payment.Unknown, w.status(idOf(unknown)).Payment.State)
	w.consistent()
}

// TestG9_RowsThatMoved: should a row not be as it was decided on, by whatever
// fault, its change is not committed, and the others are.
func TestG9_RowsThatMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stuck, fine := w.claimed(command()), w.claimed(command())
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	w.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON settleonce.payments FOR EACH ROW WHEN (old.id = '` + idOf(stuck).String() + `') EXECUTE FUNCTION refuse()`)
	out, err := w.store.Apply(t.Context(), []store.Step{
		{Payment: idOf(stuck), Decide: always(finish(payment.Succeeded))}, {Payment: idOf(fine), Decide: always(finish(payment.Succeeded))},
	})
	require.NoError(t, err)
	require.Error(t, out[0].Err)
	require.NoError(t, out[1].Err)
	require.Len(t, w.events(), 1)
	require.Equal(t, idOf(stuck), w.holder("shop", stuck.OrderID))
	w.consistent()
}

// TestApplyStepsOfOnePayment are applied one after the other, in their order.
func TestApplyStepsOfOnePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.claimed(command()), w.claimed(command())
	var seen []payment.State
	note := func(next func(store.Locked) *store.Change) func(store.Locked) *store.Change {
		return func(l store.Locked) *store.Change { seen = append(seen, l.Payment.State); return next(l) }
	}
	out, err := w.store.Apply(t.Context(), []store.Step{
		{Payment: idOf(a), Decide: note(waiting(payment.Unknown, payment.EventUnknown))},
		{Payment: idOf(a), Decide: note(waiting(payment.Review, payment.EventReviewRequired))},
		{Payment: idOf(b), Decide: always(finish(payment.Declined))},
		{Payment: idOf(a), Decide: note(always(finish(payment.Succeeded)))},
	})
	require.NoError(t, err)
	require.Equal(t, []payment.State{payment.Pending, payment.Unknown, payment.Review}, seen)
	require.Equal(t, []int{1, 2, 1, 3}, []int{out[0].After.Version, out[1].After.Version, out[2].After.Version, out[3].After.Version})
	w.consistent()
}

// TestB16_SweeperIsLate: it selected, the worker finished, it applies: nothing is
// updated, nothing published.
func TestB16_SweeperIsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	w.exec(`UPDATE settleonce.open_payments SET lease_until = now(), next_check_at = now()`)
	picked, err := w.store.PickDue(t.Context(), 77, time.Minute, 0, 10)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{idOf(c)}, picked)
	w.apply(idOf(c), always(finish(payment.Succeeded)))
	messages := len(w.outbox())
	out := w.apply(idOf(c), func(l store.Locked) *store.Change {
		if l.Open == nil || l.Open.Lease != 77 {
			return nil
		}
		return waiting(payment.Unknown, payment.EventUnknown)(l)
	})
	require.Nil(t, out.Change)
	require.Len(t, w.outbox(), messages)
	require.Equal(t, payment.Succeeded, w.status(idOf(c)).Payment.State)
	w.consistent()
}

// TestP26b_FinalizerHeldBeforeCommit: the real finalizer, stopped between its
// writes and its COMMIT, with a claim for its order waiting.
func TestP26b_FinalizerHeldBeforeCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, dsn := newProxy(t, w.dsn)
	finalizer, _ := w.open(dsn)
	k1 := command()
	k2 := w.claimed(sameOrder(k1))
	held, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	p.nextDo(func() fate { close(held); <-goOn; return goesOn })
	var all sync.WaitGroup
	all.Go(func() {
		_, err := finalizer.Apply(t.Context(), []store.Step{{Payment: idOf(k2), Decide: always(finish(payment.Succeeded))}})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	w.eventually("its writes are done", `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
		AND wait_event = 'ClientRead' AND state = 'active' AND query LIKE 'INSERT INTO settleonce.outbox%')`)
	var out []store.Outcome
	a := w.arrive(k1)
	all.Go(func() {
		var err error
		if out, err = w.store.Claim(t.Context(), batch(a)); err != nil {
			t.Error(err)
		}
	})
	w.eventually("the claim waits", `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	release()
	all.Wait()
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID"}, verdicts(out))
	w.consistent()
}

// TestApplyFromManyWorkers: overlapping groups in any order, with claims of the
// same keys in between. No deadlock, no version lost or twice.
func TestApplyFromManyWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	commands := make([]payment.Command, 40)
	for i := range commands {
		commands[i] = w.claimed(command())
	}
	flip := func(l store.Locked) *store.Change {
		if l.Payment.Version >= 12 {
			return nil
		}
		return &store.Change{Event: payment.EventEvidenceConflict, Open: l.Open, Actor: "test"}
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 20 {
				steps := make([]store.Step, 25)
				for i := range steps {
					steps[i] = store.Step{Payment: idOf(commands[rand.IntN(len(commands))]), Decide: flip, WithGround: rand.IntN(2) == 0}
				}
				out, err := w.store.Apply(t.Context(), steps)
				if err != nil {
					t.Error(err)
				}
				for i := range out {
					if out[i].Err != nil {
						t.Error(out[i].Err)
					}
				}
			}
		})
		all.Go(func() {
			for range 20 {
				if _, err := w.store.Claim(t.Context(), batch(w.arriveAll(sample(commands, 20)...)...)); err != nil {
					t.Error(err)
				}
				if _, err := w.store.PickDue(t.Context(), rand.Int64(), time.Minute, 0, 10); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 12*len(commands), w.count(`SELECT sum(version) FROM settleonce.payments`))
	w.consistent()
	require.Zero(t, w.deadlocks())
}
