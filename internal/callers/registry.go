package callers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// DefaultCredential is the credential that needs no name.
const DefaultCredential = "default"

// validAtOnce is how many keys of one credential count at a time: the new one, and
// the one it replaces.
const validAtOnce = 2

// ErrRefused marks what is refused because of the request itself, not because of
// the database.
var ErrRefused = errors.New("refused")

// refusal is a sentence that says what to do instead.
type refusal struct{ error }

// Is matches ErrRefused.
func (refusal) Is(target error) bool { return target == ErrRefused }

// Unwrap gives errors.As the reason.
func (r refusal) Unwrap() error { return r.error }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// By is who changes something and why, for the audit.
type By struct {
	Actor, Reason string
}

// Change is what to set of a caller; nil leaves a field as it is.
type Change struct {
	Namespace       *string
	Rate            *float64
	Burst           *int
	RequireIssuedAt *bool
	GraceUntil      *time.Time // zero ends the grace
}

// empty reports whether nothing is to be set.
func (c Change) empty() bool { return c == Change{} }

// Key is one row of the table of keys.
type Key struct {
	ID         string     `json:"id"`
	Credential string     `json:"credential"`
	CreatedAt  time.Time  `json:"createdAt"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"`
	RevokedAt  *time.Time `json:"revokedAt,omitempty"`
	// State is valid, expiring, expired or revoked, by the database's clock.
	State string `json:"state"`
}

// Issued is a new key. Bearer is shown once: only its hash is kept.
type Issued struct {
	Caller     string `json:"caller"`
	Credential string `json:"credential"`
	ID         string `json:"id"`
	Bearer     string `json:"key"`
	// Until is when the key that this one replaces stops counting.
	Until *time.Time `json:"oldKeyUntil,omitempty"`
}

// Entry is a caller with its keys.
type Entry struct {
	Caller

	CreatedAt time.Time
	Keys      []Key
}

// Registry changes the table of callers. Each change leaves a row in the audit, in
// the same transaction, and never a secret.
type Registry struct {
	pool  *pgxpool.Pool
	store *store.Store
}

// NewRegistry returns a Registry over the pool. The store guards namespaces.
func NewRegistry(pool *pgxpool.Pool, s *store.Store) *Registry {
	return &Registry{pool: pool, store: s}
}

// Add makes a caller with its first key, a further credential of one that is
// there (then nothing may be set), or brings back one that was shut out. A caller
// that has payments from before must keep their namespace: the error is then a
// *store.NamespaceError.
func (r *Registry) Add(ctx context.Context, by By, name, credential string, set Change) (Issued, error) {
	credential = cmp.Or(credential, DefaultCredential)
	for what, word := range map[string]string{fieldCaller: name, "credential": credential} {
		if !payment.IsName(word) {
			return Issued{}, refusef("%s %q is not a name: use up to 64 small letters, digits, dots, dashes and underscores", what, word)
		}
	}
	existing, err := r.find(ctx, name)
	switch {
	case err != nil:
		return Issued{}, err
	case existing != nil && !existing.Revoked && !set.empty():
		return Issued{}, refusef("caller %s is there already: change it with `settleonce callers set %s`, or add a credential of it with --credential alone", name, name)
	case existing != nil && !existing.Revoked:
		return r.addCredential(ctx, by, name, credential)
	}
	c := Caller{Name: name, Namespace: name}
	if existing != nil {
		c = *existing
		c.Revoked = false
	}
	if c, err = set.apply(c); err != nil {
		return Issued{}, err
	}
	var issued Issued
	err = r.store.InNamespace(ctx, name, c.Namespace, func(ctx context.Context, tx pgx.Tx) error {
		if err := put(ctx, tx, c); err != nil {
			return err
		}
		if issued, err = issue(ctx, tx, name, credential); err != nil {
			return err
		}
		return audit(ctx, tx, by, "callers add", auditOf(c, credential, issued.ID))
	})
	return issued, r.explain(err)
}

