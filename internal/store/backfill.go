package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/payment"
)

// Imported is one payment of an older system.
type Imported struct {
	// Command is its content. The key is its own or payment.ImportedKey; CustomerID
	// and PaymentMethod may be unknown.
	Command     payment.Command
	Fingerprint payment.Fingerprint
	// Namespace is the obligation's. Registered says that it is from the table of
	// callers: it is compared with that when the row is stored.
	Namespace  string
	Registered bool
	// State is Succeeded, Declined, or Review for one without an outcome.
	State payment.State
	// ProviderKey is the key its provider knows it by. The nil UUID: not known; then
	// nobody ever asks the provider, whose "not found" would mean nothing.
	ProviderKey uuid.UUID
	// ChannelIdentity is the provider's account, where it is known.
	ChannelIdentity   string
	ProviderReference string
	Cause             string
	// EndedAt is when it got its outcome; zero: now, which lets no older command
	// of its obligation pass (G15).
	EndedAt time.Time
	// Ask lets the slow watch ask the provider about one without an outcome.
	Ask bool
}

// id is the payment's.
func (r *Imported) id() uuid.UUID { return r.Command.Identity().PaymentID() }

// Taken is what became of an imported payment.
type Taken int

// What becomes of imported payments. Nothing that is stored is overwritten,
// except that a review that an import opened is ended by its source's outcome.
const (
	// TakenNew: it was not there, and is now.
	TakenNew Taken = iota + 1
	// TakenBefore: it is there as it should be.
	TakenBefore
	// TakenOutcome: it was imported without an outcome, which its source has now.
	TakenOutcome
	// RefusedContent: its key is another payment's (G8).
	RefusedContent
	// RefusedOutcome: it was imported with another outcome, which stays (G9).
	RefusedOutcome
	// RefusedLive: its key was charged, or refused, here, and that stays.
	RefusedLive
	// RefusedUnstorable: the database does not take it.
	RefusedUnstorable
)

// Progress is how far a source was taken.
type Progress struct {
	Source string
	// Position is the last row, as the source counts; "" is its beginning. Content
	// says of which content.
	Position, Content string
	// Read and Refused are counts since the beginning; taken is what is left.
	Read, Refused int64
	// Finished says that this was all.
	Finished bool
}

// importedTopic begins the origin of an imported payment: it came with no record.
const importedTopic = "import:"

// importActor signs what an import does.
const importActor = "backfill"

// noIdentity is the channel identity of payments whose provider cannot be asked.
// No configured channel has it.
const noIdentity = "imported"

// Import stores payments of an older system, and how far their source was taken,
// in one transaction of its own. No row of others is locked, and nothing is
// published: what is imported is no news. It returns what became of each row.
// Outcomes of reviews go through the finalizer first: the position never passes a
// row whose outcome is not stored yet (G5).
func (s *Store) Import(ctx context.Context, rows []Imported, progress *Progress) ([]Taken, error) {
	taken, kept, err := s.importOrBisect(ctx, rows, progress, true)
	if err != nil {
		return nil, err
	}
	if err := s.importOutcomes(ctx, rows, taken); err != nil {
		return nil, err
	}
	if !kept {
		_, _, err = s.importOrBisect(ctx, nil, progress, true)
	}
	return taken, err
}

// importOrBisect keeps one row that the database refuses from failing the others.
// kept says that the progress was stored too, which only a transaction does that has
// all rows, and no outcome to be stored after it.
func (s *Store) importOrBisect(ctx context.Context, rows []Imported, progress *Progress, keep bool) (taken []Taken, kept bool, err error) {
	err = retry(ctx, func() error {
		var err error
		taken, kept, err = s.importBatch(ctx, rows, progress, keep)
		return err
	})
	switch {
	case err == nil:
		return taken, kept, nil
	case !badData(err) || len(rows) == 0:
		return nil, false, fmt.Errorf("import %d payments: %w", len(rows), err)
	case len(rows) == 1:
		return []Taken{RefusedUnstorable}, false, nil
	}
	half := len(rows) / 2
	first, _, err := s.importOrBisect(ctx, rows[:half], progress, false)
	if err != nil {
		return nil, false, err
	}
	second, _, err := s.importOrBisect(ctx, rows[half:], progress, false)
	return append(first, second...), false, err
}

// importBatch is one transaction.
func (s *Store) importBatch(ctx context.Context, rows []Imported, progress *Progress, keep bool) (taken []Taken, kept bool, err error) {
	run := newImportRun(rows)
	run.source = progress.Source
	err = s.inTx(ctx, func(b *pgx.Batch) {
		run.queueCallers(b)
		run.queueInsert(b)
		run.queueKnown(b)
	}, func(b *pgx.Batch) error {
		if run.moved {
			return errMoved
		}
		taken = run.judge()
		if kept = keep && !slices.Contains(taken, TakenOutcome); kept {
			queueProgress(b, progress)
		}
		return nil
	})
	return taken, kept, err
}

