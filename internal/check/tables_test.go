package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/pgtest"
	"github.com/settleonce/settleonce/payment"
)

// tables are what a database would say of the world's payments.
type tables struct {
	*world

	db *Database
}

func newTables(t *testing.T) *tables {
	t.Helper()
	w := newWorld(t)
	return &tables{world: w, db: &Database{
		At: w.now.Add(time.Hour), Open: map[uuid.UUID]OpenRow{}, Ends: map[uuid.UUID][]payment.State{},
		Stored: map[string]map[int]int64{w.topics.Commands: {3: 100}},
	}}
}

// paid is a payment that succeeded, in topics, ledger and tables.
func (w *tables) paid() *PaymentRow {
	c := w.command()
	_, e := w.charged(c)
	id := c.Identity().PaymentID()
	w.db.Ends[id] = []payment.State{payment.Succeeded}
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: c.Identity().ProviderKey(1), State: payment.Succeeded, Version: e.Version,
		Attempt: 1, Sends: 1, Reference: e.ProviderReference,
	})
	return &w.db.Payments[len(w.db.Payments)-1]
}

// reviewed is a payment in review, as it should be.
func (w *tables) reviewed() *PaymentRow {
	c := w.command()
	w.deliver(c)
	w.tell(c, payment.EventReviewRequired, payment.Review)
	w.expect(c, endsInReview)
	id := c.Identity().PaymentID()
	w.db.Open[id] = OpenRow{NextCheckAt: w.db.At.Add(time.Minute)}
	w.db.Holds = append(w.db.Holds, HoldRow{"shop", c.OrderID, id})
	w.db.Payments = append(w.db.Payments, PaymentRow{
		ID: id, Identity: c.Identity(), ProviderKey: c.Identity().ProviderKey(1), State: payment.Review, Version: 1, Attempt: 1,
	})
	return &w.db.Payments[len(w.db.Payments)-1]
}

func (w *tables) judgeAll(running bool) Verdict {
	w.evidence.Offsets = append(w.evidence.Offsets, Offset{Topic: w.topics.Commands, Partition: 3, Committed: 90, End: 100})
	rules := w.rules()
	rules.Database = w.db
	if running {
		rules.Running = func(uuid.UUID, time.Time) bool { return true }
	}
	return Judge(w.file(), rules)
}

// Tables that agree with topics and ledger break nothing, at work or drained.
func TestTables_HoldForWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		w := newTables(t)
		w.paid()
		w.reviewed()
		if running {
			w.db.Outbox = append(w.db.Outbox, OutboxRow{ID: uuid.New(), Topic: w.topics.Events, CreatedAt: w.db.At})
		}
		require.Empty(t, w.judgeAll(running).Violations)
	}
}

// Each violation is planted into tables that agreed, and must be found.
func TestTables_FindPlantedViolations(t *testing.T) {
	t.Parallel()
	for name, spoil := range tablePlants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTables(t)
			w.paid()
			spoil(w)
			guarantee, _, _ := strings.Cut(name, " ")
			found := false
			for _, v := range w.judgeAll(false).Violations {
				found = found || v.Guarantee == guarantee
			}
			require.True(t, found)
		})
	}
}

var tablePlants = map[string]func(w *tables){
	"G1 commits may be lost":           func(w *tables) { w.db.Suspect = "a standby was promoted" },
	"G1 executed without a permit":     func(w *tables) { w.paid().Sends = 0 },
	"G1 another provider key":          func(w *tables) { w.paid().ProviderKey = uuid.New() },
	"G5 a message is stuck":            func(w *tables) { w.db.Outbox = []OutboxRow{{ID: uuid.New(), Topic: "t"}} },
	"G5 a message is parked":           func(w *tables) { w.db.Outbox = []OutboxRow{{ID: uuid.New(), CreatedAt: w.db.At, Parked: "too large"}} },
	"G5 nothing will look at it again": func(w *tables) { delete(w.db.Open, w.reviewed().ID) },
	"G5 its next check is never":       func(w *tables) { w.db.Open[w.reviewed().ID] = OpenRow{Never: true} },
	"G5 its check is late":             func(w *tables) { w.db.Open[w.reviewed().ID] = OpenRow{NextCheckAt: w.db.At.Add(-time.Hour)} },
	"G5 an event is missing":           func(w *tables) { w.paid().Version = 2 },
	"G6 a payment nobody asked for": func(w *tables) {
		c := w.command()
		w.db.Payments = append(w.db.Payments, PaymentRow{ID: uuid.New(), Identity: c.Identity(), State: payment.Succeeded})
	},
	"G6 charged and not in the database": func(w *tables) { w.paid(); w.db.Payments = w.db.Payments[:1] },
	"G7 the event says another end":      func(w *tables) { w.paid().State = payment.Declined },
	"G7 the event has another reference": func(w *tables) { w.paid().Reference = "ch_other" },
	"G7 the event's end is not stored":   func(w *tables) { w.paid().State = payment.Unknown },
	"G9 ended and open":                  func(w *tables) { w.db.Open[w.paid().ID] = OpenRow{NextCheckAt: w.db.At} },
	"G9 two ends in the history": func(w *tables) {
		w.db.Ends[w.paid().ID] = []payment.State{payment.Succeeded, payment.Declined}
	},
	"G9 the history says another end": func(w *tables) { w.db.Ends[w.paid().ID] = []payment.State{payment.Declined} },
	"G11 committed beyond the end": func(w *tables) {
		w.evidence.Offsets = []Offset{{Topic: w.topics.Commands, Partition: 3, Committed: 101, End: 100}}
	},
	"G11 committed and not claimed": func(w *tables) { w.db.Stored[w.topics.Commands][3] = 80 },
	"G11 claimed beyond the end":    func(w *tables) { w.db.Stored[w.topics.Commands][3] = 101 },
	"G15 open without its hold":     func(w *tables) { w.reviewed(); w.db.Holds = nil },
	"G15 a hold without a payment":  func(w *tables) { w.db.Holds = append(w.db.Holds, HoldRow{"shop", "o", uuid.New()}) },
}

// Every statement fits the tables that the migrations make.
func TestReadDatabase_ReadsAnInstallation(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema)
	d, err := ReadDatabase(t.Context(), pool, "settleonce-consumer")
	require.NoError(t, err)
	require.Empty(t, d.Payments)
	require.False(t, d.At.IsZero())
}

// No tables, or not all of them, is not the same as no violations.
func TestReadDatabase_RefusesWhatIsNotInstalled(t *testing.T) {
	t.Parallel()
	empty := pgtest.New(t, nil)
	_, err := ReadDatabase(t.Context(), empty, "g")
	require.ErrorIs(t, err, ErrNotInstalled)
	for _, spoil := range []string{
		"DROP TABLE settleonce.obligation_holds", "ALTER TABLE settleonce.payments DROP COLUMN sends", "DELETE FROM settleonce.installation",
	} {
		half := pgtest.New(t, pgtest.Schema)
		_, err := half.Exec(t.Context(), spoil)
		require.NoError(t, err)
		_, err = ReadDatabase(t.Context(), half, "g")
		require.ErrorIs(t, err, ErrNotInstalled, spoil)
	}
}
