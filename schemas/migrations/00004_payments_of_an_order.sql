-- Reading the payments of an order, for the HTTP edge.
--
-- Most payments need nothing here: their obligation is their order, and payments_obligation finds them by it. This index
-- has only those that it does not find: payments whose obligation is finer than the order, and rejected ones, which own no
-- obligation. So it costs the usual payment neither an entry nor a write. Nor does it cost the rest their HOT updates: of the
-- columns it names only obligation_hash ever changes, with a rejection, and that one has an index already. The hash keeps an
-- entry at 16 bytes, however long the names are.

-- +goose NO TRANSACTION

-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS payments_order ON settleonce.payments ((hashtextextended(order_id, hashtextextended(caller, 0))))
    WHERE obligation_hash IS NULL OR obligation <> order_id;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS settleonce.payments_order;
