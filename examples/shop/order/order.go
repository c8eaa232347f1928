// Package order is the shop's heart: orders, the stock they hold while they are
// being paid, and what a payment's end means for them.
//
// An order and the command to pay for it are written in one transaction, so there
// is never one without the other. Stock is held from that moment. Success
// accepts the order and sells the units; an explicit decline gives them back; an
// unknown outcome keeps them: freeing the stock of an order that turns out to be
// paid would sell it twice.
package order

import (
	"context"
	_ "embed" // for order.sql
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/producer"
)

//go:embed order.sql
var tables string

const (
	// Caller is who the shop is for settleonce, unless it is told another name. That is
	// also the namespace of its obligations, which must be set to "repay: named".
	Caller = "shop"
	// Topic carries what was decided about orders, to packing and receipts.
	Topic = "shop.orders"
)

// The types of the messages on Topic.
const (
	TypeAccepted  = "order.accepted"
	TypeCancelled = "order.cancelled"
	TypeRefund    = "order.refund_requested"
)

// The errors of a customer's requests.
var (
	// ErrSoldOut says that fewer units are free than were asked for.
	ErrSoldOut = errors.New("sold out")
	// ErrNotOpen says that the order was accepted or cancelled before.
	ErrNotOpen = errors.New("the order is not open any more")
	// ErrNotFound says that there is no such order.
	ErrNotFound = errors.New("there is no such order")
)

// Desk takes orders.
type Desk struct {
	pool            *pgxpool.Pool
	caller, channel string
}

// NewDesk returns a desk that keeps its orders in pool and has them paid through
// the channel, in the caller's name.
func NewDesk(pool *pgxpool.Pool, caller, channel string) *Desk {
	return &Desk{pool: pool, caller: caller, channel: channel}
}

// Migrate makes the shop's tables. It may be run again.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(3141592653)"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, tables)
		return err
	})
}

// Stock brings units into the warehouse.
func (d *Desk) Stock(ctx context.Context, sku string, units int) error {
	_, err := d.pool.Exec(ctx, `INSERT INTO shop.stock AS s (sku, on_hand) VALUES ($1, $2)
		ON CONFLICT (sku) DO UPDATE SET on_hand = s.on_hand + EXCLUDED.on_hand`, sku, units)
	return err
}

// Order is what a customer wants.
type Order struct {
	ID       string `json:"id"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	// Amount is in minor units of Currency.
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	Customer      string `json:"customer"`
	PaymentMethod string `json:"paymentMethod"`
	// Metadata is handed to the payment's channel. Defaults to none.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Place stores the order, holds its stock and asks for its payment, all or
// nothing. It returns the payment's key. ErrSoldOut leaves nothing behind. An order that
// is there already, since its customer did not hear of it, stays as it is.
func (d *Desk) Place(ctx context.Context, o Order) (key uuid.UUID, err error) {
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO shop.orders (id, sku, quantity, amount, currency, customer, state) VALUES ($1, $2, $3, $4, $5, $6, 'open')
			ON CONFLICT (id) DO NOTHING`, o.ID, o.SKU, o.Quantity, o.Amount, o.Currency, o.Customer)
		if err != nil {
			return fmt.Errorf("store order: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return tx.QueryRow(ctx, "SELECT key FROM shop.payments WHERE order_id = $1 ORDER BY asked_at LIMIT 1", o.ID).Scan(&key)
		}
		tag, err = tx.Exec(ctx, "UPDATE shop.stock SET held = held + $2 WHERE sku = $1 AND on_hand - held >= $2", o.SKU, o.Quantity)
		if err != nil {
			return fmt.Errorf("hold stock: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return ErrSoldOut
		}
		if _, err := tx.Exec(ctx, "INSERT INTO shop.holds (order_id, sku, quantity) VALUES ($1, $2, $3)", o.ID, o.SKU, o.Quantity); err != nil {
			return fmt.Errorf("hold stock: %w", err)
		}
		key, err = d.ask(ctx, tx, o)
		return err
	})
	return key, err
}

// PayAgain asks for the payment of an open order once more, under a new key: the
// customer has pressed the button again, perhaps with another card. While the
// first payment has no outcome, or if it succeeded, settleonce refuses the second.
func (d *Desk) PayAgain(ctx context.Context, id, paymentMethod string) (key uuid.UUID, err error) {
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		o, state, err := lock(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case state != stateOpen:
			return ErrNotOpen
		}
		o.PaymentMethod = paymentMethod
		key, err = d.ask(ctx, tx, o)
		return err
	})
	return key, err
}

// ask makes the command and puts it into the outbox, beside the row that will
// know its answer.
func (d *Desk) ask(ctx context.Context, tx pgx.Tx, o Order) (uuid.UUID, error) {
	command, err := producer.NewCommand(producer.Intent{
		Caller: d.caller, OrderID: o.ID, Amount: o.Amount, Currency: o.Currency, CustomerID: o.Customer,
		PaymentMethod: o.PaymentMethod, Channel: d.channel, Metadata: o.Metadata,
	})
	if err != nil {
		return uuid.Nil, err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO shop.payments (key, order_id, state) VALUES ($1, $2, 'open')", command.IdempotencyKey, o.ID); err != nil {
		return uuid.Nil, fmt.Errorf("store payment: %w", err)
	}
	return command.IdempotencyKey, producer.EnqueueTx(ctx, tx, command)
}

// GiveUp cancels an open order at the customer's wish and frees its stock. Its
// payments may still succeed; the money is sent back then.
func (d *Desk) GiveUp(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		o, state, err := lock(ctx, tx, id)
		switch {
		case err != nil:
			return err
		case state != stateOpen:
			return ErrNotOpen
		}
		return cancel(ctx, tx, o, "given up by the customer")
	})
}

// The states of an order.
const (
	stateOpen      = "open"
	stateAccepted  = "accepted"
	stateCancelled = "cancelled"
)

// lock reads an order under its row lock, which everything that decides about it
// takes first.
func lock(ctx context.Context, tx pgx.Tx, id string) (o Order, state string, err error) {
	err = tx.QueryRow(ctx, "SELECT id, sku, quantity, amount, currency, customer, state FROM shop.orders WHERE id = $1 FOR UPDATE", id).
		Scan(&o.ID, &o.SKU, &o.Quantity, &o.Amount, &o.Currency, &o.Customer, &state)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, "", ErrNotFound
	}
	return o, state, err
}

// Decision is the payload of a message on Topic.
type Decision struct {
	Order    string    `json:"order"`
	Customer string    `json:"customer"`
	SKU      string    `json:"sku"`
	Quantity int       `json:"quantity"`
	Reason   string    `json:"reason,omitempty"`
	Refund   uuid.UUID `json:"refund,omitzero"`
	At       time.Time `json:"at"`
}

// Accepted reads the decision of a message on Topic that accepts an order; nil for
// any other message. The error, which a handler can return as it is, makes the
// message a dead letter.
func Accepted(m *inbox.Message) (*Decision, error) {
	if m.Type != TypeAccepted {
		return nil, nil //nolint:nilnil // as the name says
	}
	var d Decision
	if err := json.Unmarshal(m.Value, &d); err != nil {
		return nil, inbox.Poison(err)
	}
	return &d, nil
}
