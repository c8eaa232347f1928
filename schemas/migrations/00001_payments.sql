-- The tables of the main job. Names and roles: docs/architecture.md.
-- Every statement here runs inside one transaction; later migrations on tables in use must not hold a long lock.

-- +goose Up

-- One row per payment, kept until nothing can bring its command back (G14). The primary key is derived from
-- (caller, operation, idempotency_key), so it alone makes the identity unique (G1). No index stands over a column
-- that changes, and half of each page is left free for the one update most rows get: updates stay HOT.
CREATE TABLE settleonce.payments (
    id                  uuid        PRIMARY KEY,
    caller              text        NOT NULL CHECK (caller <> ''),
    operation           text        NOT NULL CHECK (operation <> ''),
    idempotency_key     uuid        NOT NULL CHECK (idempotency_key <> '00000000-0000-0000-0000-000000000000'),
    fingerprint         bytea       NOT NULL,
    fingerprint_version smallint    NOT NULL,
    namespace           text        NOT NULL,            -- of the obligation
    obligation          text        NOT NULL,
    obligation_hash     bigint,                          -- null: owns no obligation (rejected at once)
    order_id            text        NOT NULL,
    follows             uuid,
    amount              bigint      NOT NULL,
    currency            text        NOT NULL,
    customer_id         text        NOT NULL,
    payment_method      text        NOT NULL,
    channel             text        NOT NULL,
    channel_identity    text        NOT NULL,            -- account, endpoint, mode at the time of the claim
    metadata            json,
    provider_key        uuid        NOT NULL,            -- of the current attempt; persisted before the first send (G6)
    state               smallint    NOT NULL CHECK (state BETWEEN 1 AND 6),
    version             integer     NOT NULL,            -- of the last event
    attempt             smallint    NOT NULL CHECK (attempt >= 1),
    sends               smallint    NOT NULL CHECK (sends >= 0),
    provider_reference  text,
    cause               text,                            -- provider's reason of a decline, or our code of a rejection
    detail              text,
    blocked_by          uuid,
    origin_topic        text        NOT NULL,            -- the first delivery: its reply is the outcome's
    origin_partition    integer     NOT NULL,
    origin_offset       bigint      NOT NULL,
    origin_time         timestamptz NOT NULL,
    issued_at           timestamptz NOT NULL,
    latest_issued_at    timestamptz NOT NULL,            -- the latest delivered under this key: decides how long the key is kept
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at          timestamptz NOT NULL DEFAULT clock_timestamp(), -- of the last history row
    ended_at            timestamptz,
    CHECK ((state IN (4, 5, 6)) = (ended_at IS NOT NULL)),
    CHECK (state = 6 OR (amount > 0 AND obligation_hash IS NOT NULL))
) WITH (fillfactor = 50);
CREATE INDEX payments_obligation ON settleonce.payments (obligation_hash) WHERE obligation_hash IS NOT NULL;
-- What may be forgotten. Not BRIN: once the space of old keys is used again, each of its ranges holds both ages.
CREATE INDEX payments_created ON settleonce.payments (created_at);

