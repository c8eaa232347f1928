package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/payment"
)

// CallbackResult is what a callback came to.
type CallbackResult string

// The results of callbacks.
const (
	// CallbackRecorded: a refund, a dispute or something else without an outcome.
	CallbackRecorded CallbackResult = "recorded"
	// CallbackAgreed: it says what the outcome says.
	CallbackAgreed CallbackResult = "agreed"
	// CallbackAsked: its payment is open, and the provider is asked now.
	CallbackAsked CallbackResult = "asked"
	// CallbackWaits: somebody is acting on its payment; it is looked at again.
	CallbackWaits CallbackResult = "waits"
	// CallbackEvidence: it was evidence by itself, on a channel without a query.
	CallbackEvidence CallbackResult = "evidence"
	// CallbackNoEvidence: it says too little to be evidence, and there is no query.
	CallbackNoEvidence CallbackResult = "no_evidence"
	// CallbackDisagrees: it contradicts an outcome, and the provider is asked.
	CallbackDisagrees CallbackResult = "disagrees"
	// CallbackConflict: it, or the query after it, contradicts the outcome.
	CallbackConflict CallbackResult = "conflict"
	// CallbackEarlier: it reports success of another attempt than the current one,
	// and the provider could not be asked; a person was told.
	CallbackEarlier CallbackResult = "earlier_attempt"
	// CallbackUnmatched: its payment is not there (yet).
	CallbackUnmatched CallbackResult = "unmatched"
	// CallbackReported: unmatched for so long that a person was told.
	CallbackReported CallbackResult = "reported"
	// CallbackFailed: what it came to could not be stored.
	CallbackFailed CallbackResult = "failed"
)

// CallbackStep is one picked callback and the payment it may be about.
type CallbackStep struct {
	Callback Callback
	// Payment is uuid.Nil where none was found.
	Payment uuid.UUID
	// Decide sees the payment under its lock, nil where there is none. It may run
	// more than once and has no effects.
	Decide func(*Locked) CallbackVerdict
}

// CallbackVerdict is what becomes of a callback.
type CallbackVerdict struct {
	Result CallbackResult
	// Matched says that the payment is the callback's.
	Matched bool
	// Again is when to look at it again; 0: it is done with, now and for ever.
	Again time.Duration
	// Change is its effect on the payment; nil for none.
	Change *Change
	// Report tells a person that it matches nothing.
	Report string
}

// CallbackApplied is what a step came to.
type CallbackApplied struct {
	// Settled is false when the callback was done with before: nothing was decided.
	Settled bool
	Verdict CallbackVerdict
	Applied Applied
}

// sameAgain is when a callback is looked at again whose payment another callback
// of the same group has just changed.
const sameAgain = 100 * time.Millisecond

// ApplyCallbacks decides about the callbacks under the locks of their payments,
// and stores marker, effect and messages in one transaction (G7). A callback
// that was done with in the meantime decides nothing. One that cannot be stored
// whatever is tried does not stop the others: its result is CallbackFailed.
func (s *Store) ApplyCallbacks(ctx context.Context, steps []CallbackStep) ([]CallbackApplied, error) {
	out := make([]CallbackApplied, len(steps))
	order := make([]int, len(steps))
	for i := range order {
		order[i] = i
	}
	if err := s.callbacksOrBisect(ctx, steps, order, out); err != nil {
		return nil, fmt.Errorf("apply %d callbacks: %w", len(steps), err)
	}
	return out, nil
}

func (s *Store) callbacksOrBisect(ctx context.Context, steps []CallbackStep, round []int, out []CallbackApplied) error {
	if len(round) == 0 {
		return nil
	}
	err := retry(ctx, func() error { return s.callbackRound(ctx, steps, round, out) })
	switch {
	case err == nil || !(badData(err) || errors.Is(err, errImpossible)):
		return err
	case len(round) == 1:
		i := round[0]
		failed := steps[i]
		failed.Decide = func(*Locked) CallbackVerdict { return CallbackVerdict{Result: CallbackFailed} }
		if err := s.callbackRound(ctx, []CallbackStep{failed}, []int{0}, out[i:i+1]); err != nil {
			return err
		}
		out[i].Applied.Err = err
		return nil
	}
	half := len(round) / 2
	if err := s.callbacksOrBisect(ctx, steps, round[:half], out); err != nil {
		return err
	}
	return s.callbacksOrBisect(ctx, steps, round[half:], out)
}

