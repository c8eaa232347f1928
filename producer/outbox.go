package producer

import (
	"context"
	"database/sql"
	_ "embed" // for outbox.sql
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

//go:embed outbox.sql
var outboxSQL string

const (
	// outboxLock keeps two migrations apart: CREATE IF NOT EXISTS races with itself.
	outboxLock = `SELECT pg_advisory_xact_lock(7270912646313542)`
	outboxLook = `SELECT to_regclass('settleonce_outbox.commands') IS NOT NULL`

	enqueueSQL = `INSERT INTO settleonce_outbox.commands (id, aggregatetype, aggregateid, type, payload)
VALUES ($1::uuid, $2, $3, $4, $5)`
)

// OutboxSQL returns the statements that make the outbox table, for those who
// bring their database up to date with a tool of their own. Running them again
// changes nothing.
func OutboxSQL() string { return outboxSQL }

// OutboxMigrate makes the outbox table (settleonce_outbox.commands) in the
// database that dsn names, unless it is there. It may run from several processes
// at once. Making it needs the right to create a schema; a service that only
// enqueues needs INSERT, the publisher SELECT, UPDATE and DELETE.
func OutboxMigrate(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to the outbox database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrateOutbox(ctx, tx) }); err != nil {
		return fmt.Errorf("make the outbox table: %w", err)
	}
	return nil
}

func migrateOutbox(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, outboxLock); err != nil {
		return err
	}
	// Looking first lets a service without the right to create start as well.
	var found bool
	if err := tx.QueryRow(ctx, outboxLook).Scan(&found); err != nil || found {
		return err
	}
	_, err := tx.Exec(ctx, outboxSQL)
	return err
}

// EnqueueTx writes the command into the outbox table as part of tx, the caller's
// own transaction: it is published if and only if tx commits, so key and content
// are durable before the first send. Store the key with what is paid for in the
// same transaction, since the answer comes under it.
//
// An invalid command is an *InvalidError, and tx can go on; any other error is
// the database's, and tx must be rolled back. Enqueueing a command again is
// harmless (G1).
func EnqueueTx(ctx context.Context, tx pgx.Tx, cmd payment.Command) error {
	row, err := newOutboxRow(cmd)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, enqueueSQL, row.args()...); err != nil {
		return fmt.Errorf("enqueue command %s: %w", cmd.IdempotencyKey, err)
	}
	return nil
}

// EnqueueSQLTx is EnqueueTx for those who use database/sql, with any driver for
// Postgres.
func EnqueueSQLTx(ctx context.Context, tx *sql.Tx, cmd payment.Command) error {
	row, err := newOutboxRow(cmd)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, enqueueSQL, row.args()...); err != nil {
		return fmt.Errorf("enqueue command %s: %w", cmd.IdempotencyKey, err)
	}
	return nil
}

type outboxRow struct {
	seq           int64
	id            uuid.UUID
	aggregateType string
	aggregateID   string
	ceType        string
	payload       []byte
	createdAt     time.Time // of rows that were read
}

func newOutboxRow(cmd payment.Command) (outboxRow, error) {
	if err := validate([]payment.Command{cmd}); err != nil {
		return outboxRow{}, err
	}
	return outboxRow{
		id:            cmd.Identity().PaymentID(),
		aggregateType: outboxTopic(),
		aggregateID:   cmd.IdempotencyKey.String(),
		ceType:        commandType,
		payload:       cmd.AppendJSON(nil),
	}, nil
}

// outboxTopic is what stands in aggregatetype: the topic without its prefix,
// which only the one who publishes needs to know.
func outboxTopic() string { return payment.NewTopics("").Commands }

// args are strings and bytes only, which every driver can send.
func (r *outboxRow) args() []any {
	return []any{r.id.String(), r.aggregateType, r.aggregateID, r.ceType, r.payload}
}

// message is what the row is published as. The error is a sentence on why it
// cannot be, as it is.
func (r *outboxRow) message(p *Producer) (kafka.Message, error) {
	if r.aggregateType == outboxTopic() {
		cmd, err := r.command()
		if err != nil {
			return kafka.Message{}, err
		}
		return p.message(&cmd, r.payload), nil
	}
	m := Message{ID: r.id, Topic: r.aggregateType, Key: r.aggregateID, Type: r.ceType, Payload: r.payload}
	if err := m.Validate(); err != nil {
		return kafka.Message{}, fmt.Errorf("aggregatetype is %+q, and the row is no message of yours: %w", r.aggregateType, err)
	}
	return p.wrap(&m, r.createdAt), nil
}

// command reads the row back.
func (r *outboxRow) command() (payment.Command, error) {
	cmd, err := payment.DecodeCommand(r.payload)
	if err != nil {
		return payment.Command{}, err
	}
	if r.aggregateID != cmd.IdempotencyKey.String() {
		return payment.Command{}, fmt.Errorf("aggregateid is %+q, it must be the command's idempotencyKey", r.aggregateID)
	}
	return cmd, nil
}
