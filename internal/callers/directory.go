package callers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"
)

// ErrUnknownKey says that a key is nobody's, or was revoked or has expired.
var ErrUnknownKey = errors.New("the key is not known")

// Caller is one row of the table.
type Caller struct {
	Name string
	// Namespace is that of its obligations.
	Namespace string
	// Rate is how many requests per second each process of the edge takes, 0 for
	// any number; Burst is how many at once.
	Rate  float64
	Burst int
	// RequireIssuedAt makes the edge refuse a payment without the time of the intent.
	RequireIssuedAt bool
	// GraceUntil is until when the edge makes up a missing key; zero for never.
	GraceUntil time.Time
	// Revoked shuts the caller out: no key counts, and no command from Kafka.
	Revoked bool
}

// DirectoryConfig is what a Directory needs.
type DirectoryConfig struct {
	Pool *pgxpool.Pool
	// Fresh is how old the copy may be that keys are compared with: a revoked key is
	// refused after that at the latest. Defaults to 5 s.
	Fresh time.Duration
	// Again is how soon the table is read again for a key that the copy does not
	// have, which bounds what strangers can make the database do. Defaults to 1 s.
	Again time.Duration
	// Timeout bounds one reading. Defaults to 2 s.
	Timeout time.Duration
}

// WithDefaults returns a copy with unset fields set.
func (c DirectoryConfig) WithDefaults() DirectoryConfig {
	if c.Fresh == 0 {
		c.Fresh = 5 * time.Second
	}
	if c.Again == 0 {
		c.Again = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Second
	}
	return c
}

// Validate reports the first field that cannot work, and what to change.
func (c DirectoryConfig) Validate() error {
	switch {
	case c.Pool == nil:
		return errors.New("a directory of callers needs a pool: pass one")
	case c.Fresh < 0 || c.Again < 0 || c.Timeout < 0:
		return errors.New("a duration of the directory of callers is negative: use 0 for the default")
	}
	return nil
}

// Directory answers from a copy of the whole table, which is small: there are as
// many rows as services. The copy needs no bound of its own, and no stranger's key
// has a place in it. It is safe for concurrent use and has no goroutine.
type Directory struct {
	cfg DirectoryConfig
	// reading lets one at a time read the table.
	reading chan struct{}
	last    atomic.Pointer[attempt]
	current atomic.Pointer[snapshot]

	mu     sync.Mutex
	limits map[string]*rate.Limiter
}

// attempt is the last reading, whatever came of it.
type attempt struct {
	began time.Time
	err   error
}

// snapshot is the table as a reading found it.
type snapshot struct {
	began   time.Time // the reading saw everything that was committed before
	callers map[string]Caller
	keys    map[string]heldKey
}

type heldKey struct {
	caller, credential string
	hash               []byte
	expires            time.Time // by this machine's clock; zero for never
}

// NewDirectory returns a Directory. It reads nothing yet.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Directory{cfg: cfg, reading: make(chan struct{}, 1), limits: map[string]*rate.Limiter{}}, nil
}

// Authenticate returns whose key this is, and which of its credentials. The error
// is ErrUnknownKey when it is nobody's; any other means that the table could not
// be read, so that nothing is known: never an admission (G12).
func (d *Directory) Authenticate(ctx context.Context, bearer string) (Caller, string, error) {
	id, secret, ok := parseBearer(bearer)
	if !ok {
		return Caller{}, "", ErrUnknownKey
	}
	now := time.Now()
	s, err := d.since(ctx, now.Add(-d.cfg.Fresh))
	if err != nil {
		return Caller{}, "", err
	}
	key, found := s.keys[id]
	if !found { // it may be new
		if s, err = d.since(ctx, now.Add(-d.cfg.Again)); err != nil {
			return Caller{}, "", err
		}
		key, found = s.keys[id]
	}
	// Compared also where there is nothing to compare with.
	right := matches(key.hash, secret)
	if !found || !right || !key.valid(now) {
		return Caller{}, "", ErrUnknownKey
	}
	return s.callers[key.caller], key.credential, nil
}

func (k *heldKey) valid(now time.Time) bool { return k.expires.IsZero() || now.Before(k.expires) }

