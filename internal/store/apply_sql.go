package store

import (
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/outbox"
)

// paymentRow and openRow scan the columns of paymentColumns and openColumns.
type paymentRow struct {
	p                      Payment
	id, key, follows       pgtype.UUID
	providerKey, blockedBy pgtype.UUID
	sum, metadata          []byte
	endedAt                pgtype.Timestamptz
}

func (r *paymentRow) targets() []any {
	p := &r.p
	return []any{
		&r.id, &p.Identity.Caller, &p.Identity.Operation, &r.key, &r.sum, &p.Fingerprint.Version, &p.Namespace,
		&p.Obligation, &p.OrderID, &r.follows, &p.Amount, &p.Currency, &p.CustomerID, &p.PaymentMethod, &p.Channel,
		&p.ChannelIdentity, &r.metadata, &r.providerKey, &p.State, &p.Version, &p.Attempt, &p.Sends, &p.ProviderReference,
		&p.Cause, &p.Detail, &r.blockedBy, &p.Origin.Topic, &p.Origin.Partition, &p.Origin.Offset, &p.Origin.Time,
		&p.IssuedAt, &p.LatestIssuedAt, &p.CreatedAt, &p.UpdatedAt, &r.endedAt,
	}
}

func (r *paymentRow) payment() (Payment, error) {
	p := r.p
	p.ID, p.Identity.Key, p.ProviderKey = r.id.Bytes, r.key.Bytes, r.providerKey.Bytes
	p.Follows, p.BlockedBy, p.EndedAt = uuidPointer(r.follows), uuidPointer(r.blockedBy), r.endedAt.Time
	copy(p.Fingerprint.Sum[:], r.sum)
	if len(r.metadata) > 0 {
		if err := json.Unmarshal(r.metadata, &p.Metadata); err != nil {
			return Payment{}, fmt.Errorf("read metadata of payment %s: %w", p.ID, err)
		}
	}
	return p, nil
}

type openRow struct {
	present                                        bool
	o                                              Open
	leaseUntil, nextCheck, first, deadline, opened pgtype.Timestamptz
}

func (r *openRow) targets() []any {
	o := &r.o
	return []any{
		&r.present, &o.Lease, &r.leaseUntil, &r.nextCheck, &o.Queries, &o.Watches, &o.Sends.Count, &r.first,
		&r.deadline, &o.NoMoreSends, &o.QueryFirst, &o.DeclineCause, &o.DeclineReference, &o.PaidAttempt,
		&o.PaidReference, &r.opened,
	}
}

func (r *openRow) open() *Open {
	if !r.present {
		return nil
	}
	o := r.o
	o.LeaseUntil, o.NextCheckAt, o.OpenedAt = r.leaseUntil.Time, r.nextCheck.Time, r.opened.Time
	o.Sends.First, o.Sends.LastDeadline = r.first.Time, r.deadline.Time
	return &o
}

func (w *changes) queue(b *pgx.Batch) {
	w.queueUpdates(b)
	w.queueEnded(b)
	w.queueNames(b)
	w.queueOpen(b)
	w.queueHistory(b)
	w.queueReviews(b)
	w.queueOrders(b)
	if len(w.messages) > 0 {
		outbox.Queue(b, w.messages)
	}
}

// updatePayments writes under the lock and still names version and state it
// decided on: a row that moved all the same fails the transaction (G9, G11). The
// server must find that out, since the COMMIT is in the same round trip: it
// divides by zero.
const updatePayments = `
WITH stored AS (UPDATE settleonce.payments p SET state = u.state, version = u.version, attempt = u.attempt, sends = u.sends,
    provider_key = u.pk, provider_reference = u.ref, cause = u.cause, detail = u.detail, blocked_by = u.blocked,
    updated_at = u.updated, ended_at = u.ended
FROM unnest($1::uuid[], $2::smallint[], $3::int[], $4::smallint[], $5::smallint[], $6::uuid[], $7::text[], $8::text[],
    $9::text[], $10::uuid[], $11::timestamptz[], $12::timestamptz[], $13::int[], $14::smallint[])
    AS u(id, state, version, attempt, sends, pk, ref, cause, detail, blocked, updated, ended, from_version, from_state)
WHERE p.id = ANY (ARRAY[u.id]) AND p.version = u.from_version AND p.state = u.from_state RETURNING 1)
SELECT 1 / (count(*) = cardinality($1::uuid[]))::int FROM stored`

