package outbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/internal/kafka"
)

func TestEnqueueKeepsOrderAndColumns(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	var messages []Message
	for i := range 500 {
		messages = append(messages, s.message(s.events, fmt.Sprint("k", i%7), i))
	}
	messages[3].Headers = map[string]string{"traceparent": "00-1", "raw": "\xff\x00"}
	messages[3].Subject = "the-payment"
	messages[4].Key, messages[4].Payload = nil, nil
	s.enqueue(messages...)

	rows, err := s.pool.Query(t.Context(), `SELECT shard, id::text, aggregatetype, aggregateid, type, payload, headers::text
		FROM settleonce.outbox ORDER BY seq`)
	require.NoError(t, err)
	i := 0
	var shard int16
	var id, topic, kind string
	var key, payload []byte
	var headers *string
	_, err = pgx.ForEachRow(rows, []any{&shard, &id, &topic, &key, &kind, &payload, &headers}, func() error {
		m := messages[i]
		require.Equal(t, []any{Shard(m.Key), m.ID.String(), m.Topic, m.Key, m.Type, m.Payload},
			[]any{shard, id, topic, key, kind, payload})
		if i == 3 {
			require.JSONEq(t, `{"ce_subject": "the-payment", "raw": "data:;base64,/wA=", "traceparent": "00-1"}`, *headers)
		} else {
			require.Nil(t, headers)
		}
		i++
		key, payload = nil, nil
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, len(messages), i)
}

func TestEnqueueIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, Enqueue(t.Context(), tx, s.message(s.events, "k", 1)))
	require.NoError(t, Enqueue(t.Context(), tx))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Zero(t, s.rows("true"))
}

func TestQueueIsEnqueuePipelined(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	b := &pgx.Batch{}
	Queue(b, nil)
	require.Zero(t, b.Len())
	Queue(b, []Message{s.message(s.events, "a", 1), s.message(s.events, "b", 1)})
	require.NoError(t, s.pool.SendBatch(t.Context(), b).Close())
	require.Equal(t, 2, s.rows("true"))

	// What Enqueue refuses, the database refuses as well.
	for _, m := range invalidMessages(s) {
		b := &pgx.Batch{}
		Queue(b, []Message{m})
		if m.Type != "" {
			require.Error(t, s.pool.SendBatch(t.Context(), b).Close())
		}
	}
	require.Equal(t, 2, s.rows("true"))
}

func invalidMessages(s *stage) map[string]Message {
	invalid := make(map[string]Message)
	for want, change := range map[string]func(*Message){
		"has no id":          func(m *Message) { m.ID = uuid.Nil },
		"has no topic":       func(m *Message) { m.Topic = "" },
		"has no type":        func(m *Message) { m.Type = "" },
		"without zero bytes": func(m *Message) { m.Topic = "a\x00b" },
		"must be UTF-8":      func(m *Message) { m.Type = "\xff" },
	} {
		m := s.message(s.events, "k", 1)
		change(&m)
		invalid[want] = m
	}
	return invalid
}

func TestEnqueueRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	for want, m := range invalidMessages(s) {
		require.ErrorContains(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			return Enqueue(t.Context(), tx, s.message(s.events, "k", 0), m)
		}), want)
	}
	require.Zero(t, s.rows("true"))
}

func TestShardIsThePartition(t *testing.T) {
	t.Parallel()
	require.Equal(t, 16, Shards)
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		require.EqualValues(t, kafka.Partition(key, 16), Shard(key))
	})
	require.Equal(t, Shard([]byte{}), Shard(nil))
}

// Any header comes back byte for byte, whatever looks like whatever.
func TestHeadersComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`data:;base64,[a-z=]*`),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		m := Message{Subject: text.Draw(t, "subject"), Headers: rapid.MapOf(text, text).Draw(t, "headers")}
		want := make(map[string]string)
		for k, v := range m.Headers {
			if !derived(k) {
				want[k] = v
			}
		}
		if m.Subject != "" {
			want[headerSubject] = m.Subject
		}
		got := make(map[string]string)
		if column := encodeHeaders(&m); column != nil {
			headers, err := decodeHeaders(nil, []byte(*column))
			require.NoError(t, err)
			for _, h := range headers {
				got[h.Key] = string(h.Value)
			}
			require.Len(t, headers, len(want))
		}
		require.Equal(t, want, got)
	})
}

func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	for column, want := range map[string]string{
		`{}`:                               "",
		`{ "a" : "b" }`:                    "a=b",
		`{"a":"\u00e4\ud83d\ude00\n"}`:     "a=ä😀\n",
		`{"a":"b","c":"d","e":""}`:         "a=b c=d e=",
		"{\n\"a\": \"data:;base64,AA==\"}": "a=\x00",
		`{"a":null}`:                       "a=",
	} {
		headers, err := decodeHeaders(nil, []byte(column))
		require.NoError(t, err, column)
		var parts []string
		for _, h := range headers {
			parts = append(parts, h.Key+"="+string(h.Value))
		}
		require.Equal(t, want, strings.Join(parts, " "), column)
	}
	for _, column := range []string{`[]`, `{"a":1}`, `{"a":"b"`, `{"a":"b"}x`, `"x"`, `{"a":"data:;base64,*"}`, `{"a","b"}`} {
		_, err := decodeHeaders(nil, []byte(column))
		require.ErrorIs(t, err, errHeaders, column)
	}
}