func (r *Registry) addCredential(ctx context.Context, by By, name, credential string) (Issued, error) {
	var issued Issued
	err := r.change(ctx, name, func(tx pgx.Tx, c Caller) error {
		valid, err := validKeys(ctx, tx, name, credential)
		if err != nil {
			return err
		}
		if c.Revoked {
			return refusef("caller %s was shut out meanwhile: look at it and try again", name)
		}
		if len(valid) > 0 {
			return refusef("caller %s has a credential %q already: rotate it, or name another with --credential", name, credential)
		}
		if issued, err = issue(ctx, tx, name, credential); err != nil {
			return err
		}
		return audit(ctx, tx, by, "callers add", map[string]any{fieldCaller: name, "credential": credential, "key": issued.ID})
	})
	return issued, err
}

// Set changes a caller. Another namespace is refused with a *store.NamespaceError
// while a payment of the caller, open or remembered, is in the old one (G15).
func (r *Registry) Set(ctx context.Context, by By, name string, set Change) (Caller, error) {
	if set.empty() {
		return Caller{}, refusef("nothing is to be set: see `settleonce callers set --help`")
	}
	existing, err := r.find(ctx, name)
	if err != nil {
		return Caller{}, err
	}
	if existing == nil {
		return Caller{}, unknownCaller(name)
	}
	c, err := set.apply(*existing)
	if err != nil {
		return Caller{}, err
	}
	write := func(ctx context.Context, tx pgx.Tx) error {
		now, err := lock(ctx, tx, name)
		if err != nil {
			return err
		}
		if now.Namespace != existing.Namespace {
			return refusef("caller %s was changed by somebody else meanwhile: look at it and try again", name)
		}
		if c, err = set.apply(now); err != nil {
			return err
		}
		if err := put(ctx, tx, c); err != nil {
			return err
		}
		return audit(ctx, tx, by, "callers set", auditOf(c, "", ""))
	}
	if c.Namespace != existing.Namespace {
		return c, r.explain(r.store.InNamespace(ctx, name, c.Namespace, write))
	}
	return c, pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error { return write(ctx, tx) })
}

// Rotate makes a new key of a credential. The one it replaces counts for keep
// longer; a third one beside both is refused.
func (r *Registry) Rotate(ctx context.Context, by By, name, credential string, keep time.Duration) (Issued, error) {
	credential = cmp.Or(credential, DefaultCredential)
	if keep < 0 {
		return Issued{}, refusef("the old key cannot be kept for %s: use 0 or more", keep)
	}
	var issued Issued
	err := r.change(ctx, name, func(tx pgx.Tx, _ Caller) error {
		valid, err := validKeys(ctx, tx, name, credential)
		switch {
		case err != nil:
			return err
		case len(valid) == 0:
			return refusef("caller %s has no valid key of credential %q: add one with `settleonce callers add %s --credential %s`", name, credential, name, credential)
		case len(valid) >= validAtOnce:
			return refusef("credential %q of caller %s has %d valid keys already: wait until %s expires, or revoke it with `settleonce callers revoke %s --key %s`",
				credential, name, len(valid), valid[0], name, valid[0])
		}
		if issued, err = issue(ctx, tx, name, credential); err != nil {
			return err
		}
		var until time.Time
		if err := tx.QueryRow(ctx, `UPDATE settleonce.caller_keys SET expires_at = least(expires_at, clock_timestamp() + $2::interval)
			WHERE id = $1 RETURNING expires_at`, valid[0], keep).Scan(&until); err != nil {
			return err
		}
		issued.Until = &until
		return audit(ctx, tx, by, "callers rotate", map[string]any{
			fieldCaller: name, "credential": credential, "key": issued.ID, "old": valid[0], "until": until,
		})
	})
	return issued, err
}

// What to revoke: one key, one credential, or the caller with everything.
type What struct {
	Key, Credential string
	All             bool
}

