package check

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settleonce/settleonce/payment"
)

// Database is what the tables say at one moment.
type Database struct {
	// At is that moment, by the database's clock.
	At       time.Time
	Payments []PaymentRow
	Open     map[uuid.UUID]OpenRow
	Holds    []HoldRow
	Outbox   []OutboxRow
	// Callbacks are those whose payment was found.
	Callbacks []CallbackRow
	// Permits are those of payments that were declined.
	Permits map[uuid.UUID]PermitRow
	// Unanswered are the payments that went to review for want of an answer to three
	// queries, each with how many of those had none at all.
	Unanswered map[uuid.UUID]int
	// Ends are the terminal states that the history tells of each payment, in order.
	Ends map[uuid.UUID][]payment.State
	// Stored is the offset behind the last claimed record, of one consumer group.
	Stored map[string]map[int]int64
	// Suspect says why commits may be lost, and is empty when all is well.
	Suspect string
	// Recovered is when somebody acknowledged last that commits may be lost; zero for
	// never.
	Recovered time.Time
}

// PaymentRow is one payment.
type PaymentRow struct {
	ID          uuid.UUID
	Identity    payment.Identity
	ProviderKey uuid.UUID
	State       payment.State
	Version     int
	Attempt     int
	Sends       int
	Reference   string
	// Imported says that it came from an older system: no command in a topic asked
	// for it, its charge has a key of that system, and its end was no news.
	Imported bool
}

// OpenRow is what an unresolved payment waits for.
type OpenRow struct {
	NextCheckAt time.Time
	// Never says that the next check is at no finite time.
	Never bool
}

// HoldRow is who holds an obligation.
type HoldRow struct {
	Namespace, Obligation string
	Payment               uuid.UUID
}

// OutboxRow is a message on its way.
type OutboxRow struct {
	ID        uuid.UUID
	Topic     string
	Key       string
	CreatedAt time.Time
	Parked    string
}

// CallbackRow is what a provider told us, and what it came to.
type CallbackRow struct {
	Channel    string
	Payment    uuid.UUID
	ReceivedAt time.Time
	// Kind is what it is about, as in channel.CallbackKind.
	Kind string
	// Result is empty where it came to nothing yet.
	Result string
}

// ErrNotInstalled says that the database has not all the tables, or other ones.
var ErrNotInstalled = errors.New("the database does not have the tables of this version: run `settleonce migrate` first")

// Queryer is a connection or pool of Postgres.
type Queryer interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// ReadDatabase reads everything in one read-only snapshot. Errors are those of the
// connection, or ErrNotInstalled.
func ReadDatabase(ctx context.Context, db Queryer, group string) (*Database, error) {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	d := &Database{Open: map[uuid.UUID]OpenRow{}, Ends: map[uuid.UUID][]payment.State{}, Stored: map[string]map[int]int64{}}
	for _, read := range []func(context.Context, pgx.Tx) error{
		patiently, d.readInstallation, d.readPayments, d.readOpen, d.readHolds, d.readOutbox, d.readEnds, d.readCallbacks, d.readPermits, d.readUnasked,
		func(ctx context.Context, tx pgx.Tx) error { return d.readStored(ctx, tx, group) },
	} {
		if err := read(ctx, tx); err != nil {
			return nil, installed(err)
		}
	}
	return d, nil
}

// installed tells a missing table, column or row from other errors.
func installed(err error) error {
	var server *pgconn.PgError
	missing := errors.As(err, &server) && (server.Code == "42P01" || server.Code == "42703" || server.Code == "3F000")
	if missing || errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	return fmt.Errorf("read the database: %w", err)
}

// patiently lifts the bound on statements: whole tables are read here.
func patiently(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0")
	return err
}

func (d *Database) readInstallation(ctx context.Context, tx pgx.Tx) error {
	var recovered *time.Time
	err := tx.QueryRow(ctx, `SELECT clock_timestamp(), suspect, (SELECT max(at) FROM settleonce.audit WHERE action = 'recover')
		FROM settleonce.installation`).Scan(&d.At, &d.Suspect, &recovered)
	if recovered != nil {
		d.Recovered = *recovered
	}
	return err
}

func (d *Database) readPayments(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id, caller, operation, idempotency_key, provider_key, state, version, attempt, sends,
		coalesce(provider_reference, ''), origin_topic LIKE 'import:%' FROM settleonce.payments ORDER BY created_at`)
	if err != nil {
		return err
	}
	var p PaymentRow
	var operation string
	var state int16
	_, err = pgx.ForEachRow(rows, []any{
		&p.ID, &p.Identity.Caller, &operation, &p.Identity.Key, &p.ProviderKey, &state, &p.Version, &p.Attempt, &p.Sends, &p.Reference,
		&p.Imported,
	}, func() error {
		p.Identity.Operation, p.State = operation, payment.State(state)
		d.Payments = append(d.Payments, p)
		return nil
	})
	return err
}

func (d *Database) readOpen(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT payment, NOT isfinite(next_check_at),
		CASE WHEN isfinite(next_check_at) THEN next_check_at ELSE opened_at END FROM settleonce.open_payments`)
	if err != nil {
		return err
	}
	var id uuid.UUID
	var o OpenRow
	_, err = pgx.ForEachRow(rows, []any{&id, &o.Never, &o.NextCheckAt}, func() error {
		d.Open[id] = o
		return nil
	})
	return err
}

func (d *Database) readHolds(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT namespace, obligation, payment FROM settleonce.obligation_holds")
	if err != nil {
		return err
	}
	var h HoldRow
	_, err = pgx.ForEachRow(rows, []any{&h.Namespace, &h.Obligation, &h.Payment}, func() error {
		d.Holds = append(d.Holds, h)
		return nil
	})
	return err
}

func (d *Database) readOutbox(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT id, aggregatetype, coalesce(encode(aggregateid, 'escape'), ''), created_at, coalesce(parked_reason, '')
		FROM settleonce.outbox ORDER BY seq`)
	if err != nil {
		return err
	}
	var o OutboxRow
	_, err = pgx.ForEachRow(rows, []any{&o.ID, &o.Topic, &o.Key, &o.CreatedAt, &o.Parked}, func() error {
		d.Outbox = append(d.Outbox, o)
		return nil
	})
	return err
}

func (d *Database) readEnds(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT payment, state FROM settleonce.payment_history WHERE state >= 4 ORDER BY at")
	if err != nil {
		return err
	}
	var id uuid.UUID
	var state int16
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		d.Ends[id] = append(d.Ends[id], payment.State(state))
		return nil
	})
	return err
}

func (d *Database) readCallbacks(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, "SELECT channel, payment, received_at, kind, coalesce(result, '') FROM settleonce.callbacks WHERE matched AND payment IS NOT NULL")
	if err != nil {
		return err
	}
	var c CallbackRow
	_, err = pgx.ForEachRow(rows, []any{&c.Channel, &c.Payment, &c.ReceivedAt, &c.Kind, &c.Result}, func() error {
		d.Callbacks = append(d.Callbacks, c)
		return nil
	})
	return err
}

func (d *Database) readStored(ctx context.Context, tx pgx.Tx, group string) error {
	rows, err := tx.Query(ctx, "SELECT topic, partition, next_offset FROM settleonce.consumed_offsets WHERE consumer_group = $1", group)
	if err != nil {
		return err
	}
	var topic string
	var partition int
	var next int64
	_, err = pgx.ForEachRow(rows, []any{&topic, &partition, &next}, func() error {
		if d.Stored[topic] == nil {
			d.Stored[topic] = map[int]int64{}
		}
		d.Stored[topic][partition] = next
		return nil
	})
	return err
}
