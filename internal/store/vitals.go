package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Vitals are what the database knows about how the installation runs, beyond the
// gauges of Overview.
type Vitals struct {
	// ServerVersion is Postgres' own number, as in 150004 for 15.4.
	ServerVersion int
	// Clock is the database's.
	Clock time.Time
	// Connections are in use of MaxConnections.
	Connections, MaxConnections int
	// Overdue counts checks of unresolved payments that nobody made in time, up to
	// 100,000; OverdueBy is how late the latest is.
	Overdue   int64
	OverdueBy time.Duration
	// Relays are alive; Unowned shards of the outbox have no relay.
	Relays, Unowned int
	// Replays are under way or were interrupted without a word; Letters are dead
	// letters whose redrive was.
	Replays, Letters int64
}

// overdueAfter is how late a check must be before it counts: the sweep finds them
// within a second.
const overdueAfter = time.Minute

const (
	askServer = `SELECT current_setting('server_version_num')::int, clock_timestamp(), (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend'),
		current_setting('max_connections')::int`
	askOverdue = `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(next_check_at)), 0)::float8 FROM (
		SELECT next_check_at FROM settleonce.open_payments WHERE next_check_at < clock_timestamp() - $1::interval AND lease_until < clock_timestamp() LIMIT 100000) AS o`
	askRelays = `SELECT (SELECT count(*)::int FROM settleonce.outbox_relays WHERE alive_until > clock_timestamp()),
		(SELECT count(*)::int FROM settleonce.outbox_shards WHERE lease_until < clock_timestamp())`
	askInterrupted = `SELECT (SELECT count(*) FROM settleonce.replays WHERE state = 'running' AND updated_at < clock_timestamp() - interval '5 minutes'),
		(SELECT count(*) FROM settleonce.dead_letters WHERE state = 'redriving' AND at < clock_timestamp() - interval '5 minutes')`
)

// Vitals asks for them, in one round trip.
func (s *Store) Vitals(ctx context.Context) (Vitals, error) {
	var v Vitals
	var late float64
	b := &pgx.Batch{}
	b.Queue(askServer).QueryRow(func(row pgx.Row) error {
		return row.Scan(&v.ServerVersion, &v.Clock, &v.Connections, &v.MaxConnections)
	})
	b.Queue(askOverdue, overdueAfter).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Overdue, &late) })
	b.Queue(askRelays).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Relays, &v.Unowned) })
	b.Queue(askInterrupted).QueryRow(func(row pgx.Row) error { return row.Scan(&v.Replays, &v.Letters) })
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return Vitals{}, fmt.Errorf("read the vitals: %w", err)
	}
	v.OverdueBy = seconds(late)
	return v, nil
}