// Allow takes one request from the caller's rate limit. Without any left it
// returns false and when to try again. The limit is one process's: with n of them
// a caller has n times as much.
func (d *Directory) Allow(caller Caller) (bool, time.Duration) {
	if caller.Rate == 0 {
		return true, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	limit, burst := rate.Limit(caller.Rate), max(caller.Burst, 1)
	bucket, ok := d.limits[caller.Name]
	if !ok {
		bucket = rate.NewLimiter(limit, burst)
		d.limits[caller.Name] = bucket
	}
	if bucket.Limit() != limit {
		bucket.SetLimit(limit)
	}
	if bucket.Burst() != burst {
		bucket.SetBurst(burst)
	}
	r := bucket.Reserve()
	if wait := r.Delay(); wait > 0 {
		r.Cancel()
		return false, wait
	}
	return true, 0
}

// Find returns a caller as the copy has it, however old; false when it is not
// there. It never reads the table: Refresh does.
func (d *Directory) Find(name string) (Caller, bool) {
	s := d.current.Load()
	if s == nil {
		return Caller{}, false
	}
	c, ok := s.callers[name]
	return c, ok
}

// Callers lists the copy, in no order.
func (d *Directory) Callers() []Caller {
	s := d.current.Load()
	if s == nil {
		return nil
	}
	out := make([]Caller, 0, len(s.callers))
	for _, c := range s.callers {
		out = append(out, c)
	}
	return out
}

// Refresh reads the table: afterwards the copy has everything that was committed
// before the call.
func (d *Directory) Refresh(ctx context.Context) error {
	_, err := d.since(ctx, time.Now())
	return err
}

// since returns a copy whose reading began at that time or later. Who waits for
// another's reading takes its result, good or bad, if it began late enough: a
// database that is down is not asked by everybody in turn.
func (d *Directory) since(ctx context.Context, earliest time.Time) (*snapshot, error) {
	if s := d.current.Load(); s != nil && !s.began.Before(earliest) {
		return s, nil
	}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := d.current.Load(); s != nil && !s.began.Before(earliest) {
		return s, nil
	}
	if last := d.last.Load(); last != nil && last.err != nil && !last.began.Before(earliest) && time.Since(last.began) < d.cfg.Timeout+d.cfg.Again {
		return nil, last.err
	}
	began := time.Now()
	s, err := d.read(ctx)
	d.last.Store(&attempt{began: began, err: err})
	if err != nil {
		return nil, err
	}
	s.began = began
	d.current.Store(s)
	return s, nil
}

// read is not cut off by the one who happened to ask: others wait for it too.
func (d *Directory) read(ctx context.Context) (*snapshot, error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), d.cfg.Timeout, errors.New("the table of callers did not answer in time"))
	defer cancel()
	s := &snapshot{callers: map[string]Caller{}, keys: map[string]heldKey{}}
	b := &pgx.Batch{}
	b.Queue(selectCallers + ` ORDER BY name`).Query(s.scanCallers)
	b.Queue(`SELECT id, caller, credential, hash, expires_at - clock_timestamp() FROM settleonce.caller_keys
		WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())`).Query(s.scanKeys)
	if err := d.cfg.Pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read the table of callers: %w", err)
	}
	return s, nil
}

const selectCallers = `SELECT name, namespace, rate, burst, require_issued_at, grace_until, revoked_at IS NOT NULL FROM settleonce.callers`

// scanCaller reads a row of selectCallers.
func scanCaller(row pgx.Row) (Caller, error) {
	var c Caller
	var grace pgtype.Timestamptz
	err := row.Scan(&c.Name, &c.Namespace, &c.Rate, &c.Burst, &c.RequireIssuedAt, &grace, &c.Revoked)
	c.GraceUntil = grace.Time
	return c, err
}

func (s *snapshot) scanCallers(rows pgx.Rows) error {
	for rows.Next() {
		c, err := scanCaller(rows)
		if err != nil {
			return err
		}
		s.callers[c.Name] = c
	}
	return rows.Err()
}

// scanKeys leaves out the keys of callers that are shut out, or came between the
// two statements.
func (s *snapshot) scanKeys(rows pgx.Rows) error {
	now := time.Now()
	for rows.Next() {
		var id string
		var k heldKey
		var left *time.Duration
		if err := rows.Scan(&id, &k.caller, &k.credential, &k.hash, &left); err != nil {
			return err
		}
		if left != nil {
			k.expires = now.Add(*left)
		}
		if c, ok := s.callers[k.caller]; ok && !c.Revoked {
			s.keys[id] = k
		}
	}
	return rows.Err()
}