-- One row per unresolved payment, gone with its outcome.
CREATE TABLE settleonce.open_payments (
    payment         uuid        PRIMARY KEY,
    channel         text        NOT NULL,
    lease           bigint      NOT NULL,                -- fencing token of the worker that may act (G11); 0: nobody
    lease_until     timestamptz NOT NULL,
    next_check_at   timestamptz NOT NULL,                -- the truth about when to look again; topics only wake up
    queries         smallint    NOT NULL DEFAULT 0,      -- of the burst of three
    watches         integer     NOT NULL DEFAULT 0,      -- rounds of the slow watch, or of waiting while parked
    sends           smallint    NOT NULL,                -- permits of this attempt that may have been sent
    first_send_at   timestamptz,
    last_deadline   timestamptz,                         -- after it plus the longest execution no send is alive
    no_more_sends   boolean     NOT NULL DEFAULT false,  -- a decline was heard, or evidence that does not match
    query_first     boolean     NOT NULL DEFAULT false,  -- commits may be lost: ask the provider before the first send
    decline_cause     text,                              -- heard and not yet concluded (decline rule)
    decline_reference text,
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX open_payments_due ON settleonce.open_payments (next_check_at);

-- The hold: the one row per obligation that an unresolved payment owns (G15).
CREATE TABLE settleonce.obligation_holds (
    namespace  text NOT NULL,
    obligation text NOT NULL,
    payment    uuid NOT NULL,
    PRIMARY KEY (namespace, obligation)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Append-only: every transition. Found through the payment's created_at … updated_at, so a BRIN index is enough.
CREATE TABLE settleonce.payment_history (
    payment            uuid        NOT NULL,
    at                 timestamptz NOT NULL DEFAULT clock_timestamp(),
    state              smallint    NOT NULL,
    version            integer     NOT NULL,
    attempt            smallint    NOT NULL,
    send               smallint    NOT NULL,
    request_hash       text,
    provider_reference text,
    cause              text,
    actor              text        NOT NULL
);
CREATE INDEX payment_history_at ON settleonce.payment_history USING brin (at) WITH (pages_per_range = 16, autosummarize = on);

-- What every later delivery of a command was told, and when.
CREATE TABLE settleonce.deliveries (
    payment    uuid        NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic      text        NOT NULL,
    partition  integer     NOT NULL,
    "offset"   bigint      NOT NULL,
    kind       text        NOT NULL,
    code       text,
    state      smallint    NOT NULL,
    version    integer     NOT NULL
);
CREATE INDEX deliveries_payment ON settleonce.deliveries (payment);
CREATE INDEX deliveries_at ON settleonce.deliveries (at);

-- Messages on their way to Kafka, in Debezium's outbox convention. A published row is deleted, so what is here is
-- pending; the relay scans per shard and never keeps a cursor.
CREATE TABLE settleonce.outbox (
    seq           bigint      GENERATED ALWAYS AS IDENTITY,
    shard         smallint    NOT NULL,
    id            uuid        NOT NULL CHECK (id <> '00000000-0000-0000-0000-000000000000'),
    aggregatetype text        NOT NULL CHECK (aggregatetype <> ''), -- topic
    aggregateid   bytea,                                 -- Kafka key
    type          text        NOT NULL,                  -- ce_type
    payload       bytea,
    headers       json,                                  -- object of strings, beyond the derived ce_ headers
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    parked_reason text,                                  -- cannot be published as it is; its (topic, key) waits with it
    PRIMARY KEY (shard, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- The parked rows, by key: later rows of the key look here whether they have to wait. A prefix of the key, because a
-- dead letter's may be longer than an index entry.
CREATE INDEX outbox_parked ON settleonce.outbox (substring(aggregateid FROM 1 FOR 64)) WHERE parked_reason IS NOT NULL;

-- Relays that are alive, whether or not they lease a shard: they share the shards evenly.
CREATE TABLE settleonce.outbox_relays (
    owner       text        PRIMARY KEY,
    alive_until timestamptz NOT NULL
);

-- Who relays which shard, and with which producer (G10).
CREATE TABLE settleonce.outbox_shards (
    shard          smallint    PRIMARY KEY,
    owner          text        NOT NULL DEFAULT '',
    epoch          bigint      NOT NULL DEFAULT 0,
    lease_until    timestamptz NOT NULL DEFAULT '-infinity',
    producer_id    bigint,
    producer_epoch integer,
    quiet_until    timestamptz NOT NULL DEFAULT '-infinity' -- a changed producer id waits out the old owner
);

-- Query budget and breaker of a channel, across all instances (G13).
CREATE TABLE settleonce.channel_budgets (
    channel          text             PRIMARY KEY,
    tokens           double precision NOT NULL DEFAULT 0,  -- queries that may be made now
    refilled_at      timestamptz      NOT NULL DEFAULT clock_timestamp(),
    window_start     timestamptz      NOT NULL DEFAULT clock_timestamp(), -- of the current count of submissions
    window_submits   bigint           NOT NULL DEFAULT 0,
    previous_submits bigint           NOT NULL DEFAULT 0,
    submit_tokens    double precision NOT NULL DEFAULT 0,  -- submissions that may be made now, where the channel has a rate limit
    submits_refilled_at timestamptz   NOT NULL DEFAULT clock_timestamp(),
    failures         integer          NOT NULL DEFAULT 0,  -- in a row, over all instances
    open_until       timestamptz      NOT NULL DEFAULT '-infinity',
    open_reason      text             NOT NULL DEFAULT '',
    opened_count     integer          NOT NULL DEFAULT 0   -- in a row, for the growing pause
);

-- The offset that follows the last durably claimed record. On assignment the lower of this and Kafka's wins; a
-- value behind Kafka's means that commits were lost.
CREATE TABLE settleonce.consumed_offsets (
    consumer_group text    NOT NULL,
    topic          text    NOT NULL,
    partition      integer NOT NULL,
    next_offset    bigint  NOT NULL,
    PRIMARY KEY (consumer_group, topic, partition)
) WITH (fillfactor = 50);

-- What a person has to look at: payments without an answer, contradicting evidence, imported payments without an
-- outcome. An open one that blocks stands in the way of claims and permits of its obligation (G15).
CREATE TABLE settleonce.review_items (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment         uuid        NOT NULL,
    kind            text        NOT NULL CHECK (kind IN ('unresolved', 'conflict', 'imported')),
    namespace       text        NOT NULL,
    obligation      text        NOT NULL,
    obligation_hash bigint      NOT NULL,
    blocks          boolean     NOT NULL,
    reason          text        NOT NULL,
    evidence        json,
    opened_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at       timestamptz,
    resolution      text,
    actor           text
);
CREATE INDEX review_items_obligation ON settleonce.review_items (obligation_hash);
CREATE INDEX review_items_payment ON settleonce.review_items (payment);

-- One row: which database this is. A change of either means that commits may have been lost.
CREATE TABLE settleonce.installation (
    one               boolean     PRIMARY KEY DEFAULT true CHECK (one),
    system_identifier bigint      NOT NULL,
    timeline          bigint      NOT NULL,
    shards            smallint    NOT NULL,
    suspect           text        NOT NULL DEFAULT '',   -- why commits may be lost; '' when all is well
    installed_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What operators did, by whom and why.
CREATE TABLE settleonce.audit (
    id     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text        NOT NULL,
    action text        NOT NULL,
    reason text        NOT NULL,
    detail json
);

INSERT INTO settleonce.outbox_shards (shard) SELECT generate_series(0, 15);
INSERT INTO settleonce.installation (system_identifier, timeline, shards)
SELECT (SELECT system_identifier FROM pg_control_system()),
       ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint, 16;

-- +goose Down
DROP TABLE settleonce.payments, settleonce.open_payments, settleonce.obligation_holds, settleonce.payment_history,
    settleonce.deliveries, settleonce.outbox, settleonce.outbox_relays, settleonce.outbox_shards, settleonce.channel_budgets,
    settleonce.consumed_offsets, settleonce.review_items, settleonce.installation, settleonce.audit;
