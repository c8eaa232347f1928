-- What the downstream service of the torture run has done. Nothing here stops a second application or a wrong order:
-- the inbox does.
CREATE SCHEMA IF NOT EXISTS downstream;

-- The effect: what is believed of each payment. The last event that is applied wins.
CREATE TABLE IF NOT EXISTS downstream.payments (
    payment uuid    PRIMARY KEY,
    state   text    NOT NULL,
    version integer NOT NULL,
    event   uuid    NOT NULL,
    times   integer NOT NULL -- how many events were applied to it
);

-- Every application, in the order of each payment, written in the transaction of the effect.
CREATE TABLE IF NOT EXISTS downstream.applied (
    n       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event   uuid        NOT NULL,
    payment uuid        NOT NULL,
    version integer     NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
