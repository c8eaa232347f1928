package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// importInsert stores payments that are not there. Their created_at is now, so
// that they are remembered for a whole window from the import, however old they
// are (G14). One without an outcome gets an open row, under which nothing is ever
// sent, and a review item that blocks its obligation: not the hold, which is one
// per obligation (G15). Nobody knows how often it was sent: two stands for that,
// since none of what is true of a single send is true of it. The names its provider
// has for it go where callbacks look.
const importInsert = `
WITH ins AS (
    INSERT INTO settleonce.payments (id, caller, operation, idempotency_key, fingerprint, fingerprint_version, namespace,
        obligation, obligation_hash, order_id, amount, currency, customer_id, payment_method, channel, channel_identity,
        provider_key, state, version, attempt, sends, provider_reference, cause, origin_topic, origin_partition, origin_offset,
        origin_time, issued_at, latest_issued_at, ended_at)
    SELECT id, caller, operation, key, fp, fpv, ns, ob, oh, ord, amount, cur, cust, method, chan, ident, pk, state, 0, 1,
        CASE WHEN state = 3 THEN 2 ELSE 1 END, ref, cause, $24, 0, off, clock_timestamp(), issued, issued,
        CASE WHEN state <> 3 THEN coalesce(ended, clock_timestamp()) END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::bytea[], $6::smallint[], $7::text[], $8::text[],
        $9::bigint[], $10::text[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[],
        $17::uuid[], $18::smallint[], $19::text[], $20::text[], $21::bigint[], $22::timestamptz[], $23::timestamptz[])
        AS u(id, caller, operation, key, fp, fpv, ns, ob, oh, ord, amount, cur, cust, method, chan, ident, pk, state, ref,
        cause, off, issued, ended)
    ON CONFLICT (id) DO NOTHING
    RETURNING id, state, channel, namespace, obligation, obligation_hash, sends, issued_at, provider_reference, provider_key
), story AS (
    INSERT INTO settleonce.payment_history (payment, state, version, attempt, send, provider_reference, cause, actor)
    SELECT id, state, 0, 1, sends, provider_reference, 'imported from ' || substr($24, 8), $25 FROM ins
), opened AS (
    INSERT INTO settleonce.open_payments (payment, channel, lease, lease_until, next_check_at, sends, first_send_at,
        last_deadline, no_more_sends)
    SELECT id, channel, 0, clock_timestamp(),
        CASE WHEN id = ANY ($26::uuid[]) THEN clock_timestamp() + random() * interval '1 hour' ELSE '9999-01-01' END,
        sends, least(issued_at, clock_timestamp()), clock_timestamp(), true
    FROM ins WHERE state = 3
), names AS (
    INSERT INTO settleonce.provider_references (channel, reference, payment)
    SELECT channel, provider_reference, id FROM ins WHERE provider_reference IS NOT NULL
    UNION SELECT channel, provider_key::text, id FROM ins WHERE id = ANY ($27::uuid[])
    ORDER BY 1, 2
    ON CONFLICT (channel, reference) DO NOTHING
), items AS (
    INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason)
    SELECT id, 'imported', namespace, obligation, obligation_hash, true, 'imported from ' || substr($24, 8) || ' without an outcome'
    FROM ins WHERE state = 3
)
SELECT id FROM ins`

// nameOutcomes is for those whose reference came with a later run.
const nameOutcomes = `
INSERT INTO settleonce.provider_references (channel, reference, payment)
SELECT u.channel, u.reference, u.id FROM unnest($1::text[], $2::text[], $3::uuid[]) AS u(channel, reference, id)
WHERE u.reference <> '' ORDER BY 1, 2 ON CONFLICT (channel, reference) DO NOTHING`

// importColumns are the arrays of importInsert, in its order.
type importColumns struct {
	id, key, providerKey, ask, named                          []pgtype.UUID
	caller, operation, namespace, obligation, order, currency []string
	customer, method, channel, identity                       []string
	fingerprint                                               [][]byte
	fingerprintVersion, state                                 []int16
	hash, amount, offset                                      []int64
	reference, cause                                          []pgtype.Text
	issued                                                    []time.Time
	ended                                                     []pgtype.Timestamptz
}

func (run *importRun) queueInsert(b *pgx.Batch) {
	if len(run.order) == 0 {
		return
	}
	var c importColumns
	for _, i := range run.order {
		c.add(run.ids[i], &run.rows[i])
	}
	b.Queue(importInsert, c.id, c.caller, c.operation, c.key, c.fingerprint, c.fingerprintVersion, c.namespace, c.obligation,
		c.hash, c.order, c.amount, c.currency, c.customer, c.method, c.channel, c.identity, c.providerKey, c.state, c.reference,
		c.cause, c.offset, c.issued, c.ended, importedTopic+run.source, importActor, c.ask, c.named).
		Query(func(rows pgx.Rows) error {
			return scanEach(rows, func() error {
				var id pgtype.UUID
				err := rows.Scan(&id)
				run.inserted[id.Bytes] = true
				return err
			})
		})
}

