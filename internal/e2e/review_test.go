package e2e_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/settle"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

var orderedByAda = settle.Order{Actor: "ada", Reason: "INC-42", Evidence: "not in their books"}

// operators is a desk of their own, with the channel as the roles have it.
func (s *stack) operators() *settle.Desk {
	return &settle.Desk{Store: s.check, Settler: s.settler(), Budget: s.set.budget.WithDefaults()}
}

// sentOnce is a channel that is not sent to twice, and whose sends live for a while.
func sentOnce(longest time.Duration) option {
	return behave(func(b *sim.Behaviour) { b.IdempotentSubmit, b.PinsFailures, b.LongestExecution = false, false, longest })
}

// unwatched lets nobody but operators look at payments in review.
func unwatched(r *settle.Rules) { r.WatchEvery, r.WatchAtMost = time.Hour, time.Hour }

// waiting counts the open review items.
func (s *stack) waiting() int {
	return s.count("SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL")
}

// item is the only open review item of a command.
func (s *stack) item(c payment.Command) store.ReviewItem {
	s.t.Helper()
	items, err := s.check.ReviewItems(s.ctx, store.ReviewFilter{Payment: c.Identity().PaymentID()})
	require.NoError(s.t, err)
	var open []store.ReviewItem
	for _, i := range items {
		if i.ClosedAt == nil {
			open = append(open, i)
		}
	}
	require.Len(s.t, open, 1)
	return open[0]
}

// An unknown payment goes to review, where nobody looks for an hour; an operator has it
// asked about now, and the answer settles it.
func TestReview_RequerySettles(t *testing.T) {
	t.Parallel()
	s := start(t, ruled(unwatched))
	c := command(fault("lost_answer"))
	require.NoError(t, s.sim.AddRule(sim.Rule{Faults: "query_error", Match: sim.Match{Order: c.OrderID}, Times: 3}))
	s.send(c)
	s.waitState(c, payment.Review)
	require.Equal(t, store.ReviewUnresolved, s.item(c).Kind)
	id := c.Identity().PaymentID()
	_, err := s.operators().Requery(s.ctx, id, orderedByAda)
	require.NoError(t, err)
	s.waitState(c, payment.Succeeded)
	require.Len(t, s.front.queries(c), 4)
	require.Zero(t, s.waiting(), "the item closed by itself")
	_, err = s.operators().Requery(s.ctx, id, orderedByAda)
	require.ErrorContains(t, err, "ended succeeded")
	require.Equal(t, 1, s.count("SELECT count(*) FROM settleonce.audit WHERE action = 'requery'"), "a refusal leaves nothing")
	s.once(c)
}

// lying is a provider whose lookup does not know what it has executed, until it is told to.
func lying(truth *atomic.Bool) option {
	return handled(&hands{query: func(context.Context, channel.Lookup) (payment.Answer, bool) {
		return payment.Answer{Class: payment.ClassNotFound}, !truth.Load()
	}})
}

// G9, G15: closing is refused while a send may live, with the time; later it is done,
// on the provider's word. When the provider turns out to have been wrong, the outcome
// stays, and the conflict holds the order until a person has settled it.
func TestReview_ResolvedThenContradicted(t *testing.T) {
	t.Parallel()
	var truth atomic.Bool
	s := start(t, sentOnce(8*time.Second), ruled(unwatched), lying(&truth))
	d, desk := s.takeCallbacks(false), s.operators()
	c := command(fault("lost_answer,callback_missing"))
	s.send(c)
	s.waitState(c, payment.Unknown)
	id := c.Identity().PaymentID()
	var refused *settle.RefusalError
	_, err := desk.Resolve(s.ctx, id, orderedByAda)
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "may still be executed")
	require.True(t, refused.Possible.After(time.Now()), refused.Possible)
	require.Zero(t, s.count("SELECT count(*) FROM settleonce.audit"))

	require.Eventually(t, func() bool {
		_, err = desk.Resolve(s.ctx, id, orderedByAda)
		return err == nil || !errors.As(err, &refused)
	}, waitFor, 250*time.Millisecond)
	require.NoError(t, err)
	require.False(t, time.Now().Before(refused.Possible), "no sooner than it said")
	s.waitState(c, payment.Declined)
	require.Equal(t, payment.Declined, s.waitReply(c.IdempotencyKey, payment.ReplyOutcome).Outcome.State)
	require.Zero(t, s.waiting())

	truth.Store(true)
	d.tell(news(c))
	require.Eventually(t, func() bool { return s.conflicts(c) == 1 }, waitFor, tick, "no conflict item")
	require.Equal(t, payment.Declined, s.state(c))
	second := command(orderOf(c))
	s.send(second)
	blocked := s.waitReply(second.IdempotencyKey, payment.ReplyRejected)
	require.Equal(t, payment.CodePriorAttemptUnresolved, blocked.Code)
	require.Equal(t, id, *blocked.BlockedBy)
	require.NoError(t, s.check.SettleItem(s.ctx, s.item(c).ID, store.Settlement{Operator: ada, Evidence: "re_5501"}))
	third := command(orderOf(c))
	s.send(third)
	s.waitState(third, payment.Succeeded)
	require.Equal(t, payment.Declined, s.state(c))
	s.once(third)
}

