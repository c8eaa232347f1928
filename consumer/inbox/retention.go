package inbox

import (
	"context"
	"time"
)

const (
	cleanEvery = 10 * time.Minute
	cleanBatch = 2000
	// cleanMargin keeps a marker a little longer than a message without one is
	// handled, so that no clock can put the two in the wrong order.
	cleanMargin = time.Hour
)

// Markers go in small batches. A long transaction that was begun before the
// deletion judges age by its own, earlier now, and the margin covers it.
const (
	forgetMarksSQL = `DELETE FROM settleonce_inbox.processed WHERE ctid = ANY (ARRAY(
SELECT ctid FROM settleonce_inbox.processed WHERE at < now() - $1::interval AND consumer = $2 LIMIT $3))`
	forgetVersionsSQL = `DELETE FROM settleonce_inbox.versions WHERE ctid = ANY (ARRAY(
SELECT ctid FROM settleonce_inbox.versions WHERE at < now() - $1::interval AND consumer = $2 LIMIT $3))`
)

// clean removes what nothing can bring back, now and then.
func (in *Inbox) clean(ctx context.Context) {
	ticker := time.NewTicker(cleanEvery)
	defer ticker.Stop()
	for {
		if err := in.forget(ctx); err != nil && ctx.Err() == nil {
			in.log.Warn().Err(err).Msg("old markers not removed, trying again later")
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (in *Inbox) forget(ctx context.Context) error {
	for _, sql := range []string{forgetMarksSQL, forgetVersionsSQL} {
		for removed := int64(cleanBatch); removed == cleanBatch && ctx.Err() == nil; {
			tag, err := in.cfg.Pool.Exec(ctx, sql, in.cfg.Retention+cleanMargin, in.cfg.Name, cleanBatch)
			if err != nil {
				return err
			}
			removed = tag.RowsAffected()
		}
	}
	return nil
}
