package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// renewalsPerLease: a lease is renewed long before a third of it is left, and
// one renewal may fail.
const renewalsPerLease = 6

// tendLoop keeps the relay's leases and its share of the shards.
func (r *Relay) tendLoop(ctx context.Context) {
	for failures := 0; ; {
		r.hooks.beforeTend()
		next := r.cfg.Lease / renewalsPerLease
		if err := r.tend(ctx); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
			next = min(next, jitter(backoff(failures)))
			r.stats.databaseErrors.Add(1)
			r.log.Warn().Err(err).Msg("outbox: cannot renew leases")
		}
		if !pause(ctx, next, r.tendSoon) {
			return
		}
	}
}

func (r *Relay) tend(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.share(), errDatabaseSlow)
	defer cancel()
	live, err := r.renew(ctx)
	if err != nil {
		return err
	}
	share := (Shards + live - 1) / live
	if err := r.release(ctx, r.board.shed(share)); err != nil {
		return err
	}
	return r.claim(ctx, share)
}

// renew tells the others that this relay is alive, prolongs its leases, and
// returns how many relays are alive, this one included.
func (r *Relay) renew(ctx context.Context) (live int, err error) {
	asked, kept := r.board.owned(), []int16(nil)
	deadline := time.Now().Add(r.cfg.Lease) // before the database's, which counts from later
	b := &pgx.Batch{}
	b.Queue(heartbeatSQL, r.owner, r.cfg.Lease).Exec(func(commandTag) error { return nil })
	b.Queue(renewSQL, r.owner, asked.shards, asked.epochs, r.cfg.Lease).Query(func(rows pgx.Rows) (err error) {
		kept, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		return err
	})
	b.Queue(liveSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&live) })
	if err := r.cfg.Pool.SendBatch(ctx, b).Close(); err != nil {
		return 0, fmt.Errorf("renew %d leases: %w", len(asked.shards), err)
	}
	if lost := r.board.renewed(asked, kept, deadline); len(lost) > 0 {
		r.stats.lostLeases.Add(uint64(len(lost)))
		r.log.Warn().Interface("shards", lost).Msg("outbox: leases ran out and are lost; was this process stopped, or the database away?")
	}
	return max(live, 1), nil
}

// release gives leases back, so that others need not wait for their end.
func (r *Relay) release(ctx context.Context, free leases) error {
	if len(free.shards) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(releaseSQL, r.owner, free.shards, free.epochs)
	b.Queue(notifySQL, wakeLeases)
	if err := r.cfg.Pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("give %d leases back: %w", len(free.shards), err)
	}
	r.board.remove(free)
	r.log.Info().Interface("shards", free.shards).Msg("outbox: gave shards back")
	return nil
}

// claim leases free shards up to the fair share. The producer epoch comes after
// the lease, never before (model: INITLAST).
func (r *Relay) claim(ctx context.Context, share int) error {
	missing, avoid := r.board.missing(share, time.Now())
	if missing <= 0 {
		return nil
	}
	deadline := time.Now().Add(r.cfg.Lease)
	rows, err := r.cfg.Pool.Query(ctx, claimSQL, r.owner, r.cfg.Lease, missing, avoid)
	if err != nil {
		return fmt.Errorf("lease shards: %w", err)
	}
	var (
		id    int16
		epoch int64
		taken []int16
	)
	var stored *int64
	_, err = pgx.ForEachRow(rows, []any{&id, &epoch, &stored}, func() error {
		taken = append(taken, id)
		r.board.add(id, epoch, stored, deadline)
		stored = nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("lease shards: %w", err)
	}
	if len(taken) > 0 {
		r.log.Info().Interface("shards", taken).Msg("outbox: leased shards")
		r.prepareNow()
	}
	return nil
}

// forget takes this relay, and those that died long ago, off the list of the
// living.
func (r *Relay) forget(ctx context.Context) error {
	if _, err := r.cfg.Pool.Exec(ctx, leaveSQL, r.owner); err != nil {
		return fmt.Errorf("clear the list of relays: %w", err)
	}
	return nil
}

// leave gives everything back at the end of Run; what fails here ends by itself
// with the lease.
func (r *Relay) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.cfg.share(), 5*time.Second))
	defer cancel()
	err := r.release(ctx, r.board.shed(0))
	if err == nil {
		err = r.forget(ctx)
	}
	if err != nil {
		r.log.Warn().Err(err).Msg("outbox: could not give leases back, they run out by themselves")
	}
}
