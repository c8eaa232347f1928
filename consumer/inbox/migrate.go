package inbox

import (
	"context"
	_ "embed" // for inbox.sql
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed inbox.sql
var tables string

// SQL returns the statements that make the inbox's tables, for those who bring
// their database up to date with a tool of their own. Running them again changes
// nothing.
func SQL() string { return tables }

const (
	// migrateLock keeps two migrations apart: CREATE IF NOT EXISTS races with itself.
	migrateLock = `SELECT pg_advisory_xact_lock(7270912646313544)`
	migrateLook = `SELECT to_regclass('settleonce_inbox.versions') IS NOT NULL`
)

// Migrate makes the inbox's tables (schema settleonce_inbox) in the database that
// dsn names, unless they are there. It may run from several processes at once.
// Making them needs the right to create a schema; running an inbox needs SELECT,
// INSERT, UPDATE and DELETE.
func Migrate(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to the inbox's database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrate(ctx, tx) }); err != nil {
		return fmt.Errorf("make the inbox's tables: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, migrateLock); err != nil {
		return err
	}
	// Looking first lets a service without the right to create start as well.
	var found bool
	if err := tx.QueryRow(ctx, migrateLook).Scan(&found); err != nil || found {
		return err
	}
	_, err := tx.Exec(ctx, tables)
	return err
}
