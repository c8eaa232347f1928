package outbox

// planSQL holds for the transaction it runs in. The outbox is empty one moment
// and large the next, so whatever the planner believes about its size is wrong
// soon, and a plan once made is kept: these settings leave it only plans that
// go through the primary key, at any size.
const planSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_material', 'off', true), set_config('enable_sort', $1, true), set_config('jit', 'off', true),
	set_config('plan_cache_mode', 'force_generic_plan', true)`

// heldSQL is the check of the lease that every read and every write repeats, by
// the database's clock (model: CHECK; G11). h is what this relay believes.
const heldSQL = `s.owner = $1 AND s.epoch = h.epoch AND s.lease_until > clock_timestamp()`

// candidatesSQL are the rows of a shard from its low-water mark on. A row that
// waits behind a parked one of its topic and key is left out; parked rows
// themselves are shown, so that the mark never passes one unseen. The sums with
// zero keep the look for parked rows off the primary key, where it would go
// through all earlier rows of the shard for each one: the index of the few
// parked rows is the only one left.
const candidatesSQL = `FROM settleonce.outbox o
	WHERE o.shard = s.shard AND o.seq >= h.low AND (o.parked_reason IS NOT NULL OR NOT EXISTS (
		SELECT FROM settleonce.outbox p
		WHERE p.parked_reason IS NOT NULL AND p.shard + 0 = o.shard
			AND substring(p.aggregateid FROM 1 FOR 64) = substring(o.aggregateid FROM 1 FOR 64)
			AND p.aggregateid = o.aggregateid AND p.aggregatetype = o.aggregatetype AND p.seq + 0 < o.seq))`

const storedSQL = `o.shard, o.seq, o.parked_reason, o.id, o.aggregatetype, o.aggregateid, o.type, o.payload, o.headers, o.created_at`

const columnsSQL = `SELECT o.shard, o.seq, o.parked_reason IS NOT NULL, o.id, o.aggregatetype, o.aggregateid, o.type,
	CASE WHEN o.parked_reason IS NULL THEN o.payload END, o.headers, o.created_at, statement_timestamp()`

const heldShardsSQL = `FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
	AS h(shard, epoch, low, rows, wide)
JOIN settleonce.outbox_shards s ON s.shard = h.shard AND ` + heldSQL + ` AND s.quiet_until <= clock_timestamp()`

// readSQL reads all shards of a lane at once, each in the order of its sequence.
const readSQL = columnsSQL + `, 0::bigint
` + heldShardsSQL + `
CROSS JOIN LATERAL (SELECT ` + storedSQL + ` ` + candidatesSQL + ` ORDER BY o.seq LIMIT h.rows) o`

// readWideSQL is readSQL for a shard whose rows are mostly of few keys: it looks
// at h.wide rows to find the first ones of h.rows keys, so that one busy key
// does not hold up the others. The last column counts what was looked at.
const readWideSQL = columnsSQL + `, w.seen
` + heldShardsSQL + `
CROSS JOIN LATERAL (
	SELECT f.seq, f.seen FROM (
		SELECT DISTINCT ON (c.aggregatetype, c.aggregateid, c.keyless) c.seq, c.seen FROM (
			SELECT c.seq, c.aggregatetype, c.aggregateid, c.keyless, count(*) OVER () AS seen FROM (
				SELECT o.seq, o.aggregatetype, o.aggregateid, CASE WHEN o.aggregateid IS NULL OR o.type = '` + deadLetterType + `' THEN o.seq END AS keyless
				` + candidatesSQL + ` ORDER BY o.seq LIMIT h.wide) c) c
		ORDER BY c.aggregatetype, c.aggregateid, c.keyless, c.seq) f
	ORDER BY f.seq LIMIT h.rows) w
