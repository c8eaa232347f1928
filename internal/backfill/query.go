package backfill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// queryPage is how many rows are asked for at once: each page is a transaction
// of its own, so no snapshot is held in the other database.
const queryPage = 5000

// Query reads the result of a SELECT in another database, page by page in the
// order of one column. Its session can only read.
type Query struct {
	conn    *pgconn.PgConn
	sql     string
	key     string // the quoted column
	index   int    // of the key among the columns
	columns []string
	content string
	total   int64
	row     int64
	last    []byte // the key to go on after, and how it is compared
	from    string
}

var _ Source = (*Query)(nil)

// QueryConfig says what to read.
type QueryConfig struct {
	// DSN is the other database; a user who may only read is enough.
	DSN string
	// SQL is one SELECT without ORDER BY.
	SQL string
	// Key is the column that orders the rows. It should be indexed, and must not be null.
	Key string
	// Timeout bounds each page. Defaults to 5 minutes.
	Timeout time.Duration
}

// OpenQuery connects and looks at the result.
func OpenQuery(ctx context.Context, cfg QueryConfig) (*Query, error) {
	config, err := pgconn.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, inputf("--source-dsn cannot be used, correct it: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Minute
	}
	config.RuntimeParams["default_transaction_read_only"] = "on"
	config.RuntimeParams["timezone"] = "UTC"
	config.RuntimeParams["datestyle"] = "ISO"
	config.RuntimeParams["statement_timeout"] = strconv.FormatInt(cfg.Timeout.Milliseconds(), 10)
	config.RuntimeParams["application_name"] = "settleonce-backfill"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, inputf("the source database cannot be reached: %w", err)
	}
	text := strings.TrimRight(strings.TrimSpace(cfg.SQL), "; \n\t")
	sum := sha256.Sum256([]byte(text))
	q := &Query{conn: conn, sql: text, content: "query:" + hex.EncodeToString(sum[:])}
	if err := q.open(ctx, cfg.Key); err != nil {
		return nil, errors.Join(err, q.Close(ctx))
	}
	return q, nil
}

// open reads the columns, and counts: a row whose key is null is in no page.
func (q *Query) open(ctx context.Context, key string) error {
	described, err := q.conn.Prepare(ctx, "", q.all(), nil)
	if err != nil {
		return inputf("the query fails: %w", err)
	}
	names := make([]string, len(described.Fields))
	for i := range names {
		names[i] = described.Fields[i].Name
	}
	q.columns, q.index = names, -1
	for i, name := range names {
		if simple(name) == simple(key) {
			q.index, q.key = i, `q."`+strings.ReplaceAll(name, `"`, `""`)+`"`
		}
	}
	if q.index < 0 {
		return inputf("the query has no column %q to go through it by: select the table's own id, and name it with --map id=COLUMN; there are %s",
			key, strings.Join(names, ", "))
	}
	counts, err := q.read(ctx, `SELECT count(*), count(*) - count(`+q.key+`) FROM (`+q.sql+"\n) AS q")
	if err != nil {
		return inputf("the query fails: %w", err)
	}
	if nulls := string(counts[0][1]); nulls != "0" {
		return inputf("%s rows of the query have no %s: leave them out of the query, or give them one", nulls, names[q.index])
	}
	q.total, err = strconv.ParseInt(string(counts[0][0]), 10, 64)
	if err != nil {
		return fmt.Errorf("count the rows: %w", err)
	}
	return nil
}

// all is the whole result: which columns it has is the operator's choice.
//
//nolint:unqueryvet // See above.
func (q *Query) all() string { return `SELECT q.* FROM (` + q.sql + "\n) AS q" }

// read runs one statement and returns everything as text.
func (q *Query) read(ctx context.Context, sql string, arguments ...[]byte) ([][][]byte, error) {
	result := q.conn.ExecParams(ctx, sql, arguments, nil, nil, nil).Read()
	if result.Err != nil {
		return nil, fmt.Errorf("read the source: %w", result.Err)
	}
	return result.Rows, nil
}

// Columns implements Source.
func (q *Query) Columns() []string { return q.columns }

// Content implements Source. It is the query, not what the table held: rows that
// came since below the position are taken by the next pass.
func (q *Query) Content() string { return q.content }

// Total implements Source.
func (q *Query) Total() int64 { return q.total }

// Skip implements Source. The row at the position comes once more: others may have
// its key, and taking a row twice changes nothing.
func (q *Query) Skip(_ context.Context, position string, rows int64) error {
	q.last, q.from, q.row = []byte(position), " >= $1", max(rows-1, 0)
	return nil
}

// Next implements Source. Rows with equal keys come together, so that no page
// ends between them.
func (q *Query) Next(ctx context.Context) ([]Record, error) {
	sql, arguments := q.all(), [][]byte(nil)
	if q.last != nil {
		sql += ` WHERE ` + q.key + q.from
		arguments = append(arguments, q.last)
	}
	sql += ` ORDER BY ` + q.key + ` FETCH FIRST ` + strconv.Itoa(queryPage) + ` ROWS WITH TIES`
	rows, err := q.read(ctx, sql, arguments...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, io.EOF
	}
	page := make([]Record, len(rows))
	for i, row := range rows {
		q.row++
		fields := make([]string, len(row))
		for j := range row {
			fields[j] = string(row[j])
		}
		page[i] = Record{Row: q.row, Position: fields[q.index], Fields: fields}
	}
	q.last, q.from = rows[len(rows)-1][q.index], " > $1"
	return page, nil
}

// Close implements Source.
func (q *Query) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := q.conn.Close(ctx); err != nil {
		return fmt.Errorf("close the source: %w", err)
	}
	return nil
}