// ImportPreview returns what Import would do, and does nothing.
func (s *Store) ImportPreview(ctx context.Context, rows []Imported) ([]Taken, error) {
	run := newImportRun(rows)
	err := retry(ctx, func() error {
		b := &pgx.Batch{}
		run.queueKnown(b)
		return s.pool.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, fmt.Errorf("look up %d payments: %w", len(rows), err)
	}
	for _, i := range run.order {
		if _, ok := run.known[run.ids[i]]; !ok {
			run.inserted[run.ids[i]] = true
		}
	}
	return run.judge(), nil
}

// importRun is the state of one import transaction.
type importRun struct {
	source string
	rows   []Imported
	ids    []uuid.UUID
	// order are the first rows of each payment, sorted like those of a claim: two
	// transactions that meet wait, and do not deadlock.
	order    []int
	first    map[uuid.UUID]int
	inserted map[uuid.UUID]bool
	known    map[uuid.UUID]Payment
	moved    bool // a caller has another namespace than its rows
}

func newImportRun(rows []Imported) *importRun {
	run := &importRun{
		rows: rows, ids: make([]uuid.UUID, len(rows)), first: make(map[uuid.UUID]int, len(rows)),
		inserted: make(map[uuid.UUID]bool, len(rows)), known: make(map[uuid.UUID]Payment),
	}
	for i := range rows {
		id := rows[i].id()
		run.ids[i] = id
		if _, ok := run.first[id]; !ok {
			run.first[id] = i
			run.order = append(run.order, i)
		}
	}
	slices.SortFunc(run.order, func(a, b int) int { return slices.Compare(run.ids[a][:], run.ids[b][:]) })
	return run
}

// judge says of each row what became of it.
func (run *importRun) judge() []Taken {
	taken := make([]Taken, len(run.rows))
	for i := range run.rows {
		id := run.ids[i]
		switch known, ok := run.known[id]; {
		case run.inserted[id] && run.first[id] == i:
			taken[i] = TakenNew
		case ok:
			taken[i] = compareImported(&known, &run.rows[i])
		default: // a second row of a payment that this very batch previews
			first := run.rows[run.first[id]].stored()
			taken[i] = compareImported(&first, &run.rows[i])
		}
	}
	return taken
}

// stored is the row as far as rows are compared.
func (r *Imported) stored() Payment {
	c := &r.Command
	return Payment{
		Origin: Origin{Topic: importedTopic}, OrderID: c.OrderID, Obligation: c.ObligationOrDefault(), Amount: c.Amount, Currency: c.Currency,
		CustomerID: c.CustomerID, PaymentMethod: c.PaymentMethod, Channel: c.Channel, State: r.State,
		ProviderReference: clean(r.ProviderReference),
	}
}

// compareImported says what a row is to a payment that is stored under its key.
func compareImported(p *Payment, r *Imported) Taken {
	imported := strings.HasPrefix(p.Origin.Topic, importedTopic)
	row := r.stored()
	sameOutcome := p.State == row.State && (p.ProviderReference == row.ProviderReference || row.ProviderReference == "")
	switch {
	case !sameKnownContent(p, &row):
		return RefusedContent
	case sameOutcome || row.State == payment.Review:
		return TakenBefore // what is stored knows as much, or more
	case !imported:
		return RefusedLive
	case p.State == payment.Review:
		return TakenOutcome
	default:
		return RefusedOutcome
	}
}

// sameKnownContent compares what both know.
func sameKnownContent(a, b *Payment) bool {
	known := func(x, y string) bool { return x == y || x == "" || y == "" }
	return a.OrderID == b.OrderID && a.Obligation == b.Obligation && a.Amount == b.Amount && a.Currency == b.Currency &&
		a.Channel == b.Channel && known(a.CustomerID, b.CustomerID) && known(a.PaymentMethod, b.PaymentMethod)
}

// importOutcomes ends the reviews whose source has the outcome now, as any other
// evidence would: by the finalizer, with its event. Their names come first: no later
// run would bring them. A row that cannot be stored does not stop the others.
func (s *Store) importOutcomes(ctx context.Context, rows []Imported, taken []Taken) error {
	var steps []Step
	var of []int
	var channels, references []string
	var ids []uuid.UUID
	for i := range rows {
		if taken[i] == TakenOutcome {
			id := rows[i].id()
			steps, of, ids = append(steps, Step{Payment: id, Decide: rows[i].end}), append(of, i), append(ids, id)
			channels, references = append(channels, rows[i].Command.Channel), append(references, clean(rows[i].ProviderReference))
		}
	}
	if len(steps) == 0 {
		return nil
	}
	if _, err := s.pool.Exec(ctx, nameOutcomes, channels, references, pgUUIDs(ids)); err != nil {
		return fmt.Errorf("name what is resolved: %w", err)
	}
	applied, err := s.Apply(ctx, steps)
	if err != nil {
		return err
	}
	for j := range applied {
		switch i := of[j]; {
		case applied[j].Err != nil:
			taken[i] = RefusedUnstorable
		case applied[j].Change == nil: // somebody was faster, and may know otherwise (G9)
			taken[i] = compareImported(&applied[j].After, &rows[i])
		}
	}
	return nil
}

func (r *Imported) end(l Locked) *Change {
	if l.Payment.State != payment.Review {
		return nil
	}
	event := payment.EventSucceeded
	if r.State == payment.Declined {
		event = payment.EventDeclined
	}
	return &Change{
		To: r.State, Reference: r.ProviderReference, Cause: r.Cause, Event: event, Reply: payment.ReplyOutcome,
		CloseReviews: "the system it was imported from has the outcome", Actor: importActor,
	}
}

// importOffset stands for an offset where ids of replies are derived: one per payment.
func importOffset(id uuid.UUID) int64 { return int64(binary.BigEndian.Uint64(id[:8]) >> 1) }
