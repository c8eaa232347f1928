-- What providers tell us (callbacks), verified by the edge and matched by the reconciler.
-- New tables, and one constraint of a small table that is widened without looking at its rows.

-- +goose Up

-- One row per notification of a provider, stored before it is acknowledged and kept as long as keys are. The truth about
-- what is still to be done is next_check_at; the topic payment.callbacks only wakes up.
CREATE TABLE settleonce.callbacks (
    channel            text        NOT NULL CHECK (channel <> ''),
    callback_id        text        NOT NULL CHECK (callback_id <> ''), -- the provider's: a repeat is no second row
    kind               text        NOT NULL CHECK (kind IN ('succeeded', 'declined', 'refunded', 'disputed', 'other')),
    payment            uuid,                                -- ours, as the provider repeats it, or as it was found
    provider_key       uuid,
    provider_reference text,
    amount             bigint,
    currency           text,
    cause              text,
    occurred_at        timestamptz,                         -- by the provider's clock
    body               bytea       NOT NULL,                -- as it came in
    received_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_check_at      timestamptz,                         -- null: done with
    tries              integer     NOT NULL DEFAULT 0,
    matched            boolean     NOT NULL DEFAULT false,  -- its payment was found
    result             text,                                -- what it came to so far
    processed_at       timestamptz,                         -- the marker: set in the transaction of the effect
    PRIMARY KEY (channel, callback_id),
    CHECK (provider_key IS NOT NULL OR provider_reference IS NOT NULL),
    CHECK ((next_check_at IS NULL) = (processed_at IS NOT NULL))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX callbacks_due ON settleonce.callbacks (next_check_at) WHERE next_check_at IS NOT NULL;
CREATE INDEX callbacks_received ON settleonce.callbacks (received_at);

-- Other names by which a provider knows a payment, for callbacks that repeat nothing of ours: the references of payments
-- that were brought in, and of channels whose callbacks need it. Nothing is written here for any other payment.
CREATE TABLE settleonce.provider_references (
    channel   text NOT NULL,
    reference text NOT NULL,
    payment   uuid NOT NULL,
    PRIMARY KEY (channel, reference)
);
CREATE INDEX provider_references_payment ON settleonce.provider_references (payment);

-- A callback that matches nothing for hours is a thing for a person, although there is no payment: its item carries an
-- id derived from channel and callback instead. New rows are checked; the old ones passed a stricter rule.
ALTER TABLE settleonce.review_items DROP CONSTRAINT review_items_kind_check;
ALTER TABLE settleonce.review_items ADD CONSTRAINT review_items_kind_check
    CHECK (kind IN ('unresolved', 'conflict', 'imported', 'callback')) NOT VALID;

-- +goose Down
DELETE FROM settleonce.review_items WHERE kind = 'callback';
ALTER TABLE settleonce.review_items DROP CONSTRAINT review_items_kind_check;
ALTER TABLE settleonce.review_items ADD CONSTRAINT review_items_kind_check
    CHECK (kind IN ('unresolved', 'conflict', 'imported'));
DROP TABLE settleonce.provider_references, settleonce.callbacks;
