package callers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/settleonce/settleonce/internal/store"
)

// find returns a caller, nil when there is none.
func (r *Registry) find(ctx context.Context, name string) (*Caller, error) {
	c, err := scanCaller(r.pool.QueryRow(ctx, selectCallers+` WHERE name = $1`, name))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil //nolint:nilnil // no caller is an answer
	case err != nil:
		return nil, fmt.Errorf("look caller %s up: %w", name, err)
	}
	return &c, nil
}

// change runs in a transaction that has the caller's row locked.
func (r *Registry) change(ctx context.Context, name string, write func(pgx.Tx, Caller) error) error {
	return r.explain(pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		c, err := lock(ctx, tx, name)
		if err != nil {
			return err
		}
		return write(tx, c)
	}))
}

// explain leaves sentences alone and names the rest.
func (r *Registry) explain(err error) error {
	if err == nil || errors.Is(err, ErrRefused) {
		return err
	}
	if elsewhere, ok := errors.AsType[*store.NamespaceError](err); ok {
		return refusal{elsewhere}
	}
	return fmt.Errorf("change the callers: %w", err)
}

func unknownCaller(name string) error {
	return refusef("caller %s is not there: see `settleonce callers list`, or add it with `settleonce callers add %s`", name, name)
}

func lock(ctx context.Context, tx pgx.Tx, name string) (Caller, error) {
	c, err := scanCaller(tx.QueryRow(ctx, selectCallers+` WHERE name = $1 FOR UPDATE`, name))
	if errors.Is(err, pgx.ErrNoRows) {
		return c, unknownCaller(name)
	}
	return c, err
}

// put writes a caller, new or not.
func put(ctx context.Context, tx pgx.Tx, c Caller) error {
	_, err := tx.Exec(ctx, `INSERT INTO settleonce.callers (name, namespace, rate, burst, require_issued_at, grace_until)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (name) DO UPDATE SET namespace = $2, rate = $3, burst = $4, require_issued_at = $5, grace_until = $6,
			revoked_at = CASE WHEN $7 THEN callers.revoked_at END`,
		c.Name, c.Namespace, c.Rate, c.Burst, c.RequireIssuedAt, pgtype.Timestamptz{Time: c.GraceUntil, Valid: !c.GraceUntil.IsZero()}, c.Revoked)
	return err
}

func issue(ctx context.Context, tx pgx.Tx, caller, credential string) (Issued, error) {
	bearer, id, hash, err := newKey()
	if err != nil {
		return Issued{}, err
	}
	_, err = tx.Exec(ctx, `INSERT INTO settleonce.caller_keys (id, caller, credential, hash) VALUES ($1, $2, $3, $4)`, id, caller, credential, hash)
	return Issued{Caller: caller, Credential: credential, ID: id, Bearer: bearer}, err
}

// validKeys are the ids of the keys of a credential that count, the oldest first.
func validKeys(ctx context.Context, tx pgx.Tx, caller, credential string) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT id FROM settleonce.caller_keys WHERE caller = $1 AND credential = $2 AND revoked_at IS NULL
		AND (expires_at IS NULL OR expires_at > clock_timestamp()) ORDER BY created_at, id`, caller, credential)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// fieldCaller names the caller in the details of an audit row.
const fieldCaller = "caller"

func audit(ctx context.Context, tx pgx.Tx, by By, action string, detail map[string]any) error {
	_, err := tx.Exec(ctx, `INSERT INTO settleonce.audit (actor, action, reason, detail) VALUES ($1, $2, $3, $4)`, by.Actor, action, by.Reason, detail)
	return err
}

func auditOf(c Caller, credential, key string) map[string]any {
	detail := map[string]any{
		fieldCaller: c.Name, "namespace": c.Namespace, "rate": c.Rate, "burst": c.Burst, "requireIssuedAt": c.RequireIssuedAt,
	}
	if !c.GraceUntil.IsZero() {
		detail["graceUntil"] = c.GraceUntil
	}
	if key != "" {
		detail["credential"], detail["key"] = credential, key
	}
	return detail
}
