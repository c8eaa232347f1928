package torture

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/devstack"
)

// postgresThrough starts a server with a table "rows", and returns its address and
// that of a proxy before it.
func postgresThrough(t *testing.T, l *losses) (direct, through string) {
	t.Helper()
	dir, err := devstack.TempDir("settleonce-torture-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	server, err := devstack.StartPostgres(t.Context(), devstack.PostgresConfig{DataDir: filepath.Join(dir, "pg"), Fast: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) })
	p := newPostgresProxy(l)
	t.Cleanup(func() { require.NoError(t, p.close()) })
	address, err := url.Parse(server.DSN("postgres"))
	require.NoError(t, err)
	address.Host, err = p.via(t.Context(), address.Host)
	require.NoError(t, err)
	conn := session(t, server.DSN("postgres"))
	_, err = conn.Exec(t.Context(), `CREATE TABLE rows (name text)`)
	require.NoError(t, err)
	return server.DSN("postgres"), address.String()
}

func session(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

const insert = `INSERT INTO rows VALUES ($1)`

// ways are those in which a transaction is written: statement by statement, and as
// the store does it, in two batches whose second ends with COMMIT.
var ways = map[string]func(ctx context.Context, conn *pgx.Conn, name string) error{
	"simple": func(ctx context.Context, conn *pgx.Conn, name string) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insert, name); err != nil {
			return err
		}
		return tx.Commit(ctx)
	},
	"pipelined": func(ctx context.Context, conn *pgx.Conn, name string) error {
		first, second := &pgx.Batch{}, &pgx.Batch{}
		first.Queue("begin")
		if err := conn.SendBatch(ctx, first).Close(); err != nil {
			return err
		}
		second.Queue(insert, name)
		second.Queue("commit")
		return conn.SendBatch(ctx, second).Close()
	},
	"statement": func(ctx context.Context, conn *pgx.Conn, name string) error {
		_, err := conn.Exec(ctx, insert, name)
		return err
	},
}

// A lost COMMIT is an error in any case; the row is there if it was the answer that
// was lost. What is not to be lost goes through, errors too.
func TestProxy_PostgresLosesCommits(t *testing.T) {
	t.Parallel()
	l := newLosses()
	direct, through := postgresThrough(t, l)
	var want []string
	for name, write := range ways {
		require.NoError(t, write(t.Context(), session(t, through), name+" goes through"))
		want = append(want, name+" goes through")
		kinds := map[loss]bool{commitRequest: false, commitAnswer: true}
		if name == "statement" {
			kinds = map[loss]bool{statementAnswer: true}
		}
		for kind, stored := range kinds {
			conn := session(t, through)
			require.NoError(t, write(t.Context(), conn, name+" before "+string(kind)))
			want = append(want, name+" before "+string(kind))
			before := l.counts()[kind]
			l.mu.Lock()
			l.left[kind] = 1
			l.mu.Unlock()
			require.Error(t, write(t.Context(), conn, name+" with "+string(kind)))
			require.Equal(t, before+1, l.counts()[kind])
			require.Error(t, conn.Ping(t.Context()), "the session is gone")
			if stored {
				want = append(want, name+" with "+string(kind))
			}
		}
	}
	rows, err := session(t, direct).Query(t.Context(), `SELECT name FROM rows`)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, want, got)
}

// A COMMIT of a transaction that failed does nothing, and its answer is not counted
// as lost.
func TestProxy_PostgresCountsWhatCommitted(t *testing.T) {
	t.Parallel()
	l := newLosses()
	_, through := postgresThrough(t, l)
	conn := session(t, through)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO nowhere VALUES (1)`)
	require.Error(t, err)
	l.mu.Lock()
	l.left[commitAnswer] = 1
	l.mu.Unlock()
	require.Error(t, tx.Commit(t.Context())) // told as a rollback
	require.Zero(t, l.counts()[commitAnswer])
	require.NoError(t, conn.Ping(t.Context()))
}
