package store

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
)

var budgetBegins = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return budgetBegins.Add(d) }

func fresh() *Budget {
	return &Budget{RefilledAt: budgetBegins, WindowStart: budgetBegins, SubmitsRefilledAt: budgetBegins}
}

// TestG13_FlatAfterAnOutage: thousands wait, two instances ask all the time; in
// any second no more is granted than floor and share allow.
func TestG13_FlatAfterAnOutage(t *testing.T) {
	t.Parallel()
	p := QueryPolicy{}.WithDefaults()
	for name, perSecond := range map[string]int{"no submissions": 0, "100 per second": 100, "3000 per second": 3000} {
		b := fresh()
		outage := 10 * time.Minute // nobody asked meanwhile
		most := p.Floor + p.Share*float64(perSecond)
		waiting := 20000
		var second []int
		for at := time.Duration(0); at < time.Minute; at += 125 * time.Millisecond {
			now := after(outage + at)
			b.submitted(perSecond/8, now)
			got := 0
			for range 2 {
				got += b.takeQueries(p, min(200, waiting-got), now)
			}
			waiting -= got
			second = append(second, got)
		}
		for i := 8; i < len(second); i++ {
			sum := 0
			for _, n := range second[i-8 : i] {
				sum += n
			}
			require.LessOrEqual(t, float64(sum), 2*most+1, "%s: a burst is one second's worth", name)
		}
		total := 20000 - waiting
		require.LessOrEqual(t, float64(total), most*61+1, name)
		require.GreaterOrEqual(t, float64(total), p.Floor*58, "%s: the floor is always there", name)
	}
}

// TestBudgetRecent counts what was submitted over about the last ten seconds.
func TestBudgetRecent(t *testing.T) {
	t.Parallel()
	b := fresh()
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		b.submitted(10, after(at))
		if at > 20*time.Second {
			require.InDelta(t, 100, b.recent(after(at)), 12)
		}
	}
	require.Less(t, b.recent(after(70*time.Second)), 100.0)
	require.Zero(t, b.recent(after(2*time.Minute)))
	b.submitted(5, after(3*time.Minute))
	require.InDelta(t, 0.5, b.recent(after(3*time.Minute)), 0.01)
}

// TestBudgetClockBack: a clock that jumps back grants nothing extra.
func TestBudgetClockBack(t *testing.T) {
	t.Parallel()
	p := QueryPolicy{}.WithDefaults()
	b := fresh()
	require.Equal(t, 5, b.takeQueries(p, 100, after(time.Minute)))
	require.Zero(t, b.takeQueries(p, 100, after(-time.Hour)))
	require.Equal(t, 5, b.takeQueries(p, 100, after(-time.Hour+time.Second)))
}

// TestG13_ClockBackUnderLoad: submissions of before the jump do not count many times over
// afterwards, and the breaker is open no longer than its longest pause.
func TestG13_ClockBackUnderLoad(t *testing.T) {
	t.Parallel()
	p := QueryPolicy{}.WithDefaults()
	b := fresh()
	for at := time.Duration(0); at < 15*time.Second; at += 100 * time.Millisecond {
		b.submitted(10, after(at))
	}
	b.observe(Report{Failures: breakerFailures}, after(15*time.Second))
	back := 15*time.Second - time.Hour
	b.setBack(after(back))
	require.LessOrEqual(t, b.recent(after(back)), 100.0)
	got := 0
	for at := back; at < back+time.Minute; at += 100 * time.Millisecond {
		b.submitted(10, after(at))
		got += b.takeQueries(p, 1000, after(at))
	}
	require.LessOrEqual(t, float64(got), 61*(p.Floor+p.Share*110))
	require.GreaterOrEqual(t, float64(got), 55*(p.Floor+p.Share*90))
	require.LessOrEqual(t, b.OpenUntil.Sub(after(back)), accountMaxPause)
}

func TestTakeSubmits(t *testing.T) {
	t.Parallel()
	b := fresh()
	got := 0
	for at := time.Second; at <= 11*time.Second; at += 100 * time.Millisecond {
		got += b.takeSubmits(50, 1000, after(at))
	}
	require.InDelta(t, 50*10+25, got, 10)
	require.Equal(t, 1, fresh().takeSubmits(0.5, 10, after(time.Minute)), "a slow channel gets one at a time")
}

