package store

import (
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// claimInsert wins identities, opens their payments, and tries for the holds. A
// row that exists is left alone, and is then not in ins. parked rows get a lease
// that has ended already, so that the sweep finds them. Identities are taken in
// one order and holds in another, so that two claims wait and do not deadlock.
// The first permit and the opening of a row have one time: a permit older than
// that would be one of a claim that was lost.
const claimInsert = `
WITH ins AS (
    INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version, namespace,
        obligation, obligation_hash, order_id, follows, amount, currency, customer_id, payment_method, channel,
        channel_identity, metadata, provider_key, state, version, attempt, sends, cause, detail, origin_topic,
        origin_partition, origin_offset, origin_time, issued_at, latest_issued_at, ended_at)
    SELECT id, caller, operation, key, fp, fpv, ns, ob, oh, ord, follows, amount, cur, cust, method, chan, ident, meta,
        pk, state, 0, 1, sends, cause, detail, topic, part, off, rec, issued, issued,
        CASE WHEN state = 6 THEN clock_timestamp() END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], $6::smallint[], $7::text[], $8::text[],
        $9::bigint[], $10::text[], $11::uuid[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[],
        $17::text[], $18::json[], $19::uuid[], $20::smallint[], $21::smallint[], $22::text[], $23::text[], $24::text[],
        $25::int[], $26::bigint[], $27::timestamptz[], $28::timestamptz[]) AS u(id, caller, operation, key,
        fp, fpv, ns, ob, oh, ord, follows, amount, cur, cust, method, chan, ident, meta, pk, state, sends, cause, detail,
        topic, part, off, rec, issued)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, namespace, obligation, obligation_hash, channel, state, sends
), opened AS (
    INSERT INTO settleonce.open_payments (payment, channel, lease, lease_until, next_check_at, sends, first_send_at,
        last_deadline, query_first, opened_at)
    SELECT id, channel, $29, at + CASE WHEN sends > 0 THEN $30::interval ELSE '0' END,
        at + CASE WHEN sends > 0 THEN $30::interval ELSE '200 ms' END, sends,
        CASE WHEN sends > 0 THEN at END, CASE WHEN sends > 0 THEN at + $31::interval END, $32, at
    FROM (SELECT id, channel, sends, clock_timestamp() AS at FROM ins WHERE state = 1) AS one_time
), held AS (
    INSERT INTO settleonce.obligation_holds (namespace, obligation, payment)
    SELECT namespace, obligation, id FROM ins WHERE state = 1 ORDER BY obligation_hash
    ON CONFLICT (namespace, obligation) DO NOTHING
)
SELECT id FROM ins`

// claimGround runs after claimInsert, as a later statement with a later
// snapshot: whoever lost the race for the hold, or won it after a success, sees
// that here (G15 ◆). It returns every payment that this lease opened, now or in
// an earlier try whose commit was not answered: those are this batch's to send.
const claimGround = `
SELECT u.id, o.sends, h.payment, s.id, s.ended_at, r.payment
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS u(id, ns, ob, oh)
JOIN settleonce.open_payments o ON o.payment = ANY (ARRAY[u.id]) AND o.lease = $5
LEFT JOIN settleonce.obligation_holds h ON h.namespace = ANY (ARRAY[u.ns]) AND h.obligation = ANY (ARRAY[u.ob])
LEFT JOIN LATERAL (` + latestSuccess + `) s ON true
LEFT JOIN LATERAL (` + blockingReview + `) r ON true`

const latestSuccess = `
    SELECT p.id, p.ended_at FROM settleonce.payments p
    WHERE p.obligation_hash = u.oh AND p.namespace = u.ns AND p.obligation = u.ob AND p.state = 4
    ORDER BY p.ended_at DESC LIMIT 1`

const blockingReview = `
    SELECT i.payment FROM settleonce.review_items i
    WHERE i.obligation_hash = u.oh AND i.namespace = u.ns AND i.obligation = u.ob AND i.closed_at IS NULL AND i.blocks
    LIMIT 1`

// claimKnown locks the payments that were there before, so that a reply to a
// repeat cannot land behind a later event (order of the row lock, B20).
const claimKnown = `
SELECT p.id, p.caller, p.operation, p.idempotency_key, p.fingerprint, p.fingerprint_version, p.state, p.version,
    coalesce(p.provider_reference, ''), coalesce(p.cause, ''), coalesce(p.detail, ''), p.blocked_by, p.latest_issued_at,
    coalesce(p.ended_at, 'epoch'), p.origin_topic, p.origin_partition, p.origin_offset
FROM unnest($1::uuid[], $3::boolean[]) AS u(id, again)
JOIN settleonce.payments p ON p.id = ANY (ARRAY[u.id])
WHERE u.again OR NOT EXISTS (SELECT FROM settleonce.open_payments o WHERE o.payment = u.id AND o.lease = $2)
ORDER BY p.id FOR NO KEY UPDATE OF p`

func (run *claimRun) queueReads(b *pgx.Batch) {
	b.Queue(`SELECT clock_timestamp(), ` + mayHaveLostCommits).QueryRow(func(row pgx.Row) error {
		return row.Scan(&run.now, &run.suspect)
	})
	if len(run.order) == 0 {
		return
	}
	if run.batch.CheckCallers {
		run.queueCallers(b)
	}
	if len(run.news) > 0 {
		b.Queue(claimInsert, run.insertArguments()...).Query(run.scanInserted)
		ids, namespaces, obligations, hashes := run.places()
		ground := claimGround
		if run.batch.Again {
			// Rows of an earlier try are visible to everybody: the sweep may take them
			// over while this try waits for another row, unless they are locked (G2, G11).
			ground += ` FOR UPDATE OF o`
		}
		b.Queue(ground, ids, namespaces, obligations, hashes, run.batch.Lease).Query(run.scanGround)
	}
	ids, again := make([]pgtype.UUID, len(run.order)), make([]bool, len(run.order))
	for j, i := range run.order {
		ids[j], again[j] = pgUUID(run.ids[i]), run.batch.judged[run.ids[i]]
	}
	b.Queue(claimKnown, ids, run.batch.Lease, again).Query(run.scanKnown)
}

func (run *claimRun) scanInserted(rows pgx.Rows) error {
	return scanEach(rows, func() error {
		var id pgtype.UUID
		if err := rows.Scan(&id); err != nil {
			return err
		}
		run.inserted[id.Bytes] = true
		return nil
	})
}

func (run *claimRun) places() ([]pgtype.UUID, []string, []string, []int64) {
	n := len(run.news)
	ids, namespaces, obligations, hashes := make([]pgtype.UUID, n), make([]string, n), make([]string, n), make([]int64, n)
	for j, i := range run.news {
		a := &run.arrivals[i]
		ids[j], namespaces[j], obligations[j] = pgUUID(run.ids[i]), a.Namespace, a.Command.ObligationOrDefault()
		hashes[j] = obligationHash(namespaces[j], obligations[j])
	}
	return ids, namespaces, obligations, hashes
}

// insertColumns are the arrays of claimInsert, in its order.
type insertColumns struct {
	id, key, follows, providerKey                             []pgtype.UUID
	caller, operation, namespace, obligation, order, currency []string
	customer, method, channel, identity, topic                []string
	fingerprint                                               [][]byte
	fingerprintVersion, state, sends                          []int16
	hash                                                      []pgtype.Int8
	amount, offset                                            []int64
	metadata, cause, detail                                   []pgtype.Text
	partition                                                 []int32
	recorded, issued                                          []time.Time
}

func (run *claimRun) insertArguments() []any {
	var c insertColumns
	for _, i := range run.news {
		c.add(run.fresh(i), &run.arrivals[i])
	}
	return []any{
		c.id, c.caller, c.operation, c.key, c.fingerprint, c.fingerprintVersion, c.namespace, c.obligation, c.hash,
		c.order, c.follows, c.amount, c.currency, c.customer, c.method, c.channel, c.identity, c.metadata, c.providerKey,
		c.state, c.sends, c.cause, c.detail, c.topic, c.partition, c.offset, c.recorded, c.issued, run.batch.Lease,
		run.batch.LeaseFor, run.batch.SendWithin, run.batch.QueryFirst,
	}
}

func (c *insertColumns) add(p Payment, a *Arrival) {
	c.id, c.key = append(c.id, pgUUID(p.ID)), append(c.key, pgUUID(p.Identity.Key))
	c.caller, c.operation = append(c.caller, p.Identity.Caller), append(c.operation, p.Identity.Operation)
	c.fingerprint = append(c.fingerprint, p.Fingerprint.Sum[:])
	c.fingerprintVersion = append(c.fingerprintVersion, p.Fingerprint.Version)
	c.namespace, c.obligation = append(c.namespace, p.Namespace), append(c.obligation, p.Obligation)
	c.order, c.follows = append(c.order, p.OrderID), append(c.follows, optionalUUID(p.Follows))
	c.amount, c.currency = append(c.amount, p.Amount), append(c.currency, p.Currency)
	c.customer, c.method = append(c.customer, p.CustomerID), append(c.method, p.PaymentMethod)
	c.channel, c.identity = append(c.channel, p.Channel), append(c.identity, p.ChannelIdentity)
	c.metadata = append(c.metadata, encodeMetadata(p.Metadata))
	c.providerKey = append(c.providerKey, pgUUID(p.ProviderKey))
	c.sends = append(c.sends, int16(p.Sends))
	c.topic, c.partition = append(c.topic, p.Origin.Topic), append(c.partition, int32(p.Origin.Partition))
	c.offset, c.recorded = append(c.offset, p.Origin.Offset), append(c.recorded, p.Origin.Time)
	c.issued = append(c.issued, p.IssuedAt)
	state, hash, cause, detail := payment.Pending, pgtype.Int8{Int64: obligationHash(p.Namespace, p.Obligation), Valid: true}, pgtype.Text{}, pgtype.Text{}
	if a.Refusal != nil {
		state, hash = payment.Rejected, pgtype.Int8{}
		cause, detail = text(string(a.Refusal.Code)), text(clean(a.Refusal.Detail))
	}
	c.state, c.hash = append(c.state, int16(state)), append(c.hash, hash)
	c.cause, c.detail = append(c.cause, cause), append(c.detail, detail)
}

func text(s string) pgtype.Text { return pgtype.Text{String: s, Valid: s != ""} }

func encodeMetadata(m map[string]string) pgtype.Text {
	if len(m) == 0 {
		return pgtype.Text{}
	}
	encoded, err := json.Marshal(m)
	if err != nil {
		return pgtype.Text{} // a map of strings always encodes
	}
	return text(string(encoded))
}

func (run *claimRun) scanGround(rows pgx.Rows) error {
	return scanEach(rows, func() error {
		var id, holder, success, conflict pgtype.UUID
		var at pgtype.Timestamptz
		var sends int
		if err := rows.Scan(&id, &sends, &holder, &success, &at, &conflict); err != nil {
			return err
		}
		run.sends[id.Bytes] = sends
		run.ground[id.Bytes] = payment.Ground{
			Holder: uuidPointer(holder), OpenConflict: uuidPointer(conflict),
			LatestSuccess: uuidPointer(success), SuccessAt: at.Time,
			RepayNamed: run.arrivals[run.first[id.Bytes]].RepayNamed,
		}
		return nil
	})
}

func (run *claimRun) scanKnown(rows pgx.Rows) error {
	return scanEach(rows, func() error {
		var p Payment
		var id, key, blocked pgtype.UUID
		var sum []byte
		if err := rows.Scan(&id, &p.Identity.Caller, &p.Identity.Operation, &key, &sum, &p.Fingerprint.Version, &p.State,
			&p.Version, &p.ProviderReference, &p.Cause, &p.Detail, &blocked, &p.LatestIssuedAt, &p.EndedAt,
			&p.Origin.Topic, &p.Origin.Partition, &p.Origin.Offset); err != nil {
			return err
		}
		p.ID, p.Identity.Key, p.BlockedBy = id.Bytes, key.Bytes, uuidPointer(blocked)
		copy(p.Fingerprint.Sum[:], sum)
		run.known[p.ID] = p
		return nil
	})
}

// scanEach calls scan for every row.
func scanEach(rows pgx.Rows, scan func() error) error {
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (run *claimRun) queueWrites(b *pgx.Batch) {
	if len(run.history) > 0 {
		run.queueHistory(b)
	}
	if len(run.rejections) > 0 {
		run.queueRejections(b)
	}
	if len(run.deliveries) > 0 {
		queueDeliveries(b, run.deliveries)
	}
	for id, at := range run.issued {
		b.Queue(`UPDATE settleonce.payments SET latest_issued_at = greatest(latest_issued_at, $2) WHERE id = $1`, pgUUID(id), at)
	}
	if len(run.announced) > 0 {
		b.Queue(`UPDATE settleonce.payments SET version = 1 WHERE id = ANY($1::uuid[]) AND version = 0`, pgUUIDs(run.announced))
	}
	if len(run.messages) > 0 {
		outbox.Queue(b, run.messages)
	}
}

const rejectClaimed = `
WITH gone AS (DELETE FROM settleonce.open_payments WHERE payment = ANY($1::uuid[])),
freed AS (DELETE FROM settleonce.obligation_holds h USING unnest($1::uuid[], $5::text[], $6::text[]) AS d(id, ns, ob)
    WHERE h.namespace = ANY (ARRAY[d.ns]) AND h.obligation = ANY (ARRAY[d.ob]) AND h.payment = d.id)
UPDATE settleonce.payments p SET state = 6, sends = 0, cause = u.code, detail = u.detail, blocked_by = u.blocked,
    obligation_hash = NULL, updated_at = clock_timestamp(), ended_at = clock_timestamp()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) AS u(id, code, detail, blocked)
WHERE p.id = ANY (ARRAY[u.id]) AND p.state = 1`

func (run *claimRun) queueRejections(b *pgx.Batch) {
	n := len(run.rejections)
	ids, blocked := make([]pgtype.UUID, n), make([]pgtype.UUID, n)
	codes, details, namespaces, obligations := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for i, r := range run.rejections {
		ids[i], blocked[i] = pgUUID(r.id), optionalUUID(r.blockedBy)
		codes[i], details[i], namespaces[i], obligations[i] = string(r.code), clean(r.detail), r.namespace, r.obligation
	}
	b.Queue(rejectClaimed, ids, codes, details, blocked, namespaces, obligations)
}

// queueHistory writes what became of each new payment. It comes with the verdict,
// so that one that is refused does not look as if it had been sent.
func (run *claimRun) queueHistory(b *pgx.Batch) {
	n := len(run.history)
	ids, states, versions := make([]pgtype.UUID, n), make([]int16, n), make([]int32, n)
	sends, causes := make([]int16, n), make([]pgtype.Text, n)
	for i := range run.history {
		p := &run.history[i]
		ids[i], states[i], versions[i], sends[i], causes[i] = pgUUID(p.ID), int16(p.State), int32(p.Version), int16(p.Sends), text(p.Cause)
	}
	b.Queue(`INSERT INTO settleonce.payment_history (payment, state, version, attempt, send, cause, actor)
		SELECT id, state, version, 1, sends, cause, 'consumer'
		FROM unnest($1::uuid[], $2::smallint[], $3::int[], $4::smallint[], $5::text[]) AS u(id, state, version, sends, cause)`,
		ids, states, versions, sends, causes)
}

func queueDeliveries(b *pgx.Batch, deliveries []delivery) {
	n := len(deliveries)
	ids, topics, kinds, codes := make([]pgtype.UUID, n), make([]string, n), make([]string, n), make([]pgtype.Text, n)
	parts, offsets := make([]int32, n), make([]int64, n)
	states, versions := make([]int16, n), make([]int32, n)
	for i, d := range deliveries {
		ids[i], topics[i], kinds[i], codes[i] = pgUUID(d.id), d.origin.Topic, string(d.kind), text(string(d.code))
		parts[i], offsets[i] = int32(d.origin.Partition), d.origin.Offset
		states[i], versions[i] = int16(d.state), int32(d.version)
	}
	b.Queue(`INSERT INTO settleonce.deliveries (payment, topic, partition, "offset", kind, code, state, version)
		SELECT * FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[], $7::smallint[], $8::int[])`,
		ids, topics, parts, offsets, kinds, codes, states, versions)
}
