-- What teams bring in when they adopt settleonce (docs/adoption.md), and which binaries may run on this schema.

-- +goose Up

-- One row per source that was ever brought in: where an interrupted run goes on. It is written in the transaction of
-- each batch, so it is never ahead of what was taken, nor behind it.
CREATE TABLE settleonce.backfills (
    source       text        PRIMARY KEY CHECK (source <> ''),
    position     text        NOT NULL DEFAULT '',  -- the last row read, as its source counts; '' is its beginning
    content      text        NOT NULL DEFAULT '',  -- which content the position is of: another file begins anew
    read_rows    bigint      NOT NULL DEFAULT 0,   -- counts of this pass; what was not refused was taken
    refused_rows bigint      NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz                       -- of this pass; null: interrupted, or running
);

-- The oldest binary, by the newest migration it knows, that may run on this schema. A migration that older binaries
-- cannot live with raises it; one that only adds leaves it.
ALTER TABLE settleonce.installation ADD COLUMN oldest_binary bigint NOT NULL DEFAULT 1;

-- +goose Down
ALTER TABLE settleonce.installation DROP COLUMN oldest_binary;
DROP TABLE settleonce.backfills;