func (w *changes) queueUpdates(b *pgx.Batch) {
	n := len(w.updates)
	if n == 0 {
		return
	}
	ids, pks, blocked := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	states, fromStates, attempts, sends := make([]int16, n), make([]int16, n), make([]int16, n), make([]int16, n)
	versions, fromVersions := make([]int32, n), make([]int32, n)
	refs, causes, details := make([]pgtype.Text, n), make([]pgtype.Text, n), make([]pgtype.Text, n)
	updated, ended := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
	for i := range w.updates {
		u := &w.updates[i]
		p := &u.p
		ids[i], pks[i], blocked[i] = pgUUID(p.ID), pgUUID(p.ProviderKey), optionalUUID(p.BlockedBy)
		states[i], fromStates[i], attempts[i], sends[i] = int16(p.State), int16(u.fromState), int16(p.Attempt), int16(p.Sends)
		versions[i], fromVersions[i] = int32(p.Version), int32(u.fromVersion)
		refs[i], causes[i], details[i] = text(p.ProviderReference), text(p.Cause), text(p.Detail)
		updated[i], ended[i] = timestamp(p.UpdatedAt), timestamp(p.EndedAt)
	}
	b.Queue(updatePayments, ids, states, versions, attempts, sends, pks, refs, causes, details, blocked, updated, ended,
		fromVersions, fromStates)
}

// queueEnded removes the open row and gives the hold back in the transaction
// that stores the outcome: success and release commit together (G15 ◆).
func (w *changes) queueEnded(b *pgx.Batch) {
	n := len(w.ended)
	if n == 0 {
		return
	}
	ids, namespaces, obligations := make([]pgtype.UUID, n), make([]string, n), make([]string, n)
	for i := range w.ended {
		ids[i], namespaces[i], obligations[i] = pgUUID(w.ended[i].ID), w.ended[i].Namespace, w.ended[i].Obligation
	}
	b.Queue(`DELETE FROM settleonce.open_payments WHERE payment = ANY($1::uuid[])`, ids)
	b.Queue(`DELETE FROM settleonce.obligation_holds h USING unnest($1::uuid[], $2::text[], $3::text[]) AS u(id, ns, ob)
		WHERE h.namespace = ANY (ARRAY[u.ns]) AND h.obligation = ANY (ARRAY[u.ob]) AND h.payment = u.id`, ids, namespaces, obligations)
}

const updateOpen = `
UPDATE settleonce.open_payments o SET lease = u.lease, lease_until = u.lease_until, next_check_at = u.next_check,
    queries = u.queries, watches = u.watches, sends = u.sends, first_send_at = u.first_send, last_deadline = u.deadline,
    no_more_sends = u.no_more, query_first = u.query_first, decline_cause = u.cause, decline_reference = u.ref,
    paid_attempt = u.paid, paid_reference = u.paid_ref
FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[], $5::smallint[], $6::int[], $7::smallint[],
    $8::timestamptz[], $9::timestamptz[], $10::boolean[], $11::boolean[], $12::text[], $13::text[], $14::smallint[],
    $15::text[])
    AS u(id, lease, lease_until, next_check, queries, watches, sends, first_send, deadline, no_more, query_first, cause, ref,
        paid, paid_ref)
WHERE o.payment = ANY (ARRAY[u.id])`

func (w *changes) queueOpen(b *pgx.Batch) {
	n := len(w.open)
	if n == 0 {
		return
	}
	ids, leases := make([]pgtype.UUID, n), make([]int64, n)
	until, next, first, deadline := make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n), make([]pgtype.Timestamptz, n)
	queries, sends, watches := make([]int16, n), make([]int16, n), make([]int32, n)
	noMore, queryFirst := make([]bool, n), make([]bool, n)
	causes, refs := make([]pgtype.Text, n), make([]pgtype.Text, n)
	paid, paidRefs := make([]pgtype.Int2, n), make([]pgtype.Text, n)
	for i := range w.open {
		o := &w.open[i].open
		ids[i], leases[i] = pgUUID(w.open[i].id), o.Lease
		until[i], next[i] = timestamp(o.LeaseUntil), timestamp(o.NextCheckAt)
		first[i], deadline[i] = timestamp(o.Sends.First), timestamp(o.Sends.LastDeadline)
		queries[i], sends[i], watches[i] = int16(o.Queries), int16(o.Sends.Count), int32(o.Watches)
		noMore[i], queryFirst[i] = o.NoMoreSends, o.QueryFirst
		causes[i], refs[i] = text(clean(o.DeclineCause)), text(clean(o.DeclineReference))
		paid[i] = pgtype.Int2{Int16: int16(o.PaidAttempt), Valid: o.PaidAttempt > 0}
		paidRefs[i] = text(clean(o.PaidReference))
	}
	b.Queue(updateOpen, ids, leases, until, next, queries, watches, sends, first, deadline, noMore, queryFirst, causes, refs, paid, paidRefs)
}

