-- The outbox of payment commands and of the service's own messages, in the upstream service's own database. It is
-- safe to run again. Columns follow Debezium's outbox convention.
CREATE SCHEMA IF NOT EXISTS settleonce_outbox;

CREATE TABLE IF NOT EXISTS settleonce_outbox.commands (
    seq           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            uuid        NOT NULL,                  -- becomes ce_id: a command's is its payment's id
    aggregatetype text        NOT NULL,                  -- topic, without its prefix
    aggregateid   text        NOT NULL,                  -- Kafka key: a command's is its idempotencyKey
    type          text        NOT NULL,                  -- CloudEvents type
    payload       bytea       NOT NULL,                  -- the command as JSON, in UTF-8 whatever the database's encoding
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    parked_reason text                                   -- cannot be published as it is; a person must look
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