// The order of locks is that of every change: payments, then what hangs on them,
// then the callbacks.
const (
	lockOpen      = `SELECT payment FROM settleonce.open_payments WHERE payment = ANY ($1::uuid[]) ORDER BY payment FOR UPDATE`
	lockCallbacks = `
SELECT c.channel, c.callback_id FROM unnest($1::text[], $2::text[]) AS u(channel, id)
CROSS JOIN LATERAL (SELECT channel, callback_id FROM settleonce.callbacks
    WHERE channel = u.channel AND callback_id = u.id AND processed_at IS NULL FOR UPDATE) AS c`
)

// callbackRound is one transaction.
func (s *Store) callbackRound(ctx context.Context, steps []CallbackStep, round []int, out []CallbackApplied) error {
	round = slices.Clone(round)
	slices.SortFunc(round, func(a, b int) int { return steps[a].compare(&steps[b]) })
	var w callbackWrites
	var open map[name]bool
	var locked map[uuid.UUID]Locked
	err := s.inTx(ctx, func(b *pgx.Batch) {
		open, locked = make(map[name]bool, len(round)), make(map[uuid.UUID]Locked, len(round))
		queueCallbackLocks(b, steps, round, open, locked)
	}, func(b *pgx.Batch) error {
		w = callbackWrites{changes: changes{topics: s.topics, named: s.named}, changed: map[uuid.UUID]bool{}}
		for _, i := range round {
			out[i] = CallbackApplied{}
			if !open[steps[i].name()] {
				continue
			}
			applied, err := w.decide(&steps[i], locked)
			if err != nil {
				return err
			}
			out[i] = applied
		}
		w.queueAll(b)
		return nil
	})
	if err != nil {
		return err
	}
	if len(w.messages) > 0 {
		s.wake()
	}
	for _, i := range round {
		s.logChanges([]Step{{}}, []int{0}, []Applied{out[i].Applied})
	}
	return nil
}

func (c *CallbackStep) name() name { return name{c.Callback.Channel, c.Callback.Said.ID} }

func (c *CallbackStep) compare(other *CallbackStep) int {
	if by := slices.Compare(c.Payment[:], other.Payment[:]); by != 0 {
		return by
	}
	a, b := c.name(), other.name()
	return slices.Compare([]string{a.channel, a.text}, []string{b.channel, b.text})
}

func queueCallbackLocks(b *pgx.Batch, steps []CallbackStep, round []int, open map[name]bool, locked map[uuid.UUID]Locked) {
	var ids []pgtype.UUID
	channels, names := make([]string, len(round)), make([]string, len(round))
	for j, i := range round {
		channels[j], names[j] = steps[i].Callback.Channel, steps[i].Callback.Said.ID
		if steps[i].Payment != uuid.Nil {
			ids = append(ids, pgUUID(steps[i].Payment))
		}
	}
	ids = slices.CompactFunc(ids, func(a, b pgtype.UUID) bool { return a.Bytes == b.Bytes }) // they are sorted
	b.Queue(lockPayments, ids)
	b.Queue(lockOpen, ids)
	b.Queue(lockCallbacks, channels, names).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			var n name
			err := rows.Scan(&n.channel, &n.text)
			open[n] = true
			return err
		})
	})
	b.Queue(readLocked, ids).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			l, err := scanLocked(rows)
			if err == nil {
				locked[l.Payment.ID] = l
			}
			return err
		})
	})
}

// callbackWrites collects what a round writes.
type callbackWrites struct {
	changes

	changed map[uuid.UUID]bool
	marks   []callbackMark
}

