-- Who may ask for payments: callers, and the keys they show at the HTTP edge. New tables only: nothing in use is locked.

-- +goose Up

-- One row per caller. With callers-from=database, claims compare with it (G12, G15).
CREATE TABLE settleonce.callers (
    name             text             PRIMARY KEY CHECK (name <> ''),
    namespace        text             NOT NULL CHECK (namespace <> ''), -- of its obligations; several callers may share one
    rate             double precision NOT NULL CHECK (rate >= 0),       -- requests per second and edge process; 0: no limit
    burst            integer          NOT NULL CHECK (burst >= 0),
    require_issued_at boolean         NOT NULL DEFAULT false,
    grace_until      timestamptz,                                       -- until when the edge makes up missing keys; null: never
    created_at       timestamptz      NOT NULL DEFAULT clock_timestamp(),
    revoked_at       timestamptz                                        -- shut out: no key counts, and no command from Kafka
);

-- The keys. Only the hash of the secret part is here.
CREATE TABLE settleonce.caller_keys (
    id         text        PRIMARY KEY CHECK (id <> ''),                -- the public part of the key, for look-up
    caller     text        NOT NULL REFERENCES settleonce.callers (name),
    credential text        NOT NULL CHECK (credential <> ''),           -- several credentials may be one caller
    hash       bytea       NOT NULL CHECK (octet_length(hash) = 32),    -- SHA-256 of the secret part
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,                                             -- null: until it is rotated or revoked
    revoked_at timestamptz
);
CREATE INDEX caller_keys_caller ON settleonce.caller_keys (caller);

-- +goose Down
DROP TABLE settleonce.caller_keys, settleonce.callers;
