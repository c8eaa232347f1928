package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

var partition = store.Partition{Topic: "payment.commands", Number: 3}

func (w *world) claimUpTo(next int64, arrivals ...store.Arrival) {
	w.t.Helper()
	b := batch(arrivals...)
	b.Next = map[store.Partition]int64{partition: next}
	_, err := w.store.Claim(w.t.Context(), b)
	require.NoError(w.t, err)
}

// TestStartOffset: the lower of Kafka's and the stored offset wins, and a stored
// one behind Kafka's means that commits were lost.
func TestStartOffset(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		stored, committed, want int64
		suspect                 bool
	}{
		"nothing known":                    {-1, -1, -1, false},
		"Kafka at the very beginning":      {-1, 0, 0, false},
		"Kafka knows, we know nothing":     {-1, 7, 0, true},
		"both agree":                       {7, 7, 7, false},
		"Kafka was not told yet":           {9, 7, 7, false},
		"the group is new to Kafka":        {9, -1, -1, false},
		"our commits are lost":             {5, 7, 5, true},
		"all of our commits but the first": {0, 7, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if tt.stored >= 0 {
				w.claimUpTo(tt.stored, w.arrive(command()))
			}
			got, err := w.store.StartOffset(t.Context(), "group", partition, tt.committed)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			in, err := w.store.CheckInstallation(t.Context())
			require.NoError(t, err)
			require.Equal(t, tt.suspect, in.Suspect != "")
		})
	}
}

// TestB9_OffsetsNeverGoBack: a late claim of a former owner changes nothing.
func TestB9_OffsetsNeverGoBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.claimUpTo(8, w.arrive(command()))
	w.claimUpTo(5, w.arrive(command()))
	got, err := w.store.StartOffset(t.Context(), "group", partition, 8)
	require.NoError(t, err)
	require.EqualValues(t, 8, got)
	got, err = w.store.StartOffset(t.Context(), "another", partition, -1)
	require.NoError(t, err)
	require.EqualValues(t, -1, got, "each group has its own")
}

