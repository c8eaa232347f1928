package outbox

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// BenchmarkDrain publishes a backlog: rows per second, everything in this one
// machine (on the embedded broker in this very process).
func BenchmarkDrain(b *testing.B) {
	const rows = 100_000
	for range b.N {
		s := newStage(b)
		_, err := s.pool.Exec(b.Context(), `INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, payload, headers)
			SELECT i % 16, gen_random_uuid(), CASE i / 16 % 2 WHEN 0 THEN $1 ELSE $2 END, convert_to(gen_random_uuid()::text, 'UTF8'),
				'payment.succeeded', convert_to(repeat('x', 380), 'UTF8'), '{"ce_subject":"c5f2ad2c-9e8a-4a5e-9d93-3bd01bb3f77b"}'
			FROM generate_series(1, $3::int) i`, s.events, s.replies, rows)
		require.NoError(b, err)
		relay := s.relay(nil)
		start := time.Now()
		a := s.run(relay)
		for relay.Stats().Published < rows {
			pause(b.Context(), 5*time.Millisecond, nil)
		}
		b.ReportMetric(rows/time.Since(start).Seconds(), "rows/s")
		s.drained()
		a.stop()
	}
}

// BenchmarkEnqueue writes rows as a group commit does: rows per second.
func BenchmarkEnqueue(b *testing.B) {
	s := newDatabase(b)
	messages := make([]Message, 500)
	for i := range messages {
		messages[i] = s.message(s.events, uuid.NewString(), 1)
		messages[i].Subject, messages[i].Payload = uuid.NewString(), make([]byte, 400)
	}
	for b.Loop() {
		require.NoError(b, pgx.BeginFunc(b.Context(), s.pool, func(tx pgx.Tx) error { return Enqueue(b.Context(), tx, messages...) }))
	}
	b.ReportMetric(float64(b.N*len(messages))/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkLatency is the time from a commit to the message in the topic, at low
// load, with the wake-up through the database.
func BenchmarkLatency(b *testing.B) {
	s := newStage(b)
	relay := s.start()
	w := NewWaker(s.pool)
	s.runWaker(w)
	s.owns(relay.Relay, Shards)
	var sent uint64
	for b.Loop() {
		s.enqueue(s.message(s.events, uuid.NewString(), 1))
		w.Wake()
		for sent++; relay.Stats().Published < sent; {
			pause(b.Context(), 100*time.Microsecond, nil)
		}
	}
}
