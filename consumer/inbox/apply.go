package inbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// The marker is won first: a member that was taken for dead and still works on
// the same message makes this statement wait, and then find the marker (B14).
// now() is the transaction's, so both statements judge age alike (B15).
const (
	// A lock that others hold for long must be told from a handler that takes long: the
	// wait for it ends first, unless the service has a bound of its own.
	boundWaitsSQL = `SELECT set_config('lock_timeout', ceil(least(extract(epoch FROM nullif(current_setting('statement_timeout'), '0')::interval),
extract(epoch FROM $1::interval)) * 500)::text, true) WHERE current_setting('lock_timeout') = '0'`
	markSQL = `INSERT INTO settleonce_inbox.processed (consumer, id, at)
SELECT $1, g.id, g.at FROM unnest($2::uuid[], $3::timestamptz[]) AS g(id, at) WHERE g.at >= now() - $4::interval
ON CONFLICT DO NOTHING RETURNING id`
	staleSQL = `SELECT g.id FROM unnest($2::uuid[], $3::timestamptz[]) AS g(id, at) WHERE g.at < now() - $4::interval
AND NOT EXISTS (SELECT FROM settleonce_inbox.processed p WHERE p.consumer = $1 AND p.id = g.id)`
	versionsSQL = `SELECT payment, version FROM settleonce_inbox.versions WHERE consumer = $1 AND payment = ANY($2::uuid[])`
	advanceSQL  = `INSERT INTO settleonce_inbox.versions AS v (consumer, payment, version, at)
SELECT $1, g.payment, g.version, now() FROM unnest($2::uuid[], $3::int[]) AS g(payment, version)
ON CONFLICT (consumer, payment) DO UPDATE SET version = EXCLUDED.version, at = EXCLUDED.at WHERE v.version < EXCLUDED.version`
)

const (
	// notOurs says that no message is to blame.
	notOurs = -1
	// lockNotAvailable is what lock_timeout and NOWAIT end with.
	lockNotAvailable = "55P03"
	// queryCanceled, idleInTransaction and transactionTimeout are how the server stops
	// what takes too long.
	queryCanceled, idleInTransaction, transactionTimeout = "57014", "25P03", "25P04"
	// inTransaction is a session's state while none of its statements has failed.
	inTransaction = 'T'
)

// attempt is one transaction over a chunk of messages.
type attempt struct {
	in       *Inbox
	messages []*Message

	fresh, stale map[uuid.UUID]bool
	versions     map[uuid.UUID]int // as they were, and then as applied
	advanced     map[uuid.UUID]int
	applied      uint64
	missing      uint64
}

// apply runs the handler for what is new in the chunk and commits it with its
// markers. On failure nothing is done, and the index of the message that is to
// blame is returned, or notOurs.
func (in *Inbox) apply(ctx context.Context, chunk []*kafka.Delivery) (bad int, err error) {
	a := &attempt{in: in, fresh: map[uuid.UUID]bool{}, stale: map[uuid.UUID]bool{}, versions: map[uuid.UUID]int{}, advanced: map[uuid.UUID]int{}}
	for i, d := range chunk {
		m, err := read(&d.Record)
		if err != nil {
			return i, err
		}
		a.messages = append(a.messages, m)
	}
	ctx, cancel := context.WithTimeout(ctx, in.cfg.Timeout)
	defer cancel()
	tx, err := in.cfg.Pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return notOurs, fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	if err := a.mark(ctx, tx); err != nil {
		return notOurs, err
	}
	crashpoint.Here(crashpoint.InboxMarked)
	if bad, err := a.handle(ctx, tx); err != nil {
		return bad, err
	}
	crashpoint.Here(crashpoint.InboxHandled)
	// What is done is committed, also where the handler was late. A revoked partition must
	// not make the commit unknown. If its answer is lost all the same, the markers tell the
	// next try what became of it.
	commitCtx, cancelCommit := context.WithTimeout(context.WithoutCancel(ctx), in.cfg.Timeout)
	defer cancelCommit()
	if err := a.advance(commitCtx, tx); err != nil {
		return notOurs, err
	}
	crashpoint.Here(crashpoint.InboxAdvanced)
	if err := tx.Commit(commitCtx); err != nil {
		return a.blameCommit(err), fmt.Errorf("commit: %w", err)
	}
	crashpoint.Here(crashpoint.InboxCommitted)
	a.count()
	return 0, nil
}

// blameCommit finds the message whose deferred constraint fails at the commit, by
// halving.
func (a *attempt) blameCommit(err error) int {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || passing(pgErr.Code) {
		return notOurs
	}
	return len(a.messages) / 2
}

// mark wins the markers of what is new, and reads what else is known.
func (a *attempt) mark(ctx context.Context, tx pgx.Tx) error {
	ids, times := make([]uuid.UUID, len(a.messages)), make([]time.Time, len(a.messages))
	var payments []uuid.UUID
	for i, m := range a.messages {
		ids[i], times[i] = m.ID, m.Time
		if m.event != nil {
			payments = append(payments, m.event.PaymentID)
		}
	}
	name, kept := a.in.cfg.Name, a.in.cfg.Retention
	batch := &pgx.Batch{}
	batch.Queue(boundWaitsSQL, a.in.cfg.Timeout)
	collect := func(into map[uuid.UUID]bool) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			var id uuid.UUID
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				into[id] = true
				return nil
			})
			return err
		}
	}
	batch.Queue(markSQL, name, ids, times, kept).Query(collect(a.fresh))
	batch.Queue(staleSQL, name, ids, times, kept).Query(collect(a.stale))
	if len(payments) > 0 {
		batch.Queue(versionsSQL, name, payments).Query(func(rows pgx.Rows) error {
			var id uuid.UUID
			var version int
			_, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error {
				a.versions[id] = version
				return nil
			})
			return err
		})
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("look for markers: %w", err)
	}
	return nil
}