func (c *importColumns) add(id uuid.UUID, r *Imported) {
	cmd := &r.Command
	identity, providerKey, channelIdentity := cmd.Identity(), r.ProviderKey, r.ChannelIdentity
	if providerKey == uuid.Nil {
		providerKey, channelIdentity = identity.ProviderKey(1), noIdentity
	} else {
		c.named = append(c.named, pgUUID(id))
	}
	if channelIdentity == "" {
		channelIdentity = noIdentity
	}
	if r.Ask && channelIdentity != noIdentity {
		c.ask = append(c.ask, pgUUID(id))
	}
	c.id, c.key, c.providerKey = append(c.id, pgUUID(id)), append(c.key, pgUUID(cmd.IdempotencyKey)), append(c.providerKey, pgUUID(providerKey))
	c.caller, c.operation = append(c.caller, cmd.Caller), append(c.operation, cmd.Operation)
	c.fingerprint = append(c.fingerprint, r.Fingerprint.Sum[:])
	c.fingerprintVersion = append(c.fingerprintVersion, r.Fingerprint.Version)
	c.namespace, c.obligation = append(c.namespace, r.Namespace), append(c.obligation, cmd.ObligationOrDefault())
	c.hash, c.order = append(c.hash, obligationHash(r.Namespace, cmd.ObligationOrDefault())), append(c.order, cmd.OrderID)
	c.amount, c.currency = append(c.amount, cmd.Amount), append(c.currency, cmd.Currency)
	c.customer, c.method = append(c.customer, cmd.CustomerID), append(c.method, cmd.PaymentMethod)
	c.channel, c.identity = append(c.channel, cmd.Channel), append(c.identity, channelIdentity)
	c.state, c.offset = append(c.state, int16(r.State)), append(c.offset, importOffset(id))
	c.reference, c.cause = append(c.reference, text(clean(r.ProviderReference))), append(c.cause, text(clean(r.Cause)))
	c.issued, c.ended = append(c.issued, cmd.IssuedAt), append(c.ended, timestamp(r.EndedAt))
}

// importKnown is a later statement: it sees what a claim stored while the insert
// waited for it.
const importKnown = `
SELECT p.id, p.order_id, p.obligation, p.amount, p.currency, p.customer_id, p.payment_method, p.channel, p.state,
    coalesce(p.provider_reference, ''), p.origin_topic
FROM unnest($1::uuid[]) AS u(id)
JOIN settleonce.payments p ON p.id = ANY (ARRAY[u.id])`

func (run *importRun) queueKnown(b *pgx.Batch) {
	ids := make([]uuid.UUID, len(run.order))
	for j, i := range run.order {
		ids[j] = run.ids[i]
	}
	b.Queue(importKnown, pgUUIDs(ids)).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error {
			var p Payment
			var id pgtype.UUID
			err := rows.Scan(&id, &p.OrderID, &p.Obligation, &p.Amount, &p.Currency, &p.CustomerID, &p.PaymentMethod,
				&p.Channel, &p.State, &p.ProviderReference, &p.Origin.Topic)
			p.ID = id.Bytes
			run.known[p.ID] = p
			return err
		})
	})
}

// storeProgress keeps the position where none is given.
const storeProgress = `
UPDATE settleonce.backfills SET position = CASE WHEN $2 = '' THEN position ELSE $2 END, read_rows = $3, refused_rows = $4,
    updated_at = clock_timestamp(), finished_at = CASE WHEN $5 THEN clock_timestamp() END
WHERE source = $1`

func queueProgress(b *pgx.Batch, p *Progress) {
	b.Queue(storeProgress, p.Source, p.Position, p.Read, p.Refused, p.Finished)
}

// ErrBackfillRuns says that somebody is taking this source now.
var ErrBackfillRuns = errors.New("another backfill of this source is running: wait for it, or stop it")

// BeginBackfill starts to take a source, or goes on with a run of the same content
// that was interrupted, and leaves an audit row. It returns where to go on. Nobody
// else can take the source until end is called.
func (s *Store) BeginBackfill(ctx context.Context, source, content, actor, reason string) (Progress, func(), error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return Progress{}, nil, fmt.Errorf("acquire a connection: %w", err)
	}
	end := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`); err != nil {
			_ = conn.Conn().Close(ctx) // the server gives the lock back with the session
		}
		conn.Release()
	}
	var locked bool
	err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended('settleonce/backfill/' || $1, 0))`, source).Scan(&locked)
	if err == nil && !locked {
		err = ErrBackfillRuns
	}
	if err != nil {
		end()
		return Progress{}, nil, fmt.Errorf("take the source %s: %w", source, err)
	}
	progress := Progress{Source: source, Content: content}
	if err := s.beginBackfill(ctx, &progress, actor, reason); err != nil {
		end()
		return Progress{}, nil, fmt.Errorf("begin with the source %s: %w", source, err)
	}
	return progress, end, nil
}

// beginBackfill finds where to go on. A pass that was finished, or of other
// content, begins anew: whatever it takes again changes nothing.
func (s *Store) beginBackfill(ctx context.Context, p *Progress, actor, reason string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
INSERT INTO settleonce.backfills AS b (source, content) VALUES ($1, $2)
ON CONFLICT (source) DO UPDATE SET content = $2, updated_at = clock_timestamp(), finished_at = NULL,
    position = CASE WHEN b.finished_at IS NULL AND b.content = $2 THEN b.position ELSE '' END,
    read_rows = CASE WHEN b.finished_at IS NULL AND b.content = $2 THEN b.read_rows ELSE 0 END,
    refused_rows = CASE WHEN b.finished_at IS NULL AND b.content = $2 THEN b.refused_rows ELSE 0 END,
    started_at = CASE WHEN b.finished_at IS NULL AND b.content = $2 THEN b.started_at ELSE clock_timestamp() END
RETURNING position, read_rows, refused_rows`, p.Source, p.Content).Scan(&p.Position, &p.Read, &p.Refused)
		if err != nil {
			return err
		}
		return audit(ctx, tx, actor, "backfill", reason, map[string]any{"source": p.Source, "position": p.Position})
	})
}

// EndBackfill leaves an audit row that says what came of it.
func (s *Store) EndBackfill(ctx context.Context, actor, reason string, report any) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		return audit(ctx, tx, actor, "backfill ended", reason, report)
	})
	if err != nil {
		return fmt.Errorf("record the end of the backfill: %w", err)
	}
	return nil
}
