package outbox

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// insertSQL keeps the order of its arrays: the sequence is taken row by row as
// unnest delivers them.
const insertSQL = `INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, payload, headers)
SELECT m.shard, m.id, m.topic, m.key, m.type, m.payload, m.headers::json
FROM unnest($1::smallint[], $2::uuid[], $3::text[], $4::bytea[], $5::text[], $6::bytea[], $7::text[])
	AS m(shard, id, topic, key, type, payload, headers)`

// Enqueue writes messages in the caller's transaction: they will be published
// if, and only if, it commits (G7). All go in one statement, whose order they
// keep.
//
// Order per key (G10) needs the caller's help: take the lock of what the key
// stands for (the payment's row) before calling, so that the sequence is taken
// under it, and hold it until the commit. After the commit call Waker.Wake.
func Enqueue(ctx context.Context, tx pgx.Tx, messages ...Message) error {
	for i := range messages {
		if err := messages[i].Validate(); err != nil {
			return err
		}
	}
	if len(messages) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, insertSQL, insertArgs(messages)...); err != nil {
		return fmt.Errorf("enqueue %d messages: %w", len(messages), err)
	}
	return nil
}

// Queue is Enqueue as one statement of a batch, for callers that pipeline
// everything up to their COMMIT. It adds no statement when there are no
// messages. An invalid message fails the batch in the database; check with
// Message.Validate where messages are made.
func Queue(b *pgx.Batch, messages []Message) {
	if len(messages) > 0 {
		b.Queue(insertSQL, insertArgs(messages)...)
	}
}

func insertArgs(messages []Message) []any {
	n := len(messages)
	var (
		shards   = make([]int16, n)
		ids      = make(pgtype.FlatArray[pgtype.UUID], n) // google/uuid would go through strings
		topics   = make([]string, n)
		keys     = make([][]byte, n)
		types    = make([]string, n)
		payloads = make([][]byte, n)
		headers  = make([]*string, n)
	)
	for i := range messages {
		m := &messages[i]
		shards[i] = Shard(m.Key)
		ids[i] = pgtype.UUID{Bytes: m.ID, Valid: true}
		topics[i], keys[i], types[i], payloads[i] = m.Topic, m.Key, m.Type, m.Payload
		headers[i] = encodeHeaders(m)
	}
	return []any{shards, ids, topics, keys, types, payloads, headers}
}
