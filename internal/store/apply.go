package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// Step is one payment to look at under its lock. Decide sees it as it is now and
// says what becomes of it; nil leaves it alone. Decide may run more than once
// and must not have effects: the last run counts.
type Step struct {
	Payment uuid.UUID
	// WithGround reads what stands on the obligation too, for permits (G15).
	WithGround bool
	Decide     func(Locked) *Change
	// Trace is the traceparent that goes on with what is published of it; it must be
	// valid, or empty for none. It is not stored.
	Trace string
}

// Applied is what a step came to.
type Applied struct {
	// Found is false when there is no such payment.
	Found bool
	// Before is the payment as Decide saw it; After as it was stored.
	Before Locked
	After  Payment
	// Change is nil when nothing was changed.
	Change *Change
	// Err is why this step alone could not be stored; the others were.
	Err error
}

// errImpossible marks a decision that the table of states forbids.
var errImpossible = errors.New("no such transition")

// Apply locks the payments of the steps, lets each decide, and stores all
// changes, their history and their messages in one transaction (G7). This is the
// one way in which a payment moves after its claim; every path to an outcome is
// a Decide. Steps of the same payment are applied one after the other. A step
// that cannot be stored whatever is tried does not stop the others: its Err says
// why.
func (s *Store) Apply(ctx context.Context, steps []Step) ([]Applied, error) {
	out := make([]Applied, len(steps))
	for _, round := range rounds(steps) {
		if err := s.applyOrBisect(ctx, steps, round, out); err != nil {
			return nil, fmt.Errorf("apply %d changes: %w", len(round), err)
		}
	}
	return out, nil
}

// applyOrBisect keeps one impossible change from holding up its group.
func (s *Store) applyOrBisect(ctx context.Context, steps []Step, round []int, out []Applied) error {
	err := retry(ctx, func() error { return s.applyRound(ctx, steps, round, out) })
	switch {
	case err == nil || !(badData(err) || errors.Is(err, errImpossible)):
		return err
	case len(round) == 1:
		out[round[0]].Change, out[round[0]].Err = nil, err
		return nil
	}
	half := len(round) / 2
	if err := s.applyOrBisect(ctx, steps, round[:half], out); err != nil {
		return err
	}
	return s.applyOrBisect(ctx, steps, round[half:], out)
}

// rounds splits the steps so that no payment appears twice in a round, in order.
func rounds(steps []Step) [][]int {
	var out [][]int
	seen := make(map[uuid.UUID]int, len(steps))
	for i := range steps {
		n := seen[steps[i].Payment]
		seen[steps[i].Payment]++
		if n == len(out) {
			out = append(out, make([]int, 0, len(steps)-i))
		}
		out[n] = append(out[n], i)
	}
	for _, round := range out {
		// One order for all, as in a claim: wait for each other, do not deadlock.
		slices.SortFunc(round, func(a, b int) int { return slices.Compare(steps[a].Payment[:], steps[b].Payment[:]) })
	}
	return out
}

// applyRound is one transaction.
func (s *Store) applyRound(ctx context.Context, steps []Step, round []int, out []Applied) error {
	var locked map[uuid.UUID]Locked
	var w changes
	err := s.inTx(ctx, func(b *pgx.Batch) {
		locked = make(map[uuid.UUID]Locked, len(round))
		queueLock(b, steps, round, locked)
	}, func(b *pgx.Batch) error {
		w = changes{topics: s.topics, named: s.named}
		for _, i := range round {
			before, found := locked[steps[i].Payment]
			out[i] = Applied{Found: found, Before: before, After: before.Payment}
			if !found {
				continue
			}
			if change := steps[i].Decide(before); change != nil {
				after, err := w.add(before, *change, steps[i].Trace)
				if err != nil {
					return err
				}
				out[i].Change, out[i].After = change, after
			}
		}
		w.queue(b)
		return nil
	})
	if err != nil {
		return err
	}
	if len(w.messages) > 0 {
		s.wake()
	}
	s.logChanges(steps, round, out)
	return nil
}

const paymentColumns = `p.id, p.caller, p.operation, p.idempotency_key, p.fingerprint, p.fingerprint_version, p.namespace,
    p.obligation, p.order_id, p.follows, p.amount, p.currency, p.customer_id, p.payment_method, p.channel, p.channel_identity,
    p.metadata, p.provider_key, p.state, p.version, p.attempt, p.sends, coalesce(p.provider_reference, ''),
    coalesce(p.cause, ''), coalesce(p.detail, ''), p.blocked_by, p.origin_topic, p.origin_partition, p.origin_offset,
    p.origin_time, p.issued_at, p.latest_issued_at, p.created_at, p.updated_at, p.ended_at`

