package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// old is a payment of an older system, from last year.
func old(t *testing.T, state payment.State, change ...func(*store.Imported)) store.Imported {
	t.Helper()
	r := store.Imported{Command: command(), State: state, Namespace: "shop", ProviderReference: "ch_1"}
	r.Command.IssuedAt = time.Now().UTC().AddDate(-1, 0, 0).Truncate(time.Microsecond)
	r.EndedAt = r.Command.IssuedAt.Add(time.Second)
	if state == payment.Declined {
		r.Cause = "insufficient_funds"
	}
	if state == payment.Review {
		r.EndedAt, r.ProviderReference = time.Time{}, ""
	}
	for _, f := range change {
		f(&r)
	}
	var err error
	r.Fingerprint, err = r.Command.ImportedFingerprint()
	require.NoError(t, err)
	return r
}

func (w *world) bring(rows ...store.Imported) []store.Taken {
	w.t.Helper()
	progress, end, err := w.store.BeginBackfill(w.t.Context(), "legacy", "c", "ada", "test")
	require.NoError(w.t, err)
	defer end()
	taken, err := w.store.Import(w.t.Context(), rows, &progress)
	require.NoError(w.t, err)
	return taken
}

// G2: whoever repeats an old payment gets its old outcome, whatever is not known of it.
func TestG2_ImportedOutcomeAnswersRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unknown := func(r *store.Imported) { r.Command.CustomerID, r.Command.PaymentMethod = "", "" }
	paid, refused := old(t, payment.Succeeded), old(t, payment.Declined, unknown)
	require.Equal(t, []store.Taken{store.TakenNew, store.TakenNew}, w.bring(paid, refused))
	require.Empty(t, w.outbox(), "what is imported is no news")

	retry := refused.Command
	retry.CustomerID, retry.PaymentMethod = "cust-7", "tok_visa"
	other := paid.Command
	other.Amount++
	require.Equal(t, []string{"replayed", "replayed", "conflict IDEMPOTENCY_CONFLICT"},
		verdicts(w.claim(w.arriveAll(paid.Command, retry, other)...)))
	replies := w.replies()
	require.Equal(t, "ch_1", replies[0].Outcome.ProviderReference)
	require.True(t, replies[0].Replayed)
	require.WithinDuration(t, paid.EndedAt, replies[0].Outcome.OccurredAt, 0)
	require.Equal(t, "insufficient_funds", replies[1].Outcome.Cause)

	st := w.status(idOf(paid.Command))
	require.Len(t, st.History, 1)
	require.Equal(t, "imported from legacy", st.History[0].Cause)
	require.Equal(t, "backfill", st.History[0].Actor)
}

// G14: however old an imported payment is, its key is kept for a window from the import.
func TestG14_ImportedKeysAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paid, open := old(t, payment.Succeeded), old(t, payment.Review)
	w.bring(paid, open)
	f := payment.Freshness{}.WithDefaults()
	_, err := w.store.RemoveExpired(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, 2, w.count(`SELECT count(*) FROM settleonce.payments`))
	w.exec(`UPDATE settleonce.payments SET created_at = now() - interval '15 days'`)
	_, err = w.store.RemoveExpired(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.payments WHERE state = 3`), "one without an outcome stays")
}

// G15: an imported success counts for its obligation; imported reviews, of which there may be several for
// one obligation, block it until each has its outcome.
func TestG15_ImportedPaymentsStandOnTheirObligation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paid := old(t, payment.Succeeded, func(r *store.Imported) { r.EndedAt = time.Time{} })
	one, two := old(t, payment.Review), old(t, payment.Review)
	two.Command.OrderID = one.Command.OrderID
	two = old(t, payment.Review, func(r *store.Imported) { r.Command = two.Command })
	require.Equal(t, []store.Taken{store.TakenNew, store.TakenNew, store.TakenNew}, w.bring(paid, one, two))

	again := sameOrder(paid.Command)
	again.IssuedAt = again.IssuedAt.Add(-time.Minute)
	require.Equal(t, []string{"rejected OBLIGATION_ALREADY_PAID", "rejected PRIOR_ATTEMPT_UNRESOLVED", "pending", "pending"},
		verdicts(w.claim(w.arriveAll(again, sameOrder(one.Command), one.Command, two.Command)...)))

	end := func(r store.Imported) {
		r.State, r.Cause = payment.Declined, "expired"
		require.Equal(t, []store.Taken{store.TakenOutcome}, w.bring(r))
		require.Equal(t, []store.Taken{store.TakenBefore}, w.bring(r))
	}
	end(one)
	require.Equal(t, []string{"rejected PRIOR_ATTEMPT_UNRESOLVED"}, verdicts(w.claim(w.arrive(sameOrder(one.Command)))))
	end(two)
	require.Equal(t, []string{"fresh", "replayed"}, verdicts(w.claim(w.arriveAll(sameOrder(one.Command), one.Command)...)))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.review_items WHERE closed_at IS NULL`))
	require.Equal(t, 2, w.count(`SELECT count(*) FROM settleonce.review_items WHERE kind = 'imported'`))
	require.Len(t, w.events(), 2, "the outcomes are news")
	w.gapless()
}

