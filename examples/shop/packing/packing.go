// Package packing is the warehouse: it makes a task for each accepted order. It
// shows the shortest useful inbox.
package packing

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/examples/shop/order"
)

// Nothing in the table stops a second task of an order: the inbox's marker does.
const table = `CREATE SCHEMA IF NOT EXISTS shop;
CREATE TABLE IF NOT EXISTS shop.packing_tasks (
    n        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    order_id text        NOT NULL,
    sku      text        NOT NULL,
    quantity integer     NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// Migrate makes the table. It may be run again.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, table)
	return err
}

// Pack is the inbox's handler for what was decided about orders.
func Pack(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
	d, err := order.Accepted(m)
	if d == nil || err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO shop.packing_tasks (order_id, sku, quantity) VALUES ($1, $2, $3)", d.Order, d.SKU, d.Quantity)
	return err
}