CROSS JOIN LATERAL (SELECT ` + storedSQL + ` FROM settleonce.outbox o WHERE o.shard = s.shard AND o.seq = w.seq OFFSET 0) o`

// stillHeldSQL lists the shards of $2, $3 whose lease still holds.
const stillHeldSQL = `ARRAY(SELECT s.shard FROM unnest($2::smallint[], $3::bigint[]) AS h(shard, epoch)
	JOIN settleonce.outbox_shards s ON s.shard = h.shard AND ` + heldSQL + `)`

// markSQL removes exactly the rows that were published, unless the lease is
// lost: then the new owner decides what is published (model: CHECK; G10).
const markSQL = `DELETE FROM settleonce.outbox o USING unnest($4::smallint[], $5::bigint[], $6::uuid[]) AS m(shard, seq, id)
WHERE o.shard = m.shard AND o.seq = m.seq AND o.id = m.id AND m.shard = ANY(` + stillHeldSQL + `)`

const parkSQL = `UPDATE settleonce.outbox o SET parked_reason = m.reason
FROM unnest($4::smallint[], $5::bigint[], $6::uuid[], $7::text[]) AS m(shard, seq, id, reason)
WHERE o.shard = m.shard AND o.seq = m.seq AND o.id = m.id AND o.parked_reason IS NULL AND m.shard = ANY(` + stillHeldSQL + `)`

// sweepSQL finds the first row of each shard that may be published, wherever it
// lies.
const sweepSQL = `SELECT s.shard, f.seq
FROM unnest($1::smallint[], $2::bigint[]) AS h(shard, low)
CROSS JOIN LATERAL (SELECT h.shard AS shard) s
CROSS JOIN LATERAL (SELECT o.seq ` + candidatesSQL + ` AND o.parked_reason IS NULL ORDER BY o.seq LIMIT 1) f`

const parkedSQL = `SELECT p.shard, p.seq FROM settleonce.outbox p WHERE p.parked_reason IS NOT NULL`

// holdersSQL lists who inserts into the outbox now: the lock is taken before the
// sequence is, and released after the commit can be seen. Prepared transactions
// are among them.
const holdersSQL = `SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = 'settleonce.outbox'::regclass AND mode = 'RowExclusiveLock'
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// The leases. All times are the database's.
const (
	heartbeatSQL = `INSERT INTO settleonce.outbox_relays (owner, alive_until) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until`

	renewSQL = `UPDATE settleonce.outbox_shards s SET lease_until = clock_timestamp() + $4::interval
FROM unnest($2::smallint[], $3::bigint[]) AS h(shard, epoch)
WHERE s.shard = h.shard AND ` + heldSQL + ` RETURNING s.shard`

	liveSQL = `SELECT count(*) FROM settleonce.outbox_relays WHERE alive_until > clock_timestamp()`

	claimSQL = `WITH free AS MATERIALIZED (SELECT shard FROM settleonce.outbox_shards
	WHERE lease_until <= clock_timestamp() AND shard <> ALL($4::smallint[])
	ORDER BY shard LIMIT $3 FOR UPDATE SKIP LOCKED)
UPDATE settleonce.outbox_shards s
SET owner = $1, epoch = s.epoch + 1, lease_until = clock_timestamp() + $2::interval
FROM free WHERE s.shard = free.shard
RETURNING s.shard, s.epoch, s.producer_id`

	releaseSQL = `UPDATE settleonce.outbox_shards s SET owner = '', lease_until = '-infinity'
FROM unnest($2::smallint[], $3::bigint[]) AS h(shard, epoch)
WHERE s.shard = h.shard AND s.owner = $1 AND s.epoch = h.epoch`

	leaveSQL = `DELETE FROM settleonce.outbox_relays WHERE owner = $1 OR alive_until < clock_timestamp() - interval '1 hour'`

	// storeProducerSQL remembers which producer writes the shard. Another id
	// than the stored one means that the old owner is not shut out by its epoch:
	// nothing is published until its lease and its last publish are over (B19).
	storeProducerSQL = `UPDATE settleonce.outbox_shards s SET producer_id = h.producer, producer_epoch = h.producer_epoch,
	quiet_until = CASE WHEN s.producer_id <> h.producer THEN greatest(s.quiet_until, clock_timestamp() + $6::interval) ELSE s.quiet_until END
FROM unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::integer[]) AS h(shard, epoch, producer, producer_epoch)
WHERE s.shard = h.shard AND ` + heldSQL + `
RETURNING s.shard, greatest(extract(epoch FROM greatest(s.quiet_until, clock_timestamp()) - clock_timestamp()), 0)::float8`
)

// The channel of wake-ups, and what they say.
const (
	wakeChannel = "settleonce_outbox"
	wakeLeases  = "leases"

	// notifySQL commits without waiting for the disk: a wake-up is a hint.
	notifySQL = `SELECT set_config('synchronous_commit', 'off', true), pg_notify('` + wakeChannel + `', $1)`
)

const (
	shardsSQL = `SELECT i.shards, (SELECT count(*) FROM settleonce.outbox_shards) FROM settleonce.installation i`

	depthSQL = `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE parked_reason IS NULL)), 0)::float8,
	count(parked_reason) FROM settleonce.outbox`
)
