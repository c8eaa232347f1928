package order

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
)

// abandoned is true for an open order whose payments have all ended without
// money: it waits for its customer to try again. A payment that was refused
// because the order is paid already, or that was not judged, is not an end: money
// is on its way, or may be.
const abandoned = `o.state = 'open' AND NOT EXISTS (SELECT FROM shop.payments p WHERE p.order_id = o.id AND (
	p.state NOT IN ('declined', 'rejected') OR p.code = 'OBLIGATION_ALREADY_PAID' OR p.changed_at > clock_timestamp() - $1::interval))`

// overdueSQL finds payments that have been with people for too long. Each is told once.
const overdueSQL = `WITH late AS (UPDATE shop.payments SET code = 'OVERDUE'
	WHERE state = 'review' AND code <> 'OVERDUE' AND changed_at < clock_timestamp() - $1::interval RETURNING key, order_id)
	INSERT INTO shop.alerts (text) SELECT format('payment %s of order %s has had no outcome for too long; its stock is held', key, order_id) FROM late`

// Watch looks after orders that nothing else moves, until ctx ends: it cancels
// what was abandoned for longer than patience, and raises an alert about payments
// that were in review for longer than reviewAge.
func (d *Desk) Watch(ctx context.Context, patience, reviewAge time.Duration, log zerolog.Logger) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.look(ctx, patience, reviewAge); err != nil && ctx.Err() == nil {
			log.Warn().Err(err).Msg("orders not looked after, trying again")
		}
	}
}

func (d *Desk) look(ctx context.Context, patience, reviewAge time.Duration) error {
	if _, err := d.pool.Exec(ctx, overdueSQL, reviewAge); err != nil {
		return err
	}
	rows, err := d.pool.Query(ctx, "SELECT o.id FROM shop.orders o WHERE "+abandoned+" ORDER BY o.created_at LIMIT 100", patience)
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := d.abandon(ctx, id, patience); err != nil {
			return err
		}
	}
	return nil
}

// abandon looks again under the order's lock: the customer may have pressed the
// button in between.
func (d *Desk) abandon(ctx context.Context, id string, patience time.Duration) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		o, _, err := lock(ctx, tx, id)
		if err != nil {
			return err
		}
		var still bool
		err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM shop.orders o WHERE "+abandoned+" AND o.id = $2)", patience, id).Scan(&still)
		if err != nil || !still {
			return err
		}
		return cancel(ctx, tx, o, "not paid: abandoned")
	})
}
