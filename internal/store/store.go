// Package store is the one home of all SQL over payments.
//
// It offers two ways to change a payment. Claim takes a batch of delivered
// commands and classifies each of them in one round trip. Apply locks a batch of
// payments, lets a pure function decide under the lock what becomes of each, and
// writes marker, effect and outbox rows in the same transaction (G7). Nothing
// here calls a channel, so no lock is ever held across such a call (G6).
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/payment"
)

// Config is what a Store needs.
type Config struct {
	// Pool is the connection pool, best made by OpenPool.
	Pool *pgxpool.Pool
	// Topics are the names that messages are written for.
	Topics payment.Topics
	// Wake is called after a commit that wrote outbox rows; nil means that the
	// relay finds them by its poll.
	Wake func()
	// Named reports whether the names of a channel's payments are kept as they end,
	// because its callbacks do not repeat our payment id. Defaults to none.
	Named func(channel string) bool
	// Logger receives one line per transition.
	Logger zerolog.Logger
}

// Store reads and changes payments.
type Store struct {
	pool   *pgxpool.Pool
	topics payment.Topics
	wake   func()
	named  func(channel string) bool
	log    zerolog.Logger

	commitWithin time.Duration // bounds the second half of a transaction
}

// New returns a Store over the pool.
func New(cfg Config) *Store {
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	if cfg.Named == nil {
		cfg.Named = func(string) bool { return false }
	}
	return &Store{pool: cfg.Pool, topics: cfg.Topics, wake: cfg.Wake, named: cfg.Named, log: cfg.Logger, commitWithin: commitTimeout}
}

// PoolConfig says how to connect.
type PoolConfig struct {
	// DSN is a postgres:// address or keyword string.
	DSN string
	// MaxConns bounds the connections of this process. Defaults to 16.
	MaxConns int
	// ApplicationName shows in pg_stat_activity. Defaults to "settleonce".
	ApplicationName string
}

// sessionSettings bound every statement on the server's side, and keep the plans
// of the set-based statements: they join small arrays to primary keys, and a
// plan made while a table was empty would otherwise scan it for ever. Switching
// scans off is not enough, since a whole index is read instead: the statements
// join by "key = ANY (ARRAY[value])", which leaves nothing but the look-up, being
// no condition that a sorted index could serve from end to end.
var sessionSettings = map[string]string{
	"statement_timeout":                   "15s",
	"lock_timeout":                        "5s",
	"idle_in_transaction_session_timeout": "15s",
	"enable_seqscan":                      "off",
	"enable_hashjoin":                     "off",
	"enable_mergejoin":                    "off",
	"jit":                                 "off",
	"timezone":                            "UTC",
}

// OpenPool opens a pool and checks that the database answers.
func OpenPool(ctx context.Context, cfg PoolConfig) (*pgxpool.Pool, error) {
	pc, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, fmt.Errorf("parse the database address: %w", err)
	}
	pc.MaxConns = int32(max(cfg.MaxConns, 0))
	if pc.MaxConns == 0 {
		pc.MaxConns = 16
	}
	pc.MaxConnLifetime, pc.MaxConnLifetimeJitter = 45*time.Minute, 10*time.Minute
	pc.ConnConfig.ConnectTimeout = 5 * time.Second
	pc.PingTimeout = 2 * time.Second
	for name, value := range sessionSettings {
		if _, set := pc.ConnConfig.RuntimeParams[name]; !set {
			pc.ConnConfig.RuntimeParams[name] = value
		}
	}
	pc.ConnConfig.RuntimeParams["application_name"] = cfg.ApplicationName
	if cfg.ApplicationName == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = "settleonce"
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("open the database pool: %w", err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return pool, nil
}

// commitTimeout bounds the second half of a transaction. It runs with its own
// deadline, not the caller's, so that a shutdown does not make a commit unknown.
const commitTimeout = 10 * time.Second

// inTx runs one READ COMMITTED transaction in two round trips. The first carries
// BEGIN and what read queues; the second what write queues and COMMIT. write
// decides on what read's callbacks saw; when it queues nothing, the transaction
// is rolled back.
func (s *Store) inTx(ctx context.Context, read func(*pgx.Batch), write func(*pgx.Batch) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire a connection: %w", err)
	}
	defer conn.Release() // a connection still inside a transaction is destroyed, not reused
	first := &pgx.Batch{}
	first.Queue("begin")
	read(first)
	if err := conn.SendBatch(ctx, first).Close(); err != nil {
		return rollback(ctx, conn, err)
	}
	second := &pgx.Batch{}
	if err := write(second); err != nil {
		return rollback(ctx, conn, err)
	}
	if second.Len() == 0 {
		return rollback(ctx, conn, nil)
	}
	second.Queue("commit")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.commitWithin)
	defer cancel()
	if err := conn.SendBatch(ctx, second).Close(); err != nil {
		return rollback(ctx, conn, err)
	}
	return nil
}

// rollback ends the transaction and returns err. It does not care whether it
// works: an unusable connection is closed by the pool, and that rolls back too.
func rollback(ctx context.Context, conn *pgxpool.Conn, err error) error {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
	return err
}

// attempts bounds how often a transaction is run again after a deadlock or a
// lost connection. Deciding again on the same input is safe: every decision is
// taken under lock from what is stored.
const attempts = 6

// retry runs fn until it succeeds, fails for good, or ctx ends. A COMMIT whose
// answer was lost is run again too: the second run finds what the first stored.
func retry(ctx context.Context, fn func() error) error {
	pause := 5 * time.Millisecond
	for try := 1; ; try++ {
		err := fn()
		if err == nil || try == attempts || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause *= 3
		}
	}
}

// transient reports whether the same transaction may work when run again.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errImpossible) || errors.Is(err, errLostCommits) ||
		errors.Is(err, ErrCallersChanged) {
		return false
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return true // a lost connection
	}
	switch pg.Code {
	case "40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300":
		return true
	}
	return strings.HasPrefix(pg.Code, "08")
}

// Unheard reports whether an error says no more than that the database did not answer:
// that is waited out, unlike what it refused.
func Unheard(err error) bool {
	_, said := errors.AsType[*pgconn.PgError](err)
	return err != nil && !said
}

// badData reports whether the database refused the content itself: one row of
// the batch is to blame, and the others must not suffer for it.
func badData(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "23") || pg.Code == "54000")
}

// pgUUID and pgUUIDs avoid the string form that uuid.UUID would travel in.
func pgUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func pgUUIDs(ids []uuid.UUID) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		out[i] = pgUUID(id)
	}
	return out
}

func optionalUUID(id *uuid.UUID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return pgUUID(*id)
}

func uuidPointer(id pgtype.UUID) *uuid.UUID {
	if !id.Valid {
		return nil
	}
	u := uuid.UUID(id.Bytes)
	return &u
}

// maxText bounds what providers say before it is stored.
const maxText = 500

// clean makes foreign text storable: valid UTF-8, no NUL, bounded.
func clean(text string) string {
	if len(text) <= maxText && utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		return text
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	for len(text) > maxText {
		_, size := utf8.DecodeLastRuneInString(text[:maxText])
		text = text[:maxText-size]
	}
	return text
}