// Callbacks find old payments by every name that their provider has for them.
func TestImportedPaymentsAreFoundByCallbacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	paid := old(t, payment.Succeeded, func(r *store.Imported) { r.ProviderKey, r.ProviderReference = uuid.New(), "ch_paid" })
	twin := old(t, payment.Succeeded, func(r *store.Imported) { r.ProviderReference = "ch_paid" })
	open := old(t, payment.Review)
	w.bring(paid)
	w.bring(twin, open)
	open.State, open.ProviderReference = payment.Succeeded, "ch_open"
	require.Equal(t, []store.Taken{store.TakenOutcome}, w.bring(open))
	for name, id := range map[string]uuid.UUID{
		"ch_paid": idOf(paid.Command), paid.ProviderKey.String(): idOf(paid.Command), "ch_open": idOf(open.Command),
	} {
		require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.provider_references
			WHERE channel = 'sim' AND reference = $1 AND payment = $2`, name, id.String()), name)
	}
	require.Equal(t, 3, w.count(`SELECT count(*) FROM settleonce.provider_references`))
}

// Nothing that is there is overwritten, and every row is told what it met.
func TestImportMeetsWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	live := w.claimed(command())
	w.apply(idOf(live), always(finish(payment.Succeeded))) // reference ref-1
	as := func(c payment.Command, state payment.State, change ...func(*store.Imported)) store.Imported {
		return old(t, state, append([]func(*store.Imported){func(r *store.Imported) { r.Command = c }}, change...)...)
	}
	paid := old(t, payment.Succeeded)
	other := as(paid.Command, payment.Succeeded, func(r *store.Imported) { r.Command.Amount++ })
	require.Equal(t, []store.Taken{
		store.RefusedLive, store.RefusedLive, store.TakenBefore, store.TakenBefore,
		store.TakenNew, store.TakenBefore, store.RefusedContent, store.RefusedOutcome, store.TakenBefore,
	}, w.bring(
		as(live, payment.Declined), as(live, payment.Succeeded),
		as(live, payment.Succeeded, func(r *store.Imported) { r.ProviderReference = "ref-1" }), as(live, payment.Review),
		paid, paid, other, as(paid.Command, payment.Declined), as(paid.Command, payment.Review),
	))
	require.Equal(t, payment.Succeeded, w.status(idOf(live)).Payment.State)
	require.Equal(t, "ref-1", w.status(idOf(live)).Payment.ProviderReference)
	require.Equal(t, "ch_1", w.status(idOf(paid.Command)).Payment.ProviderReference)
}

// What would be done is told without doing it.
func TestImportPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	there, fresh := old(t, payment.Succeeded), old(t, payment.Succeeded)
	w.bring(there)
	differs := fresh
	differs.ProviderReference = "ch_2"
	taken, err := w.store.ImportPreview(t.Context(), []store.Imported{there, fresh, fresh, differs})
	require.NoError(t, err)
	require.Equal(t, []store.Taken{store.TakenBefore, store.TakenNew, store.TakenBefore, store.RefusedOutcome}, taken)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.payments`))
}

