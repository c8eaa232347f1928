package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ErrCallersChanged says that a caller was changed or shut out after its command
// was judged: judge the batch again and claim it again, under the same lease.
var ErrCallersChanged = errors.New("a caller was changed after its command was judged")

// callersLock keeps a change of namespaces and the claims apart. Claims share it,
// in memory of the server; no row is written for it.
const callersLock int64 = 7270912646313543

// queueCallers compares the callers of a batch with the table, as a statement of
// the claim itself: two workers can never judge one caller by two namespaces (G15),
// however old what they know is.
func (run *claimRun) queueCallers(b *pgx.Batch) {
	var places callerPlaces
	for _, i := range run.order {
		places.add(run.arrivals[i].Identity.Caller, run.arrivals[i].Namespace)
	}
	places.compare(b, "AND c.revoked_at IS NULL", &run.strangers)
}

// errMoved stops an import: the rest would come into a namespace where it keeps no
// order from being paid twice.
var errMoved = fmt.Errorf("a caller has another namespace than when the run began, run it again: %w", ErrCallersChanged)

// queueCallers is the same for an import, whose run may take hours (G15). A caller that
// was shut out keeps what it paid.
func (run *importRun) queueCallers(b *pgx.Batch) {
	var places callerPlaces
	for _, i := range run.order {
		if r := &run.rows[i]; r.Registered {
			places.add(r.Command.Caller, r.Namespace)
		}
	}
	if len(places.names) == 0 {
		return
	}
	places.compare(b, "", &run.moved)
}

// callerPlaces are callers and their namespaces, each pair once.
type callerPlaces struct{ names, namespaces []string }

func (p *callerPlaces) add(name, namespace string) {
	for i := range p.names {
		if p.names[i] == name && p.namespaces[i] == namespace {
			return
		}
	}
	p.names, p.namespaces = append(p.names, name), append(p.namespaces, namespace)
}

// compare asks, under the shared lock, whether one of them is not in the table like that;
// and is a further condition on the row there.
func (p *callerPlaces) compare(b *pgx.Batch, and string, differ *bool) {
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1)`, callersLock)
	b.Queue(`SELECT count(*) <> cardinality($1::text[]) FROM unnest($1::text[], $2::text[]) AS u(name, ns)
		JOIN settleonce.callers c ON c.name = ANY (ARRAY[u.name]) WHERE c.namespace = u.ns `+and, p.names, p.namespaces).
		QueryRow(func(row pgx.Row) error { return row.Scan(differ) })
}

// NamespaceError says that a caller has payments in another namespace, which would
// no longer stand in the way of a second payment of their orders (G15).
type NamespaceError struct {
	Caller, Namespace, Wanted string
	Payment                   uuid.UUID
	Since                     time.Time
}

// Error says what to do.
func (e *NamespaceError) Error() string {
	return fmt.Sprintf("caller %s has payments in namespace %s (one is %s, of %s), and in namespace %s they would not keep their orders from being paid twice: "+
		"keep namespace %s, or use another caller name, or wait until retention has removed the caller's last payment",
		e.Caller, e.Namespace, e.Payment, e.Since.UTC().Format(time.RFC3339), e.Wanted, e.Namespace)
}

// InNamespace runs write in a transaction that gives a caller its namespace,
// unless a payment of the caller that is open or remembered is in another one: the
// error is then a *NamespaceError. Claims that compare callers with the table wait
// meanwhile, and see the change. It reads the table of payments once, beside the
// claims, which takes as long as the table is large.
func (s *Store) InNamespace(ctx context.Context, caller, namespace string, write func(context.Context, pgx.Tx) error) error {
	var began time.Time
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		// There is no index for it, and no need for one; the session's settings are for
		// statements that have one.
		if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = on`); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&began); err != nil {
			return err
		}
		return elsewhere(ctx, tx, caller, namespace, time.Unix(0, 0))
	})
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, callersLock); err != nil {
			return fmt.Errorf("wait for the claims under way: %w", err)
		}
		// What was claimed during the look; a minute more for transactions that began before.
		if err := elsewhere(ctx, tx, caller, namespace, began.Add(-time.Minute)); err != nil {
			return err
		}
		return write(ctx, tx)
	})
}

// elsewhere returns a *NamespaceError for a payment that owns an obligation of
// another namespace.
func elsewhere(ctx context.Context, tx pgx.Tx, caller, namespace string, since time.Time) error {
	found := NamespaceError{Caller: caller, Wanted: namespace}
	var id pgtype.UUID
	err := tx.QueryRow(ctx, `SELECT id, namespace, created_at FROM settleonce.payments
		WHERE created_at >= $3 AND caller = $1 AND namespace <> $2 AND obligation_hash IS NOT NULL LIMIT 1`, caller, namespace, since).
		Scan(&id, &found.Namespace, &found.Since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for payments of caller %s in other namespaces: %w", caller, err)
	}
	found.Payment = id.Bytes
	return &found
}

// OpenElsewhere looks for an open payment whose caller has another namespace by
// now, by the given map; a caller that is not in it is its own namespace where
// anyone is set, else it is left out, since nothing new is taken from it. The error
// is a *NamespaceError: its hold would not be seen (G15).
func (s *Store) OpenElsewhere(ctx context.Context, namespaces map[string]string, anyone bool) error {
	names, spaces := make([]string, 0, len(namespaces)), make([]string, 0, len(namespaces))
	for name, namespace := range namespaces {
		names, spaces = append(names, name), append(spaces, namespace)
	}
	var found NamespaceError
	var id pgtype.UUID
	err := s.pool.QueryRow(ctx, `
		SELECT p.id, p.caller, p.namespace, coalesce(u.ns, p.caller), p.created_at
		FROM settleonce.open_payments o JOIN settleonce.payments p ON p.id = ANY (ARRAY[o.payment])
		LEFT JOIN unnest($1::text[], $2::text[]) AS u(name, ns) ON u.name = p.caller
		WHERE p.namespace <> CASE WHEN u.ns IS NOT NULL THEN u.ns WHEN $3 THEN p.caller ELSE p.namespace END LIMIT 1`, names, spaces, anyone).
		Scan(&id, &found.Caller, &found.Namespace, &found.Wanted, &found.Since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("compare the namespaces of open payments: %w", err)
	}
	found.Payment = id.Bytes
	return &found
}

// CallerNames lists the table of callers, those that are shut out too.
func (s *Store) CallerNames(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, `SELECT name FROM settleonce.callers ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list the callers: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the callers: %w", err)
	}
	return names, nil
}