const openColumns = `o.payment IS NOT NULL, coalesce(o.lease, 0), o.lease_until, o.next_check_at, coalesce(o.queries, 0),
    coalesce(o.watches, 0), coalesce(o.sends, 0), o.first_send_at, o.last_deadline, coalesce(o.no_more_sends, false),
    coalesce(o.query_first, false), coalesce(o.decline_cause, ''), coalesce(o.decline_reference, ''),
    coalesce(o.paid_attempt, 0), coalesce(o.paid_reference, ''), o.opened_at`

// conflicts has a null for each open conflict item, and of each that a person settled the
// success that it was about.
const conflicts = `ARRAY(SELECT CASE WHEN c.closed_at IS NOT NULL THEN coalesce(c.evidence->>'success', '') END
    FROM settleonce.review_items c WHERE c.payment = i.id AND c.kind = 'conflict')`

// lockPayments takes the payment rows first, in one order; open row, hold and
// outbox follow under that lock.
const lockPayments = `SELECT id FROM settleonce.payments WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE`

// readLocked is a later statement: under the lock, it sees what is committed
// now, the ground of G15 included.
const (
	readLocked = `
SELECT ` + paymentColumns + `, ` + openColumns + `, ` + conflicts + `, ` + mayHaveLostCommits + `, clock_timestamp(), null::uuid, null::uuid, null::timestamptz, null::uuid
FROM unnest($1::uuid[]) AS i(id)
JOIN settleonce.payments p ON p.id = ANY (ARRAY[i.id])
LEFT JOIN settleonce.open_payments o ON o.payment = ANY (ARRAY[i.id])`

	readLockedWithGround = `
SELECT ` + paymentColumns + `, ` + openColumns + `, ` + conflicts + `, ` + mayHaveLostCommits + `, clock_timestamp(), h.payment, s.id, s.ended_at, r.payment
FROM unnest($1::uuid[]) AS i(id)
JOIN settleonce.payments p ON p.id = ANY (ARRAY[i.id])
CROSS JOIN LATERAL (SELECT p.namespace AS ns, p.obligation AS ob, p.obligation_hash AS oh) u
LEFT JOIN settleonce.open_payments o ON o.payment = ANY (ARRAY[i.id])
LEFT JOIN settleonce.obligation_holds h ON h.namespace = ANY (ARRAY[u.ns]) AND h.obligation = ANY (ARRAY[u.ob])
LEFT JOIN LATERAL (` + latestSuccess + `) s ON true
LEFT JOIN LATERAL (` + blockingReview + `) r ON true`
)

func queueLock(b *pgx.Batch, steps []Step, round []int, locked map[uuid.UUID]Locked) {
	ids, read := make([]pgtype.UUID, len(round)), readLocked
	for j, i := range round {
		ids[j] = pgUUID(steps[i].Payment)
		if steps[i].WithGround {
			read = readLockedWithGround
		}
	}
	b.Queue(lockPayments, ids)
	b.Queue(read, ids).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			l, err := scanLocked(rows)
			if err == nil {
				locked[l.Payment.ID] = l
			}
			return err
		})
	})
}

// scanLocked reads one row of readLocked.
func scanLocked(row pgx.Row) (Locked, error) {
	var l Locked
	var r paymentRow
	var o openRow
	var holder, success, conflict pgtype.UUID
	var at pgtype.Timestamptz
	var items []pgtype.Text
	targets := append(append(r.targets(), o.targets()...), &items, &l.Suspect, &l.Now, &holder, &success, &at, &conflict)
	if err := row.Scan(targets...); err != nil {
		return Locked{}, err
	}
	p, err := r.payment()
	if err != nil {
		return Locked{}, err
	}
	l.Payment, l.Open = p, o.open()
	for _, item := range items {
		l.Conflicted = l.Conflicted || !item.Valid
		if item.String != "" {
			l.Settled = append(l.Settled, item.String)
		}
	}
	l.Ground = payment.Ground{
		Holder: uuidPointer(holder), OpenConflict: uuidPointer(conflict),
		LatestSuccess: uuidPointer(success), SuccessAt: at.Time,
	}
	return l, nil
}