type callbackMark struct {
	callback *Callback
	payment  uuid.UUID
	verdict  CallbackVerdict
}

func (w *callbackWrites) decide(step *CallbackStep, locked map[uuid.UUID]Locked) (CallbackApplied, error) {
	var before *Locked
	applied := CallbackApplied{Settled: true}
	if l, found := locked[step.Payment]; found {
		before = &l
		applied.Applied = Applied{Found: true, Before: l, After: l.Payment}
	}
	verdict := step.Decide(before)
	if verdict.Change != nil && w.changed[step.Payment] {
		// A second change of the same payment decides on what the first one wrote.
		verdict = CallbackVerdict{Result: CallbackWaits, Matched: verdict.Matched, Again: sameAgain}
	}
	if verdict.Change != nil && before != nil {
		after, err := w.add(*before, *verdict.Change, "")
		if err != nil {
			return applied, err
		}
		w.changed[step.Payment] = true
		applied.Applied.Change, applied.Applied.After = verdict.Change, after
	}
	w.marks = append(w.marks, callbackMark{&step.Callback, step.Payment, verdict})
	applied.Verdict = verdict
	return applied, nil
}

const markCallbacks = `
UPDATE settleonce.callbacks c SET result = u.result, matched = u.matched,
    payment = CASE WHEN u.matched THEN u.payment ELSE c.payment END,
    next_check_at = clock_timestamp() + u.again, processed_at = CASE WHEN u.again IS NULL THEN clock_timestamp() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::uuid[], $6::interval[])
    AS u(channel, id, result, matched, payment, again)
WHERE c.channel = ANY (ARRAY[u.channel]) AND c.callback_id = ANY (ARRAY[u.id])`

func (w *callbackWrites) queueAll(b *pgx.Batch) {
	n := len(w.marks)
	if n == 0 {
		return
	}
	w.queue(b)
	channels, ids, results := make([]string, n), make([]string, n), make([]string, n)
	matched, payments, again := make([]bool, n), make([]pgtype.UUID, n), make([]pgtype.Interval, n)
	for i := range w.marks {
		m := &w.marks[i]
		channels[i], ids[i], results[i] = m.callback.Channel, m.callback.Said.ID, string(m.verdict.Result)
		matched[i], payments[i] = m.verdict.Matched, orNull(m.payment)
		again[i] = pgtype.Interval{Microseconds: m.verdict.Again.Microseconds(), Valid: m.verdict.Again > 0}
	}
	b.Queue(markCallbacks, channels, ids, results, matched, payments, again)
	for i := range w.marks {
		w.marks[i].queueReview(b)
	}
}

// queueReview tells a person about a callback that matches nothing, and takes
// that back when it does.
func (m *callbackMark) queueReview(b *pgx.Batch) {
	id := pgUUID(payment.CallbackID(m.callback.Channel, m.callback.Said.ID))
	switch {
	case m.verdict.Report != "":
		said := &m.callback.Said
		evidence, err := json.Marshal(map[string]any{
			"channel": m.callback.Channel, "callbackId": said.ID, "kind": said.Kind, "providerKey": said.ProviderKey,
			"providerReference": said.Reference, "amount": said.Amount, "currency": said.Currency, "receivedAt": m.callback.ReceivedAt,
		})
		if err != nil {
			evidence = nil // plain values always encode
		}
		b.Queue(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason, evidence)
			SELECT $1, 'callback', '', '', 0, false, $2, $3
			WHERE NOT EXISTS (SELECT FROM settleonce.review_items WHERE payment = $1 AND kind = 'callback' AND closed_at IS NULL)`,
			id, clean(m.verdict.Report), evidence)
	case m.callback.Reported && m.verdict.Matched:
		b.Queue(`UPDATE settleonce.review_items SET closed_at = clock_timestamp(), resolution = 'its payment is here now', actor = 'reconciler'
			WHERE payment = $1 AND kind = 'callback' AND closed_at IS NULL`, id)
	}
}
