package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/payment"
)

// Overview is what the installation looks like as a whole, for gauges.
type Overview struct {
	// Open counts unresolved payments by state, age and queries made.
	Open []OpenCount
	// Outbox counts messages on their way, parked ones included, up to 100,000.
	Outbox, OutboxParked int64
	// OutboxOldest is the age of the oldest message that can be published: neither
	// a parked one counts, nor what waits behind it.
	OutboxOldest time.Duration
	// Suspect says that commits may have been lost, and nobody has acknowledged it.
	Suspect bool
	// Reviews counts open items by kind.
	Reviews map[string]int64
	// UnmatchedCallbacks counts callbacks whose payment is not there, by channel.
	UnmatchedCallbacks map[string]int64
	// Channels holds the budget and breaker of each channel.
	Channels []ChannelOverview
}

// OpenCount is a number of unresolved payments that have something in common.
type OpenCount struct {
	State payment.State
	// Age is the bucket of the time since the claim, like "1m-15m".
	Age string
	// Queries is how many of the burst were made.
	Queries int
	// Waiting is how many of them have their next check before them.
	Waiting int64
	Count   int64
	// Oldest is the greatest age among them.
	Oldest time.Duration
}

// ChannelOverview is the shared row of a channel.
type ChannelOverview struct {
	Channel     string
	Tokens      float64
	BreakerOpen bool
}

// The counts stop at 100,000, so that a question costs the same in a disaster.
const (
	countOpen = `
SELECT p.state, CASE WHEN o.age < interval '1 minute' THEN '0-1m' WHEN o.age < interval '15 minutes' THEN '1m-15m'
         WHEN o.age < interval '1 hour' THEN '15m-1h' WHEN o.age < interval '1 day' THEN '1h-1d' ELSE '1d+' END,
       least(o.queries, 3)::int, count(*) FILTER (WHERE o.next_check_at > clock_timestamp()), count(*),
       extract(epoch FROM max(o.age))::float8
FROM (SELECT payment, queries, next_check_at, clock_timestamp() - opened_at AS age FROM settleonce.open_payments LIMIT 100000) AS o
CROSS JOIN LATERAL (SELECT state FROM settleonce.payments WHERE id = o.payment OFFSET 0) AS p
GROUP BY 1, 2, 3`
	countOutbox = `
SELECT count(*), count(*) FILTER (WHERE parked_reason IS NOT NULL),
       coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE parked_reason IS NULL AND NOT waits)), 0)::float8
FROM (SELECT parked_reason, created_at, coalesce((shard, aggregatetype, aggregateid) IN (
        SELECT shard, aggregatetype, aggregateid FROM settleonce.outbox WHERE parked_reason IS NOT NULL AND aggregateid IS NOT NULL
      ), false) AS waits FROM settleonce.outbox LIMIT 100000) AS o`
	countReviews   = `SELECT kind, count(*) FROM settleonce.review_items WHERE closed_at IS NULL GROUP BY kind`
	countCallbacks = `
SELECT channel, count(*) FROM (SELECT channel FROM settleonce.callbacks WHERE next_check_at IS NOT NULL AND NOT matched LIMIT 100000) AS c
GROUP BY channel`
	countChannels = `SELECT channel, tokens, open_until > clock_timestamp() FROM settleonce.channel_budgets`
	askSuspect    = `SELECT ` + mayHaveLostCommits
)

// Overview asks for the gauges, in one round trip.
func (s *Store) Overview(ctx context.Context) (Overview, error) {
	o := Overview{Reviews: make(map[string]int64), UnmatchedCallbacks: make(map[string]int64)}
	b := &pgx.Batch{}
	queueEach(b, countOpen, o.scanOpen)
	b.Queue(countOutbox).QueryRow(func(row pgx.Row) error {
		var oldest float64
		err := row.Scan(&o.Outbox, &o.OutboxParked, &oldest)
		o.OutboxOldest = seconds(oldest)
		return err
	})
	queueEach(b, countReviews, o.scanReviews)
	queueEach(b, countChannels, o.scanChannel)
	queueEach(b, countCallbacks, o.scanCallbacks)
	b.Queue(askSuspect).QueryRow(func(row pgx.Row) error { return row.Scan(&o.Suspect) })
	if err := s.pool.SendBatch(ctx, b).Close(); err != nil {
		return Overview{}, fmt.Errorf("read the overview: %w", err)
	}
	return o, nil
}

func queueEach(b *pgx.Batch, sql string, scan func(pgx.Rows) error) {
	b.Queue(sql).Query(func(rows pgx.Rows) error {
		return scanEach(rows, func() error { return scan(rows) })
	})
}

func (o *Overview) scanOpen(rows pgx.Rows) error {
	var c OpenCount
	var oldest float64
	err := rows.Scan(&c.State, &c.Age, &c.Queries, &c.Waiting, &c.Count, &oldest)
	c.Oldest = seconds(oldest)
	o.Open = append(o.Open, c)
	return err
}

func (o *Overview) scanReviews(rows pgx.Rows) error {
	var kind string
	var n int64
	err := rows.Scan(&kind, &n)
	o.Reviews[kind] = n
	return err
}

func (o *Overview) scanCallbacks(rows pgx.Rows) error {
	var channel string
	var n int64
	err := rows.Scan(&channel, &n)
	o.UnmatchedCallbacks[channel] = n
	return err
}

func (o *Overview) scanChannel(rows pgx.Rows) error {
	var c ChannelOverview
	err := rows.Scan(&c.Channel, &c.Tokens, &c.BreakerOpen)
	o.Channels = append(o.Channels, c)
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