// G3, G15: a payment that was brought in without an outcome, and that nobody can be asked
// about, is closed on the provider's written statement, by two persons; until then it
// blocks its order.
func TestReview_ImportedByStatement(t *testing.T) {
	t.Parallel()
	s := start(t, sentOnce(2*time.Second), ruled(unwatched))
	declined, executed := command(), command()
	s.imported(store.Imported{Command: declined, State: payment.Review}, store.Imported{Command: executed, State: payment.Review})
	require.Equal(t, store.ReviewImported, s.item(declined).Kind)
	blocked := command(orderOf(declined))
	s.send(blocked)
	require.Equal(t, payment.CodePriorAttemptUnresolved, s.waitReply(blocked.IdempotencyKey, payment.ReplyRejected).Code)

	desk, id := s.operators(), declined.Identity().PaymentID()
	_, err := desk.Resolve(s.ctx, id, orderedByAda)
	require.ErrorContains(t, err, "statement")
	_, err = desk.Requery(s.ctx, id, orderedByAda)
	require.ErrorContains(t, err, "another account")
	letter := orderedByAda
	letter.Statement = "letter of 30 November"
	_, err = desk.Attest(s.ctx, id, letter)
	require.ErrorContains(t, err, "--second-actor")
	letter.Second = "bob"
	require.Eventually(t, func() bool {
		_, err = desk.Attest(s.ctx, id, letter)
		var refused *settle.RefusalError
		return !errors.As(err, &refused)
	}, waitFor, 250*time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, payment.Declined, s.state(declined))
	require.Equal(t, []payment.State{payment.Declined}, s.waitEvents(declined, 1))
	again := command(orderOf(declined))
	s.send(again)
	s.waitState(again, payment.Succeeded)

	_, err = desk.Confirm(s.ctx, executed.Identity().PaymentID(), letter, settle.Success{Reference: "ch_old"})
	require.NoError(t, err)
	st := s.waitState(executed, payment.Succeeded)
	require.Equal(t, "ch_old", st.Payment.ProviderReference)
	require.Zero(t, s.waiting())
}

// A second attempt has a provider key of its own, is sent by the roles, and takes the
// money once; nobody opens two.
func TestReview_AttemptChargesOnce(t *testing.T) {
	t.Parallel()
	s := start(t, sentOnce(3*time.Second), ruled(unwatched))
	c := command()
	require.NoError(t, s.sim.AddRule(sim.Rule{Faults: "error_before", Match: sim.Match{Order: c.OrderID}, Times: 1}))
	s.send(c)
	s.waitState(c, payment.Review)
	id := c.Identity().PaymentID()
	results := make(chan error, 4)
	for range cap(results) {
		desk := s.operators()
		go func() {
			_, err := desk.OpenAttempt(s.ctx, id, orderedByAda)
			results <- err
		}()
	}
	opened := 0
	for range cap(results) {
		if err := <-results; err == nil {
			opened++
		} else {
			var refused *settle.RefusalError
			require.ErrorAs(t, err, &refused)
		}
	}
	require.Equal(t, 1, opened)
	st := s.waitState(c, payment.Succeeded)
	require.Equal(t, 2, st.Payment.Attempt)
	ledger := s.ledger()
	require.Zero(t, ledger[c.Identity().ProviderKey(1)].Settled)
	require.Equal(t, 1, ledger[c.Identity().ProviderKey(2)].Settled)
	require.Equal(t, 1, ledger[c.Identity().ProviderKey(2)].Requests)
	require.Equal(t, 2, s.providerKeys(c.OrderID))
	require.Zero(t, s.waiting())
	past, err := s.check.PastAttempts(s.ctx, id)
	require.NoError(t, err)
	require.Len(t, past, 1)
	require.Equal(t, "ada", past[0].Actor)
	s.watch.until(t, func() bool { return s.lastEvent(c) == payment.Succeeded }, "outcome of %s", c.IdempotencyKey)
	events := s.events(c)
	require.Equal(t, 2, events[len(events)-1].Attempt)
}