// changes collects what a round writes, column by column.
type changes struct {
	topics   payment.Topics
	named    func(channel string) bool
	updates  []update
	ended    []Payment
	open     []openUpdate
	history  []historyRow
	reviews  []reviewRow
	closed   []closedReview
	attempts []closedAttempt
	audits   []auditRow
	messages []outbox.Message
}

type update struct {
	p           Payment
	fromVersion int
	fromState   payment.State
}

type openUpdate struct {
	id   uuid.UUID
	open Open
}

type historyRow struct {
	p                  Payment
	requestHash, cause string
	actor              string
}

type reviewRow struct {
	p      Payment
	review Review
}

// closedAttempt is the attempt before the one that an operator opened.
type closedAttempt struct {
	before Locked
	actor  string
	audit  Audit
}

type auditRow struct {
	p     Payment
	actor string
	audit Audit
}

type closedReview struct {
	id         uuid.UUID
	resolution string
	actor      string
}

// add works out the payment after the change and what has to be written for it.
func (w *changes) add(before Locked, c Change, trace string) (Payment, error) {
	p := before.Payment
	if c.To != 0 && c.To != p.State {
		if !p.State.CanBecome(c.To) {
			return p, fmt.Errorf("payment %s to %s from %s: %w", p.ID, c.To, p.State, errImpossible)
		}
		p.State = c.To
	}
	w.amend(&p, before, c)
	w.order(&p, before, c)
	if c.Event != "" {
		p.Version++
	}
	w.updates = append(w.updates, update{p, before.Payment.Version, before.Payment.State})
	switch {
	case p.State.Terminal() && !before.Payment.State.Terminal():
		w.ended = append(w.ended, p)
	case c.Open != nil && !p.State.Terminal():
		w.open = append(w.open, openUpdate{p.ID, *c.Open})
	}
	w.records(&p, c)
	w.publish(&p, before, c, trace)
	return p, nil
}

func (w *changes) amend(p *Payment, before Locked, c Change) {
	if c.Reference != "" {
		p.ProviderReference = clean(c.Reference)
	}
	if c.Cause != "" || c.To.Terminal() {
		p.Cause, p.Detail = clean(c.Cause), clean(c.Detail)
	}
	if c.BlockedBy != nil {
		p.BlockedBy = c.BlockedBy
	}
	if c.Open != nil {
		p.Sends = c.Open.Sends.Count
	}
	p.UpdatedAt = before.Now
	if p.State.Terminal() && p.EndedAt.IsZero() {
		p.EndedAt = before.Now
	}
}

// order changes the attempt, and writes down who wanted it.
func (w *changes) order(p *Payment, before Locked, c Change) {
	audit := Audit{}
	if c.Audit != nil {
		audit = *c.Audit
		w.audits = append(w.audits, auditRow{*p, c.Actor, audit})
	}
	if c.Attempt == 0 || c.Attempt == p.Attempt {
		return
	}
	if c.Attempt > p.Attempt && before.Open != nil {
		w.attempts = append(w.attempts, closedAttempt{before, c.Actor, audit})
	}
	p.Attempt, p.ProviderKey = c.Attempt, p.Identity.ProviderKey(c.Attempt)
}

func (w *changes) records(p *Payment, c Change) {
	if !c.Quiet {
		w.history = append(w.history, historyRow{*p, c.RequestHash, clean(c.Cause), c.Actor})
	}
	if c.Review != nil {
		w.reviews = append(w.reviews, reviewRow{*p, *c.Review})
	}
	if c.CloseReviews != "" {
		w.closed = append(w.closed, closedReview{p.ID, clean(c.CloseReviews), c.Actor})
	}
}

// publish queues event before reply, and both under the row lock, so that a
// payment's messages leave in the order of its versions (G10).
func (w *changes) publish(p *Payment, before Locked, c Change, trace string) {
	first := len(w.messages)
	if c.Event != "" {
		w.messages = append(w.messages, eventMessage(w.topics, p, c.Event, before.Now))
	}
	if c.Reply != "" {
		w.messages = append(w.messages, replyMessage(w.topics, p, p.Origin, c.Reply, c.Code, false))
	}
	if c.Requery > 0 && c.Open != nil {
		w.messages = append(w.messages, requeryMessage(w.topics, p, c.Requery, c.Open.NextCheckAt))
	}
	for i := range w.messages[first:] {
		w.messages[first+i].Trace = trace
	}
}

// timestamp stores the zero time as null.
func timestamp(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}