// A row that Postgres refuses costs only itself.
func TestImportBisects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rows := []store.Imported{old(t, payment.Succeeded), old(t, payment.Succeeded), old(t, payment.Review)}
	rows[1].Command.OrderID = "a\x00b"
	require.Equal(t, []store.Taken{store.TakenNew, store.RefusedUnstorable, store.TakenNew}, w.bring(rows...))
}

// An interrupted run of the same content goes on where it was; a finished one, and another content, begin anew.
func TestBackfillGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := func(content string) store.Progress {
		p, end, err := w.store.BeginBackfill(t.Context(), "legacy", content, "ada", "move")
		require.NoError(t, err)
		_, _, err = w.store.BeginBackfill(t.Context(), "legacy", content, "bob", "move")
		require.ErrorIs(t, err, store.ErrBackfillRuns)
		end()
		return p
	}
	save := func(p store.Progress) {
		_, err := w.store.Import(t.Context(), nil, &p)
		require.NoError(t, err)
	}
	require.Equal(t, store.Progress{Source: "legacy", Content: "a"}, begin("a"))
	half := store.Progress{Source: "legacy", Content: "a", Position: "17", Read: 17, Refused: 2}
	save(half)
	require.Equal(t, half, begin("a"))
	require.Equal(t, store.Progress{Source: "legacy", Content: "b"}, begin("b"))
	save(store.Progress{Source: "legacy", Content: "b", Position: "20", Read: 20, Finished: true})
	require.Equal(t, store.Progress{Source: "legacy", Content: "b"}, begin("b"))
	require.Equal(t, 4, w.count(`SELECT count(*) FROM settleonce.audit WHERE action = 'backfill' AND actor = 'ada' AND reason = 'move'`))
}

// G5: the position never passes a row whose outcome was not stored: whoever goes on there would leave the payment
// in review for ever. The outcomes are refused for a while here, the batch around them is not.
func TestG5_PositionWaitsForOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := old(t, payment.Review)
	w.bring(open)
	ended := open
	ended.State, ended.ProviderReference = payment.Succeeded, "ch_9"
	run := func(stored bool) {
		p, end, err := w.store.BeginBackfill(t.Context(), "legacy", "d", "ada", "test")
		require.NoError(t, err)
		defer end()
		require.Empty(t, p.Position)
		p.Position, p.Read = "1", 1
		_, err = w.store.Import(t.Context(), []store.Imported{ended, old(t, payment.Succeeded)}, &p)
		require.Equal(t, stored, err == nil, "%v", err)
	}
	w.exec(`CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'broken' USING ERRCODE = '55000'; END$$;
		CREATE TRIGGER broken BEFORE UPDATE ON settleonce.review_items FOR EACH ROW EXECUTE FUNCTION broken()`)
	run(false)
	w.exec(`DROP FUNCTION broken() CASCADE`)
	run(true)
	require.Equal(t, payment.Succeeded, w.status(idOf(ended.Command)).Payment.State)
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.provider_references WHERE reference = 'ch_9'`))
	require.Equal(t, 1, w.count(`SELECT count(*) FROM settleonce.backfills WHERE position = '1'`))
}

// G9: its provider's decline ends a payment in review just before its source's success would. That stays, and the
// row is told to differ: it does not count as resolved.
func TestG9_ImportedOutcomeComesTooLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := old(t, payment.Review)
	w.bring(open)
	ended := open
	ended.State, ended.ProviderReference = payment.Succeeded, "ch_9"
	w.exec(`CREATE FUNCTION declined() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
			UPDATE settleonce.payments SET state = 5, ended_at = clock_timestamp();
			DELETE FROM settleonce.open_payments;
			RETURN NEW;
		END$$;
		CREATE TRIGGER declined BEFORE INSERT ON settleonce.provider_references FOR EACH ROW EXECUTE FUNCTION declined()`)
	require.Equal(t, []store.Taken{store.RefusedOutcome}, w.bring(ended))
	require.Equal(t, payment.Declined, w.status(idOf(ended.Command)).Payment.State)
}

// G15: while old payments are brought in, which takes hours, their caller is given another namespace. What would
// come in under the old one afterwards would keep no order from being paid twice: none does.
func TestG15_ImportComparesCallersWithTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.caller("shop", "shop")
	row := func() store.Imported {
		return old(t, payment.Review, func(r *store.Imported) { r.Registered = true })
	}
	progress, end, err := w.store.BeginBackfill(t.Context(), "legacy", "c", "ada", "test")
	require.NoError(t, err)
	defer end()
	w.caller("shop", "family")
	progress.Position = "1"
	_, err = w.store.Import(t.Context(), []store.Imported{row()}, &progress)
	require.ErrorIs(t, err, store.ErrCallersChanged)
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.payments`))
	require.Zero(t, w.count(`SELECT count(*) FROM settleonce.backfills WHERE position <> ''`))
	w.caller("shop", "shop")
	_, err = w.look.Exec(t.Context(), `UPDATE settleonce.callers SET revoked_at = now()`)
	require.NoError(t, err)
	taken, err := w.store.Import(t.Context(), []store.Imported{row(), row()}, &progress)
	require.NoError(t, err, "what a caller paid counts after it was shut out")
	require.Equal(t, []store.Taken{store.TakenNew, store.TakenNew}, taken)
}

