-- Attempts after the first, which only an operator opens (G1, G11).

-- +goose Up

-- One row per attempt that was closed by the next one: its provider key, so that a late callback or a line of a settlement
-- file finds its payment, and what showed that it was dead. The current attempt is in payments and open_payments.
CREATE TABLE settleonce.attempts (
    payment       uuid        NOT NULL,
    attempt       smallint    NOT NULL CHECK (attempt >= 1),
    provider_key  uuid        NOT NULL,
    sends         smallint    NOT NULL,                  -- permits that may have been sent
    first_send_at timestamptz,
    last_deadline timestamptz,
    evidence      text        NOT NULL,                  -- what the provider said when it was asked last
    actor         text        NOT NULL,
    reason        text        NOT NULL,
    closed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (payment, attempt)
);
CREATE INDEX attempts_provider_key ON settleonce.attempts (provider_key);
CREATE INDEX attempts_closed ON settleonce.attempts (closed_at);

-- Success of an earlier attempt that was heard while a later one may have been sent: the payment can only end succeeded
-- then, when the later one is resolved. Both columns are null on add: no row is rewritten.
ALTER TABLE settleonce.open_payments ADD COLUMN paid_attempt smallint, ADD COLUMN paid_reference text;

-- +goose Down
ALTER TABLE settleonce.open_payments DROP COLUMN paid_attempt, DROP COLUMN paid_reference;
DROP TABLE settleonce.attempts;