// TestOffsetWithTheLastTransaction: a batch of several transactions stores its
// offset with the last one: what is not claimed is delivered again.
func TestOffsetWithTheLastTransaction(t *testing.T) {
	t.Parallel()
	w, p := throughProxy(t)
	w.claim(w.arrive(command()))
	c := command()
	b := batch(w.arriveAll(c, sameOrder(c), c)...)
	b.Next = map[store.Partition]int64{partition: 3}
	commits := 0
	var cut func() fate
	cut = func() fate {
		if commits++; commits < 2 {
			p.nextDo(cut)
			return goesOn
		}
		p.nextDo(cut)
		return neverArrives
	}
	p.nextDo(cut)
	_, err := w.store.Claim(t.Context(), b)
	require.Error(t, err)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.consumed_offsets`))
	p.onCommit.Store(nil)
	out, err := w.store.Claim(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, []string{"fresh", "rejected PRIOR_ATTEMPT_UNRESOLVED", "pending"}, verdicts(out))
	require.Equal(t, 3, w.count(`SELECT next_offset FROM settleonce.consumed_offsets`))
	w.consistent()
}

// TestInstallation: another server or timeline is noticed, stays suspect until an
// operator acknowledges it, and leaves an audit row.
func TestInstallation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]string{
		"another server":        `UPDATE settleonce.installation SET system_identifier = system_identifier + 1`,
		"restored or promoted":  `UPDATE settleonce.installation SET timeline = timeline + 1`,
		"nothing has changed":   ``,
		"both at the same time": `UPDATE settleonce.installation SET timeline = 0, system_identifier = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ok, err := w.store.CheckInstallation(t.Context())
			require.NoError(t, err)
			require.Empty(t, ok.Suspect)
			require.Equal(t, 16, ok.Shards)
			if change == "" {
				said, err := w.store.Recover(t.Context(), "alice", "checked")
				require.NoError(t, err)
				require.Empty(t, said)
				require.Zero(t, w.count(`SELECT count(*) FROM settleonce.audit`))
				return
			}
			w.exec(change)
			bad, err := w.store.CheckInstallation(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, bad.Suspect)
			require.NoError(t, w.store.MarkSuspect(t.Context(), "a later reason"))
			again, err := w.store.CheckInstallation(t.Context())
			require.NoError(t, err)
			require.Equal(t, bad, again, "the first reason stays")
			said, err := w.store.Recover(t.Context(), "alice", "compared with the provider's ledger")
			require.NoError(t, err)
			require.Equal(t, bad.Suspect, said)
			require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.audit WHERE actor = 'alice' AND action = 'recover'`))
			ok, err = w.store.CheckInstallation(t.Context())
			require.NoError(t, err)
			require.Empty(t, ok.Suspect)
		})
	}
}

// TestRemoveExpired: what a copy of it could still be judged fresh is kept, and
// so is what is unresolved or in review (G14).
func TestRemoveExpired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := func(state payment.State) payment.Command {
		c := w.claimed(command())
		w.reach(idOf(c), state)
		w.exec(`UPDATE settleonce.payments SET created_at = now() - interval '20 days', updated_at = now() - interval '20 days',
			issued_at = now() - interval '20 days', latest_issued_at = now() - interval '20 days',
			ended_at = ended_at - interval '20 days' WHERE id = $1`, idOf(c))
		w.exec(`UPDATE settleonce.payment_history SET at = at - interval '20 days' WHERE payment = $1`, idOf(c))
		return c
	}
	gone := []payment.Command{old(payment.Succeeded), old(payment.Declined)}
	kept := []payment.Command{
		old(payment.Pending), old(payment.Unknown), old(payment.Review), old(payment.Succeeded), old(payment.Declined),
		old(payment.Succeeded), w.paid(),
	}
	w.exec(`UPDATE settleonce.payments SET latest_issued_at = now() - interval '14 days 1 hour' WHERE id = $1`, idOf(kept[3]))
	w.exec(`UPDATE settleonce.payments SET ended_at = now() - interval '13 days' WHERE id = $1`, idOf(kept[4]))
	w.exec(`INSERT INTO settleonce.review_items (payment, kind, namespace, obligation, obligation_hash, blocks, reason)
		VALUES ($1, 'conflict', 'shop', 'x', 1, true, 'open')`, idOf(kept[5]))
	for _, c := range []payment.Command{gone[0], kept[2]} {
		w.exec(`INSERT INTO settleonce.attempts (payment, attempt, provider_key, sends, evidence, actor, reason, closed_at)
			VALUES ($1, 1, gen_random_uuid(), 1, '', 'ann', 'test', now() - interval '20 days')`, idOf(c))
	}
	removed, err := w.store.RemoveExpired(t.Context(), payment.Freshness{}.WithDefaults())
	require.NoError(t, err)
	require.EqualValues(t, 2, removed["payments"])
	require.EqualValues(t, 1, removed["attempts"], "that of the payment that is gone")
	require.EqualValues(t, 4, removed["payment_history"])
	for _, c := range gone {
		_, err := w.store.Status(t.Context(), idOf(c))
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	for _, c := range kept {
		require.NotEmpty(t, w.status(idOf(c)).History)
	}
	replay := gone[0]
	replay.IssuedAt = time.Now().Add(-20 * 24 * time.Hour)
	require.Equal(t, []string{"rejected STALE_COMMAND"}, verdicts(w.claim(w.arrive(replay))), "B15: a replay is stale, not new")
}

// TestRemoveExpiredReadsOnlyWhatIsOld: with many young keys, cleaning costs what
// is removed, not what is kept.
func TestRemoveExpiredReadsOnlyWhatIsOld(t *testing.T) {
	t.Parallel()
	w, p := listen(t, "auto")
	w.fill(20000)
	w.exec(`SELECT brin_summarize_new_values('settleonce.payment_history_at')`) // as autovacuum does
	p.take()
	_, err := w.store.RemoveExpired(t.Context(), payment.Freshness{}.WithDefaults())
	require.NoError(t, err)
	seen := p.take()
	require.NotEmpty(t, seen)
	for i := range seen {
		if faults := seen[i].Plan.faults(4000, false); len(faults) > 0 {
			t.Errorf("%v\n%s", faults, seen[i].Query)
		}
	}
}
