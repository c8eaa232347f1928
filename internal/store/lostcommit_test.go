package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// killWorkers ends the store's sessions, as an administrator or a crash does.
func (w *world) killWorkers() {
	w.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'settleonce'`)
}

// faults are the ways in which a COMMIT goes wrong.
func faults(w *world, p *proxy) map[string]func() {
	return map[string]func(){
		"the COMMIT never arrives":            func() { p.next(neverArrives) },
		"the answer to the COMMIT is lost":    func() { p.next(answerIsLost) },
		"B12: the backend dies before COMMIT": func() { p.nextDo(func() fate { w.killWorkers(); return goesOn }) },
	}
}

// throughProxy is a world whose store talks to Postgres through a proxy, with
// its statements prepared.
func throughProxy(t *testing.T) (*world, *proxy) {
	t.Helper()
	w := newWorld(t)
	w.pool.Close()
	p, dsn := newProxy(t, w.dsn)
	w.store, w.pool = w.open(dsn)
	return w, p
}

// TestClaimCommitLost: whatever becomes of the COMMIT, the claim ends with the
// verdicts it would have had, one permit per payment is stored and handed out,
// and every delivery was told the same.
func TestClaimCommitLost(t *testing.T) {
	t.Parallel()
	for name := range faults(nil, nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := throughProxy(t)
			known := w.claimed(command())
			a, changed := command(), known
			changed.Amount = 3
			parked, dead := w.arrive(command()), store.Arrival{Origin: w.origin(), Dead: &store.Dead{Reason: payment.DeadNullValue}}
			parked.Admit = false
			b := batch(append(w.arriveAll(a, known, a, changed, sameOrder(known)), parked, dead)...)
			b.Next = map[store.Partition]int64{{Topic: "payment.commands"}: 8}
			faults(w, p)[name]()
			out, err := w.store.Claim(t.Context(), b)
			require.NoError(t, err)
			require.EqualValues(t, 1, p.hits.Load())
			got := verdicts(out)
			require.Contains(t, got[4], "PRIOR_ATTEMPT_UNRESOLVED")
			got[4] = ""
			require.Equal(t, []string{"fresh", "pending", "pending", "conflict IDEMPOTENCY_CONFLICT", "", "parked", "dead_lettered"}, got)
			require.NotNil(t, out[0].Payment, "no permit is lost")
			require.Equal(t, 1, w.status(idOf(a)).Open.Sends.Count, "and none is granted twice")
			require.Equal(t, 8, w.count(`SELECT next_offset FROM settleonce.consumed_offsets`))
			require.Equal(t, payment.CodePriorAttemptUnresolved, w.replyTo(b.Arrivals[4]).Code)
			w.consistent()
		})
	}
}

// TestFailoverInsideAClaim: half of a batch is claimed when the database turns
// out to be another one. Its permits are not lost, the other half is asked about.
func TestFailoverInsideAClaim(t *testing.T) {
	t.Parallel()
	w, p := throughProxy(t)
	a, b := command(), command()
	p.nextDo(func() fate { w.exec(`UPDATE settleonce.installation SET timeline = timeline + 1`); return goesOn })
	out := w.claim(w.arrive(a), w.bad("NUL"), w.arrive(b), w.arrive(a), w.arrive(b))
	require.Equal(t, []string{"fresh", "dead_lettered", "parked", "pending", "pending"}, verdicts(out))
	require.True(t, w.status(idOf(b)).Open.QueryFirst)
	require.False(t, w.status(idOf(a)).Open.QueryFirst)
	w.consistent()
}

// TestApplyCommitLost: the change is made once: one event, one reply, one
// version.
func TestApplyCommitLost(t *testing.T) {
	t.Parallel()
	for name := range faults(nil, nil) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := throughProxy(t)
			c, other := w.claimed(command()), w.claimed(command())
			faults(w, p)[name]()
			once := func(l store.Locked) *store.Change {
				if l.Payment.State.Terminal() {
					return nil
				}
				return always(finish(payment.Succeeded))(l)
			}
			out, err := w.store.Apply(t.Context(), []store.Step{{Payment: idOf(c), Decide: once}, {Payment: idOf(other), Decide: once}})
			require.NoError(t, err)
			require.EqualValues(t, 1, p.hits.Load())
			for i := range out {
				require.Equal(t, payment.Succeeded, out[i].After.State)
				require.Equal(t, 1, out[i].After.Version)
			}
			require.Len(t, w.events(), 2)
			require.Len(t, w.replies(), 2)
			w.consistent()
		})
	}
}

// TestB12_ServerGoneBetweenStatements: dead connections of the pool are replaced,
// and the work is done.
func TestB12_ServerGoneBetweenStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.claimed(command())
	w.killWorkers()
	require.Equal(t, []string{"pending", "fresh"}, verdicts(w.claim(w.arrive(c), w.arrive(command()))))
	w.killWorkers()
	w.apply(idOf(c), always(finish(payment.Declined)))
	w.killWorkers()
	_, err := w.store.PickDue(t.Context(), 7, time.Minute, 0, 10)
	require.NoError(t, err)
	w.consistent()
}
