package order

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/payment"
	"github.com/settleonce/settleonce/producer"
)

// Hear returns the inbox's handler for payment.events and payment.replies: it writes
// down what became of a payment of the caller's and decides about its order. The two topics
// arrive in any order, and so do the payments of one order; every decision is made
// under the order's row lock from what all its payments have come to.
func Hear(caller string) inbox.Handler {
	return func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		news, err := read(m)
		if err != nil || news.caller != caller {
			return err
		}
		return news.apply(ctx, tx)
	}
}

// news is what a message says about one payment.
type news struct {
	caller string
	key    uuid.UUID
	id     uuid.UUID // of the payment
	state  string    // empty: nothing changes
	code   string
	alert  string
}

func read(m *inbox.Message) (news, error) {
	if strings.HasPrefix(m.Type, "payment.reply.") {
		return readReply(m)
	}
	return readEvent(m)
}

func readEvent(m *inbox.Message) (news, error) {
	e, err := m.Event()
	if err != nil {
		return news{}, err
	}
	n := news{caller: e.Caller, key: e.IdempotencyKey, id: e.PaymentID, code: e.Cause}
	switch payment.EventType(m.Type) {
	case payment.EventSucceeded:
		n.state = paid
	case payment.EventDeclined:
		n.state = declined
	case payment.EventRejected:
		n.state = refused(payment.Code(e.Cause))
	case payment.EventUnknown:
		n.state = unknown
	case payment.EventReviewRequired:
		n.state = review
	case payment.EventEvidenceConflict:
		n.alert = "contradicting evidence about payment " + e.PaymentID.String() + ": see the payment operators' review list"
	case payment.EventAccepted:
	}
	return n, nil
}

func readReply(m *inbox.Message) (news, error) {
	r, err := m.Reply()
	if err != nil {
		return news{}, err
	}
	n := news{caller: r.Caller, key: r.IdempotencyKey, id: r.PaymentID, code: string(r.Code)}
	switch r.Kind {
	case payment.ReplyRejected:
		n.state = refused(r.Code)
	case payment.ReplyConflict:
		n.alert = "the key " + r.IdempotencyKey.String() + " was used for two different payments"
	case payment.ReplyAccepted, payment.ReplyPending, payment.ReplyOutcome, payment.ReplyReplayed:
		// The events say the same, and once.
	}
	return n, nil
}

// refused is the state of a payment that was refused. One that was too old was not
// judged (G14), whether the claim says so or, after a wait for its channel, an event.
func refused(code payment.Code) string {
	if code == payment.CodeStaleCommand {
		return notJudged
	}
	return rejected
}

// The states of a payment, as the shop sees them.
const (
	open      = "open"
	unknown   = "unknown"
	review    = "review"
	paid      = "succeeded"
	declined  = "declined"
	rejected  = "rejected"
	notJudged = "not_judged" // stale: an earlier delivery may have settled, so it is as open as ever
)

// apply writes the news down and decides.
func (n news) apply(ctx context.Context, tx pgx.Tx) error {
	if n.alert != "" {
		if err := alert(ctx, tx, n.alert); err != nil {
			return err
		}
	}
	if n.state == "" {
		return nil
	}
	var id string
	err := tx.QueryRow(ctx, "SELECT order_id FROM shop.payments WHERE key = $1", n.key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return alert(ctx, tx, fmt.Sprintf("payment %s (%s) is not one that the shop asked for", n.id, n.state))
	}
	if err != nil {
		return err
	}
	o, state, err := lock(ctx, tx, id)
	if err != nil {
		return err
	}
	// An end is an end: an older message that comes late changes nothing.
	tag, err := tx.Exec(ctx, `UPDATE shop.payments SET state = $2, code = $3, changed_at = clock_timestamp()
		WHERE key = $1 AND state NOT IN ('succeeded', 'declined', 'rejected') AND state <> $2`, n.key, n.state, n.code)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	switch n.state {
	case paid:
		return n.settle(ctx, tx, o, state)
	case declined, rejected:
		return release(ctx, tx, o, state, n.code)
	default:
		return nil // unknown, review: the hold is kept until there is evidence (P6)
	}
}

