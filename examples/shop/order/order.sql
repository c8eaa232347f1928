-- The shop's own tables, in the shop's own database. It is safe to run again.
CREATE SCHEMA IF NOT EXISTS shop;

-- What can be sold. The checks make it impossible to sell or to hold what is not there.
CREATE TABLE IF NOT EXISTS shop.stock (
    sku     text    PRIMARY KEY,
    on_hand integer NOT NULL CHECK (on_hand >= 0),               -- in the warehouse, not sold
    held    integer NOT NULL DEFAULT 0 CHECK (held >= 0),        -- of these, promised to orders that are being paid
    sold    integer NOT NULL DEFAULT 0 CHECK (sold >= 0),
    CHECK (held <= on_hand)
);

CREATE TABLE IF NOT EXISTS shop.orders (
    id         text        PRIMARY KEY,
    sku        text        NOT NULL,
    quantity   integer     NOT NULL CHECK (quantity > 0),
    amount     bigint      NOT NULL CHECK (amount > 0),          -- minor units
    currency   text        NOT NULL,
    customer   text        NOT NULL,
    state      text        NOT NULL CHECK (state IN ('open', 'accepted', 'cancelled')),
    reason     text        NOT NULL DEFAULT '',                  -- of a cancellation
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    decided_at timestamptz
);

-- One row per open order: its units are in stock.held. It goes when the order is accepted or cancelled.
CREATE TABLE IF NOT EXISTS shop.holds (
    order_id text        PRIMARY KEY,
    sku      text        NOT NULL,
    quantity integer     NOT NULL,
    since    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row per payment that was asked for: made with the command, in one transaction.
CREATE TABLE IF NOT EXISTS shop.payments (
    key        uuid        PRIMARY KEY,                          -- the idempotencyKey
    order_id   text        NOT NULL,
    state      text        NOT NULL,                             -- open, unknown, review, succeeded, declined, rejected
    code       text        NOT NULL DEFAULT '',
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX IF NOT EXISTS payments_order ON shop.payments (order_id);

-- Money that came for an order which was given up: to be sent back, once, under an id of its own.
CREATE TABLE IF NOT EXISTS shop.refunds (
    id         uuid        PRIMARY KEY,
    payment    uuid        NOT NULL UNIQUE,
    order_id   text        NOT NULL,
    amount     bigint      NOT NULL,
    currency   text        NOT NULL,
    reason     text        NOT NULL,
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a person should know.
CREATE TABLE IF NOT EXISTS shop.alerts (
    n    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    text text        NOT NULL
);
