package schemas

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// online is how migrations run beside traffic.
//
// A statement that waits for the lock of a table makes everybody behind it wait
// too, so a transactional step gives up after lockTimeout, lets the traffic
// through, and tries again. A NO TRANSACTION step builds indexes CONCURRENTLY:
// its waiting is in nobody's way, so it waits without limit, for instance for the
// end of an old snapshot. Such a build that failed leaves an invalid index, which
// IF NOT EXISTS would take for the real one: it is dropped before the next step.
// One session lock per database lets one migrator work.
type online struct {
	// lockTimeout is how long a step may wait for a lock. Defaults to 500 ms.
	lockTimeout time.Duration
	// pause is the first pause after that; it doubles up to longestPause. Default
	// to 500 ms and 10 s.
	pause, longestPause time.Duration
	// tries bounds the tries of one step. Defaults to 40: about five minutes.
	tries int
}

// turnTries is how many seconds a migrator waits for another one: an index of a
// big table may take long.
const turnTries = 6 * 60 * 60

func (o online) withDefaults() online {
	o.lockTimeout = cmp.Or(o.lockTimeout, 500*time.Millisecond)
	o.pause, o.longestPause = cmp.Or(o.pause, 500*time.Millisecond), cmp.Or(o.longestPause, 10*time.Second)
	o.tries = cmp.Or(o.tries, 40)
	return o
}

// up applies what is pending, step by step.
func (o online) up(ctx context.Context, provider *goose.Provider, db *sql.DB) ([]Migration, error) {
	var steps []Migration
	pause := o.pause
	for try := 1; ; {
		result, err := provider.UpByOne(ctx)
		switch {
		case err == nil:
			steps = append(steps, Migration{Version: result.Source.Version, Name: result.Source.Path, Applied: true})
			try, pause = 1, o.pause
			continue
		case errors.Is(err, goose.ErrNoNextVersion):
			return steps, nil
		case !lockMissed(err):
			return steps, fmt.Errorf("migrate: %w", err)
		case try >= o.tries:
			return steps, fmt.Errorf("migrate: a table stayed locked%s; end that and run it again: %w", o.inTheWay(ctx, db), err)
		}
		try++
		select {
		case <-ctx.Done():
			return steps, fmt.Errorf("migrate: %w", errors.Join(ctx.Err(), err))
		case <-time.After(pause + rand.N(pause/4+1)):
			pause = min(2*pause, o.longestPause)
		}
	}
}

// lockMissed reports whether a step may work when it is run again: it waited too
// long for a lock, or was chosen to end a deadlock. It was rolled back.
func lockMissed(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55P03" || pg.Code == "40P01")
}

// inTheWay names the oldest transaction that holds one of our tables.
func (o online) inTheWay(ctx context.Context, db *sql.DB) string {
	var pid int64
	var name, since string
	err := db.QueryRowContext(ctx, `
SELECT a.pid, a.application_name, a.xact_start::text FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND EXISTS (SELECT FROM pg_locks l
    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE l.pid = a.pid AND l.granted AND n.nspname = 'settleonce')
ORDER BY a.xact_start LIMIT 1`).Scan(&pid, &name, &since)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" by the transaction of process %d (%q), open since %s", pid, name, since)
}

// file is what the machinery knows about a migration.
type file struct {
	version int64
	name    string
	text    string
	// outside says that it runs outside a transaction.
	outside bool
}

var (
	outsideMark     = regexp.MustCompile(`(?im)^\s*--\s*\+goose\s+NO\s+TRANSACTION`)
	concurrentIndex = regexp.MustCompile(`(?i)CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(?:IF\s+NOT\s+EXISTS\s+)?([a-z0-9_]+)`)
)

// readFiles reads the migrations in the order of their versions.
func readFiles(files fs.FS) ([]file, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("list the migrations, of which there must be some: %w", err)
	}
	var known []file
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, fmt.Errorf("read the version of migration %s: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration %s: %w", name, err)
		}
		known = append(known, file{version, name, string(text), outsideMark.Match(text)})
	}
	slices.SortFunc(known, func(a, b file) int { return cmp.Compare(a.version, b.version) })
	return known, nil
}

// onlineLocker prepares the session of each step, under the session lock.
type onlineLocker struct {
	lock.SessionLocker

	online  online
	known   []file
	indexes []string
}

func newOnlineLocker(session lock.SessionLocker, files fs.FS, o online) (*onlineLocker, error) {
	known, err := readFiles(files)
	if err != nil {
		return nil, err
	}
	l := &onlineLocker{SessionLocker: session, online: o, known: known}
	for i := range known {
		for _, found := range concurrentIndex.FindAllStringSubmatch(known[i].text, -1) {
			l.indexes = append(l.indexes, strings.ToLower(found[1]))
		}
	}
	return l, nil
}

// SessionLock takes the lock, removes what a failed build left, and bounds the
// waits of the step that comes next.
func (l *onlineLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := l.SessionLocker.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("wait for another migration: %w", err)
	}
	if err := l.prepare(ctx, conn); err != nil {
		return errors.Join(err, l.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

func (l *onlineLocker) prepare(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `SET lock_timeout = 0`); err != nil {
		return fmt.Errorf("wait without limit: %w", err)
	}
	if err := l.dropInvalid(ctx, conn); err != nil {
		return err
	}
	outside, err := l.nextIsOutside(ctx, conn)
	if err != nil || outside {
		return err
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf(`SET lock_timeout = %d`, l.online.lockTimeout.Milliseconds())); err != nil {
		return fmt.Errorf("bound the waits for locks: %w", err)
	}
	return nil
}

// dropInvalid removes what a failed CREATE INDEX CONCURRENTLY of ours left. Others'
// indexes, and those of a REINDEX, have other names.
func (l *onlineLocker) dropInvalid(ctx context.Context, conn *sql.Conn) error {
	for _, name := range l.indexes {
		var invalid bool
		err := conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
			JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'settleonce' AND c.relname = $1 AND NOT i.indisvalid)`, name).Scan(&invalid)
		if err != nil {
			return fmt.Errorf("look for invalid indexes: %w", err)
		}
		if !invalid {
			continue
		}
		// The name is one of our own files, of letters, digits and underscores.
		if _, err := conn.ExecContext(ctx, `DROP INDEX CONCURRENTLY IF EXISTS settleonce.`+name); err != nil {
			return fmt.Errorf("drop the invalid index %s: %w", name, err)
		}
	}
	return nil
}

// nextIsOutside reports whether the next step runs outside a transaction.
func (l *onlineLocker) nextIsOutside(ctx context.Context, conn *sql.Conn) (bool, error) {
	var exists bool
	if err := conn.QueryRowContext(ctx, `SELECT to_regclass('settleonce.schema_migrations') IS NOT NULL`).Scan(&exists); err != nil {
		return false, fmt.Errorf("look for the version table: %w", err)
	}
	if !exists {
		return false, nil
	}
	var have int64
	err := conn.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM settleonce.schema_migrations WHERE is_applied`).Scan(&have)
	if err != nil {
		return false, fmt.Errorf("read the database's version: %w", err)
	}
	for i := range l.known {
		if l.known[i].version > have {
			return l.known[i].outside, nil
		}
	}
	return false, nil
}
