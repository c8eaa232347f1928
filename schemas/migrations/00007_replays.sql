-- What operators do with records that are in Kafka already. New tables only: nothing in use is locked.

-- +goose Up

-- One row per replay of records into their own topic: what was asked for, and how far it came, so that it can be stopped
-- and gone on with.
CREATE TABLE settleonce.replays (
    id         uuid        PRIMARY KEY,                  -- also the header settleonce_replay of what was published
    topic      text        NOT NULL,
    selection  json        NOT NULL,                     -- as it was asked for
    positions  json        NOT NULL,                     -- per partition: the offset to go on from, and where to end
    published  bigint      NOT NULL DEFAULT 0,
    state      text        NOT NULL CHECK (state IN ('running', 'stopped', 'done')),
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    begun_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per dead letter that a person has dealt with. The record itself stays in the topic for as long as that keeps it.
CREATE TABLE settleonce.dead_letters (
    topic       text        NOT NULL,                    -- the dead-letter topic
    partition   integer     NOT NULL,
    "offset"    bigint      NOT NULL,
    state       text        NOT NULL CHECK (state IN ('redriving', 'redriven', 'discarded')),
    edited      boolean     NOT NULL DEFAULT false,
    original    bytea,                                   -- of an edited one
    replacement bytea,                                   -- what was published in its place
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, partition, "offset")
);

-- +goose Down
DROP TABLE settleonce.dead_letters, settleonce.replays;
