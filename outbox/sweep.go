package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// sweepShare bounds what sweeping costs: the pause after one is at least this
// many times as long as it took.
const sweepShare = 20

// sweepLoop looks through all of the table now and then, because the low-water
// marks of ordinary reads pass rows that are parked, and those that wait behind
// them, and must come back once they are repaired (B4). It also finds what no
// insert of ours leaves behind: rows with a sequence of their own.
func (r *Relay) sweepLoop(ctx context.Context) {
	next := r.cfg.Sweep
	for pause(ctx, next, nil) {
		start := time.Now()
		if err := r.sweep(ctx); err != nil && ctx.Err() == nil {
			r.stats.databaseErrors.Add(1)
			r.log.Warn().Err(err).Msg("outbox: cannot look for late rows")
		}
		next = max(r.cfg.Sweep, sweepShare*time.Since(start))
	}
}

// sweep has no deadline of its own: after hours with an old snapshot it has much
// to wade through, and it must come to its end.
func (r *Relay) sweep(ctx context.Context) error {
	owned := r.board.owned()
	if len(owned.shards) == 0 {
		return nil
	}
	found := make(map[int16]*swept, len(owned.shards))
	for _, id := range owned.shards {
		found[id] = &swept{first: -1}
	}
	b := &pgx.Batch{}
	b.Queue(planSQL, "off").Exec(func(commandTag) error { return nil })
	b.Queue(parkedSQL).Query(eachRow(func(id int16, seq int64) {
		if s := found[id]; s != nil {
			s.parked = append(s.parked, seq)
		}
	}))
	b.Queue(sweepSQL, owned.shards, make([]int64, len(owned.shards))).Query(eachRow(func(id int16, seq int64) {
		found[id].first = seq
	}))
	if err := r.cfg.Pool.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("sweep %d shards: %w", len(owned.shards), err)
	}
	if r.board.sweep(found) {
		r.Wake()
	}
	r.stats.sweeps.Add(1)
	return nil
}

func eachRow(visit func(id int16, seq int64)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id int16
		var seq int64
		_, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
			visit(id, seq)
			return nil
		})
		return err
	}
}

// listenLoop turns the database's wake-ups into the relay's. They are hints: on
// a connection that died silently, or behind a pooler, the poll still finds
// everything.
func (r *Relay) listenLoop(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		heard, err := r.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if heard {
			failures = 0
		}
		failures++
		if failures == 1 {
			r.log.Warn().Err(err).Msg("outbox: lost the connection for wake-ups, polling until it is back")
		}
		pause(ctx, jitter(backoff(failures)), nil)
	}
}

const (
	listenPing = 15 * time.Second
	pingLimit  = 5 * time.Second
)

// listen reports whether it ever worked.
func (r *Relay) listen(ctx context.Context) (heard bool, err error) {
	conn, err := pgx.ConnectConfig(ctx, r.cfg.Pool.Config().ConnConfig)
	if err != nil {
		return false, fmt.Errorf("connect: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx) // nothing depends on a polite goodbye
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel); err != nil {
		return false, fmt.Errorf("listen: %w", err)
	}
	r.Wake() // what was announced while nobody listened
	for {
		if err := r.hear(ctx, conn); err != nil {
			return true, err
		}
	}
}

// hear waits for one wake-up, and sees to it that the connection is alive when
// there is none for a while.
func (r *Relay) hear(ctx context.Context, conn *pgx.Conn) error {
	waiting, cancel := context.WithTimeout(ctx, listenPing)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		r.heard(n)
		return nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !conn.IsClosed():
		ping, cancel := context.WithTimeout(ctx, pingLimit)
		defer cancel()
		return conn.Ping(ping)
	default:
		return fmt.Errorf("wait for a wake-up: %w", err)
	}
}

func (r *Relay) heard(n *pgconn.Notification) {
	if n.Payload == wakeLeases {
		r.tendNow()
		return
	}
	r.Wake()
}