// G1: an import and a claim of the same key at once: one of them is first, and the other one sees it.
func TestG1_ImportBesideClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 30 {
		var rows []store.Imported
		var commands []payment.Command
		for range 10 {
			r := old(t, payment.Succeeded)
			r.Command.IssuedAt = time.Now().UTC().Truncate(time.Microsecond)
			rows, commands = append(rows, r), append([]payment.Command{r.Command}, commands...)
		}
		arrivals := w.arriveAll(commands...)
		done := make(chan []store.Outcome, 1)
		go func() {
			out, err := w.store.Claim(t.Context(), batch(arrivals...))
			if err != nil {
				out = nil
			}
			done <- out
		}()
		taken := w.bring(rows...)
		out := <-done
		require.Len(t, out, len(rows))
		for i := range rows {
			verdict := out[len(rows)-1-i].Verdict
			if taken[i] == store.TakenNew {
				require.Equal(t, store.Replayed, verdict)
			} else {
				require.Equal(t, store.RefusedLive, taken[i])
				require.Equal(t, store.Claimed, verdict)
			}
		}
	}
	require.Zero(t, w.deadlocks())
}

// Nobody asks a provider about a key that it never saw; where it knows one, the slow watch may ask.
func TestG3_ImportedReviewIsAskedAboutOnlyUnderItsOwnKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ask := func(r *store.Imported) { r.Ask, r.ChannelIdentity = true, "sim/test" }
	keyless := old(t, payment.Review, ask)
	keyed := old(t, payment.Review, ask, func(r *store.Imported) { r.ProviderKey = uuid.New() })
	quiet := old(t, payment.Review, func(r *store.Imported) { r.ProviderKey, r.ChannelIdentity = uuid.New(), "sim/test" })
	w.bring(keyless, keyed, quiet)
	for _, r := range []store.Imported{keyless, keyed, quiet} {
		st := w.status(idOf(r.Command))
		require.True(t, st.Open.NoMoreSends)
		soon := time.Until(st.Open.NextCheckAt) < 2*time.Hour
		require.Equal(t, r.ProviderKey == keyed.ProviderKey, soon)
		want := "sim/test"
		if r.ProviderKey == uuid.Nil {
			want = "imported"
		} else {
			require.Equal(t, r.ProviderKey, st.Payment.ProviderKey)
		}
		require.Equal(t, want, st.Payment.ChannelIdentity)
	}
}