// handle calls the handler for each new message, in order.
func (a *attempt) handle(ctx context.Context, tx pgx.Tx) (bad int, err error) {
	for i, m := range a.messages {
		if a.stale[m.ID] {
			return i, &poison{reason: payment.DeadStale, err: errors.New(
				"the message is older than markers are kept, so nobody knows whether it was applied; look before it is sent again with a new ce_id and ce_time")}
		}
		if !a.fresh[m.ID] {
			continue
		}
		delete(a.fresh, m.ID) // a second one in this chunk is a repetition
		a.applied++
		a.follow(m)
		if err := a.in.cfg.Handler(ctx, handlerTx{tx}, m); err != nil {
			return a.blame(ctx, i, tx, err), fmt.Errorf("handle %s %s: %w", m.Type, m.ID, err)
		}
		if tx.Conn().PgConn().TxStatus() != inTransaction {
			return i, fmt.Errorf("handle %s %s: the handler returned nil although a statement of it failed", m.Type, m.ID)
		}
	}
	return 0, nil
}

// follow notices events that are missing before this one.
func (a *attempt) follow(m *Message) {
	if m.event == nil {
		return
	}
	last := a.versions[m.event.PaymentID]
	if m.event.Version <= last {
		return // sent again after a later one was applied
	}
	a.versions[m.event.PaymentID], a.advanced[m.event.PaymentID] = m.event.Version, m.event.Version
	if m.Missing = m.event.Version - last - 1; m.Missing > 0 {
		a.missing += uint64(m.Missing)
	}
}

// advance stores the versions, in one order, so that two members cannot block
// each other.
func (a *attempt) advance(ctx context.Context, tx pgx.Tx) error {
	if len(a.advanced) == 0 {
		return nil
	}
	payments := slices.SortedFunc(maps.Keys(a.advanced), func(x, y uuid.UUID) int { return slices.Compare(x[:], y[:]) })
	versions := make([]int, len(payments))
	for i, id := range payments {
		versions[i] = a.advanced[id]
	}
	if _, err := tx.Exec(ctx, advanceSQL, a.in.cfg.Name, payments, versions); err != nil {
		return fmt.Errorf("store versions: %w", err)
	}
	return nil
}

// count tells of what was committed.
func (a *attempt) count() {
	s := &a.in.stats
	s.applied.Add(a.applied)
	s.repeated.Add(uint64(len(a.messages)) - a.applied)
	s.missing.Add(a.missing)
	for _, m := range a.messages {
		if m.Missing > 0 {
			a.in.log.Error().Int("missing", m.Missing).Stringer("payment", m.event.PaymentID).Int("version", m.event.Version).
				Msg("events of a payment were never seen, look for them in the topic and in the dead letters")
		}
	}
}

// blame is the message's index, unless the database itself is in trouble, which
// is waited out (G5: an innocent message is no dead letter). A handler that takes too
// long loses its connection by that, just as one whose network fell silent does: it is
// to blame if the database answers others meanwhile.
func (a *attempt) blame(ctx context.Context, index int, tx pgx.Tx, err error) int {
	pgErr, said := errors.AsType[*pgconn.PgError](err)
	late := pgconn.Timeout(err) || errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case said && tooLate(pgErr.Code), !said && late && tx.Conn().IsClosed():
		if a.in.databaseAnswers(ctx) {
			return index
		}
		return notOurs
	case said && passing(pgErr.Code), tx.Conn().IsClosed():
		return notOurs
	default:
		return index
	}
}

// tooLate are the codes by which the server stops what takes too long, a wait for a
// lock apart.
func tooLate(code string) bool {
	return code == queryCanceled || code == idleInTransaction || code == transactionTimeout
}

// databaseAnswers tries the database apart from the transaction under way.
func (in *Inbox) databaseAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), in.cfg.Timeout)
	defer cancel()
	return in.cfg.Pool.Ping(ctx) == nil
}

// passing are the classes of errors that say nothing about the message:
// connections, transactions that have to be run again, resources, operators, the system;
// and a lock that was not free in time.
func passing(code string) bool {
	return code == lockNotAvailable || len(code) == 5 && slices.Contains([]string{"08", "40", "53", "57", "58"}, code[:2])
}

// conflicts reports whether a transaction was in the way of another one: a deadlock, or a
// serialization failure.
func conflicts(err error) bool {
	pgErr, said := errors.AsType[*pgconn.PgError](err)
	return said && strings.HasPrefix(pgErr.Code, "40")
}

// handlerTx is the transaction as a handler sees it: it may not end it, and
// nested ones are savepoints as usual.
type handlerTx struct{ pgx.Tx }

// Commit is refused.
func (handlerTx) Commit(context.Context) error { return errEnded }

// Rollback is refused.
func (handlerTx) Rollback(context.Context) error { return errEnded }