func (w *changes) queueHistory(b *pgx.Batch) {
	n := len(w.history)
	if n == 0 {
		return
	}
	ids, states, versions := make([]pgtype.UUID, n), make([]int16, n), make([]int32, n)
	attempts, sends, actors := make([]int16, n), make([]int16, n), make([]string, n)
	hashes, refs, causes := make([]pgtype.Text, n), make([]pgtype.Text, n), make([]pgtype.Text, n)
	for i := range w.history {
		h := &w.history[i]
		ids[i], states[i], versions[i] = pgUUID(h.p.ID), int16(h.p.State), int32(h.p.Version)
		attempts[i], sends[i], actors[i] = int16(h.p.Attempt), int16(h.p.Sends), h.actor
		hashes[i], refs[i], causes[i] = text(h.requestHash), text(h.p.ProviderReference), text(h.cause)
	}
	b.Queue(`INSERT INTO settleonce.payment_history (payment, state, version, attempt, send, request_hash, provider_reference, cause, actor)
		SELECT * FROM unnest($1::uuid[], $2::smallint[], $3::int[], $4::smallint[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::text[])`,
		ids, states, versions, attempts, sends, hashes, refs, causes, actors)
}

// queueReviews writes item by item: there are few.
func (w *changes) queueReviews(b *pgx.Batch) {
	for i := range w.closed {
		c := &w.closed[i]
		b.Queue(`UPDATE settleonce.review_items SET closed_at = clock_timestamp(), resolution = $2, actor = $3
			WHERE payment = $1 AND kind IN ('unresolved', 'imported') AND closed_at IS NULL`, pgUUID(c.id), c.resolution, c.actor)
	}
	for i := range w.reviews {
		r := &w.reviews[i]
		said := map[string]string{"answer": clean(r.review.Evidence)}
		if r.review.Success != "" {
			said["success"] = clean(r.review.Success)
		}
		evidence, err := json.Marshal(said)
		if err != nil {
			evidence = nil // a map of strings always encodes
		}
		b.Queue(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason, evidence)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, pgUUID(r.p.ID), string(r.review.Kind), r.p.Namespace, r.p.Obligation,
			obligationHash(r.p.Namespace, r.p.Obligation), r.review.Blocks, clean(r.review.Reason), evidence)
	}
}

// queueOrders writes what operators ordered, row by row: there are few.
func (w *changes) queueOrders(b *pgx.Batch) {
	for i := range w.attempts {
		a := &w.attempts[i]
		p, sends := &a.before.Payment, a.before.Open.Sends
		b.Queue(`INSERT INTO settleonce.attempts (payment, attempt, provider_key, sends, first_send_at, last_deadline, evidence, actor, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`, pgUUID(p.ID), int16(p.Attempt), pgUUID(p.ProviderKey), int16(sends.Count),
			timestamp(sends.First), timestamp(sends.LastDeadline), clean(a.audit.Evidence), a.actor, clean(a.audit.Reason))
	}
	for i := range w.audits {
		a := &w.audits[i]
		detail, err := json.Marshal(map[string]string{
			"payment": a.p.ID.String(), "idempotencyKey": a.p.Identity.Key.String(), "evidence": clean(a.audit.Evidence),
			"second": clean(a.audit.Second), "statement": clean(a.audit.Statement),
		})
		if err != nil {
			detail = nil // a map of strings always encodes
		}
		b.Queue(`INSERT INTO settleonce.audit (actor, action, reason, detail) VALUES ($1, $2, $3, $4)`,
			a.actor, a.audit.Action, clean(a.audit.Reason), detail)
	}
}
