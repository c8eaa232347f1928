-- The inbox of a downstream service, in that service's own database. It is safe to run again.
CREATE SCHEMA IF NOT EXISTS settleonce_inbox;

-- The markers: what each consumer has applied. Written in the transaction of the effect.
CREATE TABLE IF NOT EXISTS settleonce_inbox.processed (
    consumer text        NOT NULL CHECK (consumer <> ''),
    id       uuid        NOT NULL CHECK (id <> '00000000-0000-0000-0000-000000000000'), -- ce_id
    at       timestamptz NOT NULL,                       -- ce_time: decides how long the marker is kept
    PRIMARY KEY (consumer, id)
);
CREATE INDEX IF NOT EXISTS processed_at ON settleonce_inbox.processed (at);

-- The highest version of each payment's events that was applied: a gap is a loss.
CREATE TABLE IF NOT EXISTS settleonce_inbox.versions (
    consumer text        NOT NULL CHECK (consumer <> ''),
    payment  uuid        NOT NULL,
    version  integer     NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (consumer, payment)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS versions_at ON settleonce_inbox.versions (at);
