package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// QueryPolicy bounds re-queries of a channel over all instances (G13).
type QueryPolicy struct {
	// Share of the channel's recent submissions that may be queried. Defaults to 0.2.
	Share float64
	// Floor is the queries per second that are always allowed. Defaults to 5.
	Floor float64
	// RateLimit is the channel's, in requests per second: queries count as well as
	// sends. 0: it has none.
	RateLimit float64
}

// WithDefaults returns a copy with unset fields set.
func (p QueryPolicy) WithDefaults() QueryPolicy {
	if p.Share == 0 {
		p.Share = 0.2
	}
	if p.Floor == 0 {
		p.Floor = 5
	}
	return p
}

// Validate reports the first setting that must be changed.
func (p QueryPolicy) Validate() error {
	switch {
	case p.Share < 0 || p.Share > 1:
		return fmt.Errorf("set the query share between 0 and 1, not %g", p.Share)
	case p.Floor <= 0:
		return fmt.Errorf("set the query floor above 0 per second, not %g: with none, nothing would be resolved once submissions stop", p.Floor)
	}
	return nil
}

// Budget is a channel's row: its query tokens, its recent submissions, its
// breaker. All instances share it; only methods on a locked row change it.
type Budget struct {
	Tokens                         float64
	RefilledAt                     time.Time
	WindowStart                    time.Time
	WindowSubmits, PreviousSubmits int64
	SubmitTokens                   float64
	SubmitsRefilledAt              time.Time
	Failures                       int
	OpenUntil                      time.Time
	OpenReason                     string
	OpenedCount                    int
}

// budgetWindow is the time over which submissions count as recent.
const budgetWindow = 10 * time.Second

// recent is the submissions per second over about the last window: the current
// count, and of the previous window the part that still overlaps.
func (b *Budget) recent(now time.Time) float64 {
	age := now.Sub(b.WindowStart)
	switch {
	case age >= 2*budgetWindow:
		return 0
	case age >= budgetWindow:
		return float64(b.WindowSubmits) * (1 - (age-budgetWindow).Seconds()/budgetWindow.Seconds()) / budgetWindow.Seconds()
	}
	overlap := 1 - age.Seconds()/budgetWindow.Seconds()
	return (float64(b.PreviousSubmits)*overlap + float64(b.WindowSubmits)) / budgetWindow.Seconds()
}

// setBack takes out of the future what a clock that was set back has left there:
// submissions would count many times over (G13), and an open breaker would stay open
// until the clock is there again.
func (b *Budget) setBack(now time.Time) {
	if now.Before(b.WindowStart) {
		b.WindowStart, b.PreviousSubmits, b.WindowSubmits = now, max(b.PreviousSubmits, b.WindowSubmits), 0
	}
	if longest := now.Add(accountMaxPause); b.OpenUntil.After(longest) {
		b.OpenUntil = longest
	}
}

// submitted counts submissions into the window.
func (b *Budget) submitted(n int, now time.Time) {
	switch age := now.Sub(b.WindowStart); {
	case age >= 2*budgetWindow:
		b.WindowStart, b.PreviousSubmits, b.WindowSubmits = now, 0, 0
	case age >= budgetWindow:
		b.WindowStart, b.PreviousSubmits, b.WindowSubmits = b.WindowStart.Add(budgetWindow), b.WindowSubmits, 0
	}
	b.WindowSubmits += int64(n)
}

// takeQueries refills the bucket and takes up to want tokens. One second of
// refill is the most it holds, so that after an outage the rate of queries stays
// flat however many payments wait (G13).
func (b *Budget) takeQueries(p QueryPolicy, want int, now time.Time) int {
	rate := p.Floor + p.Share*b.recent(now)
	if p.RateLimit > 0 {
		rate = min(rate, p.RateLimit)
	}
	b.Tokens = min(b.Tokens+rate*max(0, now.Sub(b.RefilledAt).Seconds()), max(1, rate))
	b.RefilledAt = now
	got := min(want, int(b.Tokens))
	b.Tokens -= float64(got)
	if p.RateLimit > 0 {
		// Sends wait for what queries took: the channel sees no more of both than its
		// limit. A second's worth is the most they owe, so that they never stop.
		b.refillSubmits(p.RateLimit, now)
		b.SubmitTokens = max(b.SubmitTokens-float64(got), -p.RateLimit)
	}
	return got
}

// refillSubmits adds what came since. Half a second of the limit is the most that
// can be taken at once.
func (b *Budget) refillSubmits(rate float64, now time.Time) {
	b.SubmitTokens = min(b.SubmitTokens+rate*max(0, now.Sub(b.SubmitsRefilledAt).Seconds()), max(1, rate/2))
	b.SubmitsRefilledAt = now
}

// takeSubmits is the same for the channel's own rate limit.
func (b *Budget) takeSubmits(rate float64, want int, now time.Time) int {
	b.refillSubmits(rate, now)
	got := max(0, min(want, int(b.SubmitTokens)))
	b.SubmitTokens -= float64(got)
	return got
}