// TestG13_QueriesWithinTheRateLimit: a channel that takes 10 requests per second gets
// no more of both kinds together, and neither is kept out by the other.
func TestG13_QueriesWithinTheRateLimit(t *testing.T) {
	t.Parallel()
	const limit = 10
	p := QueryPolicy{Share: 0.2, Floor: 50, RateLimit: limit}
	b := fresh()
	queries, submits, seconds := 0, 0, 60
	for at := time.Second; at <= time.Duration(1+seconds)*time.Second; at += 100 * time.Millisecond {
		queries += b.takeQueries(p, 2*(int(at/(100*time.Millisecond))%2), after(at)) // half of the time somebody asks
		submits += b.takeSubmits(limit, 100, after(at))
	}
	require.LessOrEqual(t, queries+submits, limit*(seconds+2), "%d queries, %d sends", queries, submits)
	require.Greater(t, queries, seconds)
	alone := fresh()
	got := 0
	for at := time.Second; at <= 11*time.Second; at += 100 * time.Millisecond {
		got += alone.takeQueries(p, 1000, after(at))
	}
	require.InDelta(t, 10*limit+limit, got, 3, "queries alone are within it as well")
	require.Zero(t, alone.takeSubmits(limit, 100, after(11*time.Second)), "what they took is owed")
	require.Positive(t, alone.takeSubmits(limit, 100, after(13*time.Second)), "but never more than a second's worth")
}

// TestBreaker opens after ten failures in a row, lets one call through when its
// pause is over, and doubles the pause while nothing gets through.
func TestBreaker(t *testing.T) {
	t.Parallel()
	b := fresh()
	b.observe(Report{Failures: 9}, after(0))
	require.True(t, b.OpenUntil.IsZero())
	b.observe(Report{Failures: 1}, after(0))
	require.Equal(t, after(time.Second), b.OpenUntil)
	require.Equal(t, 1, b.OpenedCount)

	b.observe(Report{Failures: 40}, after(500*time.Millisecond))
	b.observe(Report{}, after(1100*time.Millisecond))
	require.Equal(t, after(time.Second), b.OpenUntil, "calls that were out when it opened do not open it again unprobed")
	b.observe(Report{Failures: 1}, after(1200*time.Millisecond))
	require.Equal(t, after(3200*time.Millisecond), b.OpenUntil, "the probe failed: twice the pause")
	b.observe(Report{Answers: 1}, after(4*time.Second))
	require.True(t, b.OpenUntil.IsZero())
	require.Zero(t, b.OpenedCount)
	b.observe(Report{AccountRefused: true}, after(5*time.Second))
	require.Equal(t, after(20*time.Second), b.OpenUntil)
	require.Contains(t, b.OpenReason, "credentials")
	for range 30 {
		b.observe(Report{AccountRefused: true}, b.OpenUntil)
	}
	require.Equal(t, accountMaxPause, b.OpenUntil.Sub(b.OpenUntil.Add(-accountMaxPause)))
	b.observe(Report{Answers: 3, Failures: 2}, after(10*time.Second))
	require.True(t, b.OpenUntil.IsZero(), "an answer closes it at once")
}

// TestG13_BudgetInTheDatabase: many instances ask at once for more than there is.
func TestG13_BudgetInTheDatabase(t *testing.T) {
	t.Parallel()
	pool, err := OpenPool(t.Context(), PoolConfig{DSN: pgtest.DSN(t, pgtest.Schema)})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := New(Config{Pool: pool, Logger: zerolog.Nop()})
	p := QueryPolicy{Floor: 40}.WithDefaults()
	const enough = 60 // more than the bucket has at once
	var got atomic.Int64
	started := time.Now()
	n, err := s.TakeQueries(t.Context(), "sim", 1, p) // makes the row
	require.NoError(t, err)
	got.Add(int64(n))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil && got.Load() < enough {
				n, err := s.TakeQueries(t.Context(), "sim", 50, p)
				if err != nil {
					t.Error(err)
					return
				}
				got.Add(int64(n))
			}
		})
	}
	all.Wait()
	took := time.Since(started).Seconds()
	require.LessOrEqual(t, float64(got.Load()), 40*took+1+1)
	require.GreaterOrEqual(t, got.Load(), int64(enough))

	state, err := s.SyncChannel(t.Context(), "sim", Report{Submits: 1000, Failures: 10})
	require.NoError(t, err)
	require.Positive(t, state.Open)
	require.True(t, state.Probing)
	_, err = pool.Exec(t.Context(), `UPDATE settleonce.channel_budgets SET open_until = open_until + interval '4 minutes'`)
	require.NoError(t, err) // its pause is a second, which may be over when the next statement runs
	n, err = s.TakeQueries(t.Context(), "sim", 50, p)
	require.NoError(t, err)
	require.Zero(t, n, "the breaker is open")
	state, err = s.SyncChannel(t.Context(), "sim", Report{Answers: 1})
	require.NoError(t, err)
	require.Zero(t, state)
	n, err = s.TakeSubmits(t.Context(), "other", 10, 3)
	require.NoError(t, err)
	require.LessOrEqual(t, n, 1)
}