// old is a payment whose first send took the money, and is still held by its worker
// when an operator opens a second attempt, since the provider's lookup denied the first.
type old struct {
	s     *stack
	c     payment.Command
	first *heldSubmit
	// second holds the second attempt's send, which answers with what the test wants.
	second *heldSubmit
	// lookup is what the provider says of the first attempt from then on.
	lookup atomic.Pointer[payment.Answer]
}

func openSecond(t *testing.T, answer payment.Answer, reconcilers bool, more ...option) *old {
	t.Helper()
	o := &old{c: command()}
	o.first = holdSubmit(o.c.OrderID, payment.Answer{Class: payment.ClassSucceeded})
	o.second = holdSubmit(o.c.OrderID, answer)
	keys := [...]uuid.UUID{o.c.Identity().ProviderKey(1), o.c.Identity().ProviderKey(2)}
	h := &hands{
		submit: func(ctx context.Context, r channel.Request) (payment.Answer, bool) {
			switch r.ProviderKey {
			case keys[0]:
				return o.first.take(ctx, r)
			case keys[1]:
				return o.second.take(ctx, r)
			default:
				return payment.Answer{}, false
			}
		},
		query: func(_ context.Context, l channel.Lookup) (payment.Answer, bool) {
			switch l.ProviderKey {
			case keys[0]:
				if later := o.lookup.Load(); later != nil {
					return *later, true
				}
				return payment.Answer{Class: payment.ClassNotFound}, true
			case keys[1]:
				return payment.Answer{Class: payment.ClassUnknown, Cause: "unavailable"}, true
			default:
				return payment.Answer{}, false
			}
		},
	}
	o.s = start(t, append(more, sentOnce(2*time.Second), brisk(21*time.Second), ruled(unwatched), handled(h))...)
	o.first.forward = func(ctx context.Context, r channel.Request) payment.Answer { return o.s.direct(ctx, r) }
	o.s.send(o.c)
	await(t, o.first.stopped, "never sent")
	o.s.waitState(o.c, payment.Review)
	if !reconcilers {
		o.s.reconcilers[0].stop()
	}
	opened, err := o.s.operators().OpenAttempt(o.s.ctx, o.c.Identity().PaymentID(), orderedByAda)
	require.NoError(t, err)
	require.Equal(t, 2, opened.Attempt)
	return o
}

// P33: success of the first attempt before the second was sent: it is the end, and the
// second is never sent.
func TestP33_SuccessBeforeTheSecondAttemptIsSent(t *testing.T) {
	t.Parallel()
	o := openSecond(t, payment.Answer{}, false)
	close(o.second.goOn)
	close(o.first.goOn)
	st := o.s.waitState(o.c, payment.Succeeded)
	require.Equal(t, 1, st.Payment.Attempt)
	o.s.startReconciler().owns()
	other := command()
	o.s.send(other)
	o.s.waitState(other, payment.Succeeded)
	require.False(t, o.second.taken.Load(), "the second attempt was sent")
	require.Zero(t, o.s.waiting())
	o.s.once(o.c)
}

