package store_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// TestP17_FiftyDeliveriesAtOnce of one key, half with another amount: one is
// claimed, equal ones wait for it, the others conflict.
func TestP17_FiftyDeliveriesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := command()
	changed := c
	changed.Amount = 1
	counts := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 50 {
		a := w.arrive([]payment.Command{c, changed}[i%2])
		all.Go(func() {
			out, err := w.store.Claim(t.Context(), batch(a, w.arrive(command())))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				counts[err.Error()]++
				return
			}
			counts[out[0].Verdict.String()]++
			counts["beside "+out[1].Verdict.String()]++
		})
	}
	all.Wait()
	require.Equal(t, map[string]int{"fresh": 1, "pending": 24, "conflict": 25, "beside fresh": 50}, counts)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.payments WHERE idempotency_key = $1`, c.IdempotencyKey))
	w.consistent()
}

// TestClaimsFromManyWorkers: overlapping keys and orders, finalizers in between.
// One open payment per obligation (G15), one row per identity, at most one
// permit per identity (G1), and no deadlock comes through.
func TestClaimsFromManyWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	orders := make([]string, 12)
	for i := range orders {
		orders[i] = "order-" + uuid.NewString()
	}
	commands := make([]payment.Command, 90)
	for i := range commands {
		commands[i] = command()
		commands[i].OrderID = orders[i%len(orders)]
	}
	permits := make(map[uuid.UUID]int)
	var mu sync.Mutex
	var open atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 12 {
				out, err := w.store.Claim(t.Context(), batch(w.arriveAll(sample(commands, 40)...)...))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				var steps []store.Step
				for i := range out {
					if out[i].Verdict == store.Claimed {
						permits[out[i].Payment.ID]++
						steps = append(steps, store.Step{Payment: out[i].Payment.ID, Decide: always(finish(payment.Declined))})
					}
				}
				mu.Unlock()
				if _, err := w.store.Apply(t.Context(), steps[:len(steps)/2]); err != nil {
					t.Error(err)
				}
				open.Add(int64(len(steps)))
			}
		})
	}
	all.Wait()
	require.NotEmpty(t, permits)
	for id, n := range permits {
		require.Equal(t, 1, n, "permits of %s", id)
	}
	require.Zero(t, w.count(`SELECT count(*) FROM (SELECT 1 FROM settleonce.payments WHERE state < 4 GROUP BY namespace, obligation HAVING count(*) > 1) AS twice`))
	w.consistent()
	t.Logf("%d permits, %d deadlocks", len(permits), w.deadlocks())
}

func sample(commands []payment.Command, n int) []payment.Command {
	out := make([]payment.Command, n)
	for i := range out {
		out[i] = commands[rand.IntN(len(commands))]
	}
	return out
}

// TestClaimWaitsForNobodyElse: batches that want the same orders in opposite
// sequence do not deadlock.
func TestClaimWaitsForNobodyElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all sync.WaitGroup
	for range 20 {
		orders := make([]string, 60)
		for i := range orders {
			orders[i] = "order-" + uuid.NewString()
		}
		for range 4 {
			commands := make([]payment.Command, len(orders))
			for i := range commands {
				commands[i] = command()
				commands[i].OrderID = orders[i]
			}
			rand.Shuffle(len(commands), func(i, j int) { commands[i], commands[j] = commands[j], commands[i] })
			b := batch(w.arriveAll(commands...)...)
			all.Go(func() {
				if _, err := w.store.Claim(t.Context(), b); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	require.Equal(t, 1200, w.count(`SELECT count(*) FROM settleonce.open_payments`))
	w.consistent()
	require.Zero(t, w.deadlocks())
}

// TestP26b_ClaimWaitsWhileTheFinalizerCommits: K2's finalizer has not committed
// when K1's claim comes to the hold. Success and release become visible together,
// so K1 is refused.
func TestP26b_ClaimWaitsWhileTheFinalizerCommits(t *testing.T) {
	t.Parallel()
	for _, end := range []payment.State{payment.Succeeded, payment.Declined} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			k1 := command()
			k2 := w.claimed(sameOrder(k1))
			// What the finalizer does, held open before its COMMIT.
			tx, err := w.look.Begin(t.Context())
			require.NoError(t, err)
			for _, sql := range []string{
				`SELECT FROM settleonce.payments WHERE id = $1 FOR NO KEY UPDATE`,
				`DELETE FROM settleonce.open_payments WHERE payment = $1`,
				`DELETE FROM settleonce.obligation_holds WHERE payment = $1`,
			} {
				_, err = tx.Exec(t.Context(), sql, idOf(k2))
				require.NoError(t, err)
			}
			_, err = tx.Exec(t.Context(), `UPDATE settleonce.payments SET state = $2, ended_at = clock_timestamp() WHERE id = $1`, idOf(k2), end)
			require.NoError(t, err)

			claimed := make(chan []store.Outcome)
			a := w.arrive(k1)
			go func() {
				out, err := w.store.Claim(t.Context(), batch(a))
				if err != nil {
					t.Error(err)
				}
				claimed <- out
			}()
			w.eventually("the claim waits for the hold", `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'settleonce')`)
			require.NoError(t, tx.Commit(t.Context()))
			out := <-claimed
			if end == payment.Declined {
				require.Equal(t, []string{"fresh"}, verdicts(out), "a decline frees the order")
				return
			}
			require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID"}, verdicts(out))
			require.Equal(t, idOf(k2), *w.replyTo(a).BlockedBy)
		})
	}
}

// TestB20_RepliesInTheOrderOfTheRowLock: a repeat that reads "pending" and a
// finalizer run at once; the pending reply never follows the outcome.
func TestB20_RepliesInTheOrderOfTheRowLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 60 {
		c := w.claimed(command())
		var all sync.WaitGroup
		for range 3 {
			a := w.arrive(c)
			all.Go(func() {
				if _, err := w.store.Claim(t.Context(), batch(a)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() {
			if _, err := w.store.Apply(t.Context(), []store.Step{{Payment: idOf(c), Decide: always(finish(payment.Succeeded))}}); err != nil {
				t.Error(err)
			}
		})
		all.Wait()
	}
	ended := make(map[uuid.UUID]bool)
	late, early := 0, 0
	for _, r := range w.replies() {
		switch r.Kind {
		case payment.ReplyOutcome:
			ended[r.PaymentID] = true
		case payment.ReplyPending:
			require.False(t, ended[r.PaymentID], "pending after the outcome")
			early++
		case payment.ReplyReplayed:
			require.True(t, ended[r.PaymentID], "replayed before the outcome")
			late++
		case payment.ReplyAccepted, payment.ReplyConflict, payment.ReplyRejected:
			require.Fail(t, "unexpected reply", r.Kind)
		}
	}
	t.Logf("%d repeats before, %d after the outcome", early, late)
	w.consistent()
}

// TestRetentionRace: the row of a known key is deleted between the insert that
// finds it and the read that wants it. The claim starts again: the key is new,
// and is judged by its age.
func TestRetentionRace(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]time.Duration{"fresh": 0, "rejected STALE_COMMAND": 15 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := w.claimed(command())
			w.reach(idOf(c), payment.Declined)
			other := w.claimed(command())
			// The cleaner has deleted the row and not committed. The claim stops at its
			// own lock on another row, after its insert found the key there.
			tx, err := w.look.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), `SELECT FROM settleonce.payments WHERE id = ANY($1) FOR UPDATE`, []uuid.UUID{idOf(c), idOf(other)})
			require.NoError(t, err)
			again := c
			again.IssuedAt = again.IssuedAt.Add(-age)
			claimed := make(chan []store.Outcome)
			go func() {
				out, err := w.store.Claim(t.Context(), batch(w.arrive(again), w.arrive(other)))
				if err != nil {
					t.Error(err)
				}
				claimed <- out
			}()
			w.eventually("the claim waits for the row", `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'settleonce')`)
			_, err = tx.Exec(t.Context(), `DELETE FROM settleonce.payments WHERE id = $1`, idOf(c))
			require.NoError(t, err)
			require.NoError(t, tx.Commit(t.Context()))
			require.Equal(t, []string{name, "pending"}, verdicts(<-claimed))
		})
	}
}