// Report is what one process saw of a channel since its last report.
type Report struct {
	// Submits are permits that were granted.
	Submits int
	// Answers are definite answers of the provider: it is up and knows us.
	Answers int
	// Failures are calls in a row, at the end, that reached nobody or got no answer.
	Failures int
	// AccountRefused says that the provider refused our account.
	AccountRefused bool
}

// Breaker limits: after this many failures in a row it opens, for a pause that
// doubles while nothing gets through.
const (
	breakerFailures = 10
	breakerPause    = time.Second
	breakerMaxPause = 30 * time.Second
	accountPause    = 15 * time.Second
	accountMaxPause = 5 * time.Minute
)

// observe moves the breaker.
func (b *Budget) observe(r Report, now time.Time) {
	if r.Answers > 0 && !r.AccountRefused {
		b.Failures, b.OpenedCount, b.OpenUntil, b.OpenReason = 0, 0, time.Time{}, ""
	}
	if now.Before(b.OpenUntil) {
		return // calls that were out when it opened say nothing new
	}
	b.Failures += r.Failures
	switch {
	case r.AccountRefused:
		b.open(now, "the provider refuses our account: check the channel's credentials", accountPause, accountMaxPause)
	case b.Failures >= breakerFailures || (b.OpenedCount > 0 && r.Failures > 0):
		b.open(now, "the channel does not answer", breakerPause, breakerMaxPause)
	}
}

func (b *Budget) open(now time.Time, reason string, pause, longest time.Duration) {
	for range min(b.OpenedCount, 10) {
		pause *= 2
	}
	b.OpenedCount++
	b.OpenUntil, b.OpenReason, b.Failures = now.Add(min(pause, longest)), reason, 0
}

// ChannelState is a channel as all instances see it.
type ChannelState struct {
	// Open is how long the breaker stays open; 0 when it is closed.
	Open time.Duration
	// Probing says that the breaker was open and nothing got through since: one
	// call at a time.
	Probing bool
	Reason  string
}

// SyncChannel adds a report and returns the channel's state.
func (s *Store) SyncChannel(ctx context.Context, channel string, r Report) (ChannelState, error) {
	var state ChannelState
	err := s.withBudget(ctx, channel, func(b *Budget, now time.Time) {
		b.submitted(r.Submits, now)
		b.observe(r, now)
		state = ChannelState{Open: max(0, b.OpenUntil.Sub(now)), Probing: b.OpenedCount > 0, Reason: b.OpenReason}
	})
	return state, err
}

// TakeQueries asks the channel's budget for up to want queries.
func (s *Store) TakeQueries(ctx context.Context, channel string, want int, p QueryPolicy) (int, error) {
	var got int
	err := s.withBudget(ctx, channel, func(b *Budget, now time.Time) {
		if got = 0; !now.Before(b.OpenUntil) {
			got = b.takeQueries(p, want, now)
		}
	})
	return got, err
}

// TakeSubmits asks the channel's rate limit (submits per second over all
// instances) for up to want permits.
func (s *Store) TakeSubmits(ctx context.Context, channel string, want int, rate float64) (int, error) {
	var got int
	err := s.withBudget(ctx, channel, func(b *Budget, now time.Time) { got = b.takeSubmits(rate, want, now) })
	return got, err
}

// withBudget changes a channel's row under its lock.
func (s *Store) withBudget(ctx context.Context, channel string, change func(*Budget, time.Time)) error {
	err := retry(ctx, func() error {
		var b Budget
		var now time.Time
		var open pgtype.Timestamptz
		return s.inTx(ctx, func(batch *pgx.Batch) {
			batch.Queue(`INSERT INTO settleonce.channel_budgets (channel) VALUES ($1) ON CONFLICT DO NOTHING`, channel)
			batch.Queue(`SELECT clock_timestamp(), tokens, refilled_at, window_start, window_submits, previous_submits, submit_tokens,
				submits_refilled_at, failures, open_until, open_reason, opened_count
				FROM settleonce.channel_budgets WHERE channel = $1 FOR UPDATE`, channel).QueryRow(func(row pgx.Row) error {
				return row.Scan(&now, &b.Tokens, &b.RefilledAt, &b.WindowStart, &b.WindowSubmits, &b.PreviousSubmits, &b.SubmitTokens,
					&b.SubmitsRefilledAt, &b.Failures, &open, &b.OpenReason, &b.OpenedCount)
			})
		}, func(batch *pgx.Batch) error {
			b.OpenUntil = open.Time
			b.setBack(now)
			change(&b, now)
			open = pgtype.Timestamptz{Time: b.OpenUntil, Valid: true}
			if b.OpenUntil.IsZero() {
				open = pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
			}
			batch.Queue(`UPDATE settleonce.channel_budgets SET tokens = $2, refilled_at = $3, window_start = $4, window_submits = $5,
				previous_submits = $6, submit_tokens = $7, submits_refilled_at = $8, failures = $9, open_until = $10,
				open_reason = $11, opened_count = $12 WHERE channel = $1`, channel, b.Tokens, b.RefilledAt, b.WindowStart,
				b.WindowSubmits, b.PreviousSubmits, b.SubmitTokens, b.SubmitsRefilledAt, b.Failures, open, b.OpenReason, b.OpenedCount)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("use the budget of channel %q: %w", channel, err)
	}
	return nil
}