// settle accepts an open order: its units are sold. Money for an order that was
// given up, or accepted with another payment, is sent back (P20).
func (n news) settle(ctx context.Context, tx pgx.Tx, o Order, state string) error {
	if state != stateOpen {
		return n.refund(ctx, tx, o, "the order was "+state+" when the money came")
	}
	batch := &pgx.Batch{}
	batch.Queue("UPDATE shop.stock SET on_hand = on_hand - $2, held = held - $2, sold = sold + $2 WHERE sku = $1", o.SKU, o.Quantity)
	batch.Queue("DELETE FROM shop.holds WHERE order_id = $1", o.ID)
	batch.Queue("UPDATE shop.orders SET state = 'accepted', decided_at = clock_timestamp() WHERE id = $1", o.ID)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("accept order: %w", err)
	}
	return tell(ctx, tx, TypeAccepted, o, "", uuid.Nil)
}

// refund asks for the money to be sent back, under an id that follows from the
// payment, so that it is asked for once.
func (n news) refund(ctx context.Context, tx pgx.Tx, o Order, reason string) error {
	id := uuid.NewSHA1(n.id, []byte("refund"))
	if _, err := tx.Exec(ctx, `INSERT INTO shop.refunds (id, payment, order_id, amount, currency, reason) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, n.id, o.ID, o.Amount, o.Currency, reason); err != nil {
		return fmt.Errorf("store refund: %w", err)
	}
	if err := alert(ctx, tx, "refund "+id.String()+" for order "+o.ID+": "+reason); err != nil {
		return err
	}
	return tell(ctx, tx, TypeRefund, o, reason, id)
}

// release cancels an order whose payment was declined or refused, unless another
// payment of it is open or succeeded. A payment that was refused because of
// another one, or of its age, says nothing about the order and releases nothing.
func release(ctx context.Context, tx pgx.Tx, o Order, state, code string) error {
	why := payment.Code(code)
	if state != stateOpen || why == payment.CodePriorAttemptUnresolved || why == payment.CodeObligationAlreadyPaid {
		return nil
	}
	var others bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM shop.payments WHERE order_id = $1 AND state NOT IN ('declined', 'rejected'))`, o.ID).Scan(&others)
	if err != nil || others {
		return err
	}
	return cancel(ctx, tx, o, "not paid: "+code)
}

// cancel gives the units back and tells everybody.
func cancel(ctx context.Context, tx pgx.Tx, o Order, reason string) error {
	batch := &pgx.Batch{}
	batch.Queue("UPDATE shop.stock SET held = held - $2 WHERE sku = $1", o.SKU, o.Quantity)
	batch.Queue("DELETE FROM shop.holds WHERE order_id = $1", o.ID)
	batch.Queue("UPDATE shop.orders SET state = 'cancelled', reason = $2, decided_at = clock_timestamp() WHERE id = $1", o.ID, reason)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("cancel order: %w", err)
	}
	return tell(ctx, tx, TypeCancelled, o, reason, uuid.Nil)
}

// tell puts a decision into the shop's outbox. Its id follows from the order and
// the decision, each of which there is once.
func tell(ctx context.Context, tx pgx.Tx, kind string, o Order, reason string, refund uuid.UUID) error {
	payload, err := json.Marshal(Decision{
		Order: o.ID, Customer: o.Customer, SKU: o.SKU, Quantity: o.Quantity, Reason: reason, Refund: refund, At: time.Now().UTC(),
	})
	if err != nil {
		return fmt.Errorf("write decision: %w", err)
	}
	id := uuid.NewSHA1(namespace, []byte(kind+" "+o.ID+" "+refund.String()))
	return producer.EnqueueMessageTx(ctx, tx, producer.Message{ID: id, Topic: Topic, Key: o.ID, Type: kind, Payload: payload})
}

// namespace of the ids that the shop derives.
var namespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://github.com/settleonce/settleonce/examples/shop"))

func alert(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Exec(ctx, "INSERT INTO shop.alerts (text) VALUES ($1)", text)
	return err
}