// G11: a callback reports success of the first attempt before the second was sent, and the provider cannot be
// asked about it for a while. The callback decides nothing, but the second is not sent before the provider answers.
func TestG11_SecondAttemptWaitsForWhatACallbackSays(t *testing.T) {
	t.Parallel()
	o := openSecond(t, payment.Answer{Class: payment.ClassUnknown}, false)
	defer close(o.second.goOn)
	defer close(o.first.goOn)
	o.lookup.Store(&payment.Answer{Class: payment.ClassUnknown, Cause: "unavailable"})
	o.s.lookAgain(o.c, time.Hour)
	n := news(o.c)
	o.s.takeCallbacks(false).tell(n)
	o.s.startReconciler().owns()
	o.s.waitResult(n, store.CallbackDisagrees)
	require.Equal(t, 1, o.s.count(`SELECT count(*) FROM settleonce.open_payments WHERE next_check_at < clock_timestamp() + interval '30 minutes'`),
		"the callback did not move the time of the send")
	require.Eventually(t, func() bool {
		return o.s.count("SELECT count(*) FROM settleonce.callbacks WHERE tries > 3") == 1
	}, waitFor, tick, "the provider was not asked again")
	require.False(t, o.second.taken.Load(), "the second attempt was sent")
	o.lookup.Store(&payment.Answer{Class: payment.ClassSucceeded, Reference: n.Charge.ID})
	st := o.s.waitState(o.c, payment.Succeeded)
	require.Equal(t, 1, st.Payment.Attempt)
	require.False(t, o.second.taken.Load(), "the second attempt was sent")
}

// G11: the same, and the provider cannot be asked for so long that a person must know. The second is not sent then
// either: what to believe is that person's to say.
func TestG11_SecondAttemptIsNotSentAgainstACallback(t *testing.T) {
	t.Parallel()
	o := openSecond(t, payment.Answer{Class: payment.ClassUnknown}, false, func(set *settings) { set.unmatched = 1500 * time.Millisecond })
	defer close(o.second.goOn)
	defer close(o.first.goOn)
	o.lookup.Store(&payment.Answer{Class: payment.ClassUnknown, Cause: "unavailable"})
	o.s.lookAgain(o.c, time.Hour)
	n := news(o.c)
	o.s.takeCallbacks(false).tell(n)
	o.s.startReconciler().owns()
	o.s.waitResult(n, store.CallbackEarlier)
	o.s.lookAgain(o.c, 0)
	require.Eventually(t, func() bool {
		return o.second.taken.Load() ||
			o.s.count(`SELECT count(*) FROM settleonce.open_payments WHERE next_check_at > clock_timestamp() + interval '30 minutes'`) == 1
	}, waitFor, tick, "nobody looked again")
	require.False(t, o.second.taken.Load(), "the second attempt was sent")
	require.Equal(t, 1, o.s.conflicts(o.c))
	id := o.c.Identity().PaymentID()
	_, err := o.s.operators().Resolve(o.s.ctx, id, orderedByAda)
	require.ErrorContains(t, err, "open conflict item")
	byBoth := orderedByAda
	byBoth.Second, byBoth.Statement = "bob", "letter 7"
	stored, err := o.s.operators().Confirm(o.s.ctx, id, byBoth, settle.Success{Attempt: 1, Reference: n.Charge.ID})
	require.NoError(t, err)
	require.Equal(t, payment.Succeeded, stored.State)
	require.Equal(t, 1, stored.Attempt)
}

// P33: success of the first attempt while the second is on its way: the payment ends
// succeeded when that is resolved, never declined; two successes are a conflict.
func TestP33_SuccessWhileTheSecondAttemptIsOnItsWay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer    payment.Answer
		attempt   int
		conflicts int
	}{
		"declined":  {payment.Answer{Class: payment.ClassDeclined, Cause: "card_declined"}, 1, 0},
		"succeeded": {payment.Answer{Class: payment.ClassSucceeded, Reference: "ch_second"}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openSecond(t, test.answer, true)
			await(t, o.second.stopped, "the second attempt was not sent")
			close(o.first.goOn)
			require.Eventually(t, func() bool {
				st := o.s.status(o.c)
				return st.Open != nil && st.Open.PaidAttempt == 1 && st.Open.NoMoreSends
			}, waitFor, tick, "the first attempt's success is not on record")
			require.Equal(t, payment.Review, o.s.state(o.c))
			_, err := o.s.operators().Resolve(o.s.ctx, o.c.Identity().PaymentID(), orderedByAda)
			require.ErrorContains(t, err, "attempt 1 succeeded")
			close(o.second.goOn)
			st := o.s.waitState(o.c, payment.Succeeded)
			require.Equal(t, test.attempt, st.Payment.Attempt)
			require.Equal(t, test.conflicts, o.s.conflicts(o.c))
			require.NotContains(t, o.s.eventStates(o.c), payment.Declined)
			o.s.once(o.c)
		})
	}
}