// Revoke ends keys at once, and with All shuts the caller out altogether: the
// consumers then take no command of it from Kafka either. It returns how many keys
// counted until now.
func (r *Registry) Revoke(ctx context.Context, by By, name string, what What) (int64, error) {
	var ended int64
	err := r.change(ctx, name, func(tx pgx.Tx, c Caller) error {
		tag, err := tx.Exec(ctx, `UPDATE settleonce.caller_keys SET revoked_at = clock_timestamp()
			WHERE caller = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())
			AND ($2 = '' OR id = $2) AND ($3 = '' OR credential = $3)`, name, what.Key, what.Credential)
		if err != nil {
			return err
		}
		if ended = tag.RowsAffected(); ended == 0 && (!what.All || c.Revoked) {
			return refusef("caller %s has no such valid key: see `settleonce callers list`", name)
		}
		if what.All {
			if _, err := tx.Exec(ctx, `UPDATE settleonce.callers SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE name = $1`, name); err != nil {
				return err
			}
		}
		return audit(ctx, tx, by, "callers revoke", map[string]any{
			fieldCaller: name, "key": what.Key, "credential": what.Credential, "all": what.All, "ended": ended,
		})
	})
	return ended, err
}

// List returns every caller with its keys, in the order of their names and ages.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	var entries []Entry
	at := map[string]int{}
	b := &pgx.Batch{}
	b.Queue(`SELECT name, namespace, rate, burst, require_issued_at, grace_until, revoked_at IS NOT NULL, created_at
		FROM settleonce.callers ORDER BY name`).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var e Entry
			var grace pgtype.Timestamptz
			if err := rows.Scan(&e.Name, &e.Namespace, &e.Rate, &e.Burst, &e.RequireIssuedAt, &grace, &e.Revoked, &e.CreatedAt); err != nil {
				return err
			}
			e.GraceUntil = grace.Time
			at[e.Name] = len(entries)
			entries = append(entries, e)
		}
		return rows.Err()
	})
	b.Queue(`SELECT caller, id, credential, created_at, expires_at, revoked_at,
		CASE WHEN revoked_at IS NOT NULL THEN 'revoked' WHEN expires_at <= clock_timestamp() THEN 'expired'
			WHEN expires_at IS NOT NULL THEN 'expiring' ELSE 'valid' END
		FROM settleonce.caller_keys ORDER BY created_at, id`).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var caller string
			var k Key
			if err := rows.Scan(&caller, &k.ID, &k.Credential, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.State); err != nil {
				return err
			}
			if i, ok := at[caller]; ok {
				entries[i].Keys = append(entries[i].Keys, k)
			}
		}
		return rows.Err()
	})
	if err := r.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("list the callers: %w", err)
	}
	return entries, nil
}

// apply sets what is to be set.
func (c Change) apply(to Caller) (Caller, error) {
	if c.Namespace != nil {
		to.Namespace = *c.Namespace
	}
	if c.Rate != nil {
		to.Rate = *c.Rate
		to.Burst = int(math.Ceil(to.Rate))
	}
	if c.Burst != nil {
		to.Burst = *c.Burst
	}
	if c.RequireIssuedAt != nil {
		to.RequireIssuedAt = *c.RequireIssuedAt
	}
	if c.GraceUntil != nil {
		to.GraceUntil = *c.GraceUntil
	}
	switch {
	case !payment.IsName(to.Namespace):
		return to, refusef("namespace %q is not a name: use up to 64 small letters, digits, dots, dashes and underscores", to.Namespace)
	case !(to.Rate >= 0) || to.Rate > 1e6:
		return to, refusef("a rate of %g requests per second is out of range: use 0 (no limit) to 1000000", to.Rate)
	case to.Burst < 0 || to.Burst > 1e6 || to.Rate > 0 && to.Burst == 0:
		return to, refusef("a burst of %d requests is out of range: use 1 to 1000000", to.Burst)
	}
	return to, nil
}
