package outbox

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func headersOf(r *kgo.Record) map[string]string {
	m := make(map[string]string, len(r.Headers))
	for _, h := range r.Headers {
		m[h.Key] += string(h.Value)
	}
	return m
}

func TestRelayPublishesAsCloudEvent(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.message(s.events, "key", 1)
	m.Subject, m.Headers = "the-payment", map[string]string{"traceparent": "00-ab-cd-01", "ce_id": "not this one"}
	s.enqueue(m)
	var created time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT created_at FROM settleonce.outbox").Scan(&created))
	s.start(func(c *RelayConfig) { c.Source = "settleonce/test" })
	s.drained()

	log := s.log(s.events)
	require.Len(t, log, 1)
	require.Equal(t, "key", string(log[0].Key))
	require.Equal(t, "key/1", string(log[0].Value))
	require.Equal(t, map[string]string{
		"ce_specversion": "1.0", "ce_id": m.ID.String(), "ce_source": "settleonce/test", "ce_type": "payment.succeeded",
		"ce_time": created.UTC().Format("2006-01-02T15:04:05.000000Z"), "ce_subject": "the-payment",
		"content-type": "application/json", "traceparent": "00-ab-cd-01",
	}, headersOf(log[0]))
}

func TestRelayKeepsDeadLettersUnchanged(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.topic("payment.deadletter")
	binary := "\x00\xff\xfe"
	for _, m := range []Message{
		{Topic: topic, Key: []byte("\xff\x00key"), Payload: []byte(binary)},
		{Topic: topic},
		{Topic: topic, Key: []byte{}, Payload: []byte{}},
		{Topic: topic, Key: []byte(strings.Repeat("long", 5000)), Payload: []byte("{}")},
	} {
		m.ID, m.Type = uuid.New(), "payment.deadletter"
		m.Headers = map[string]string{"dl_reason": "unreadable", "dl_error": "invalid byte " + binary, "dl_offset": "7"}
		s.enqueue(m)
	}
	s.start()
	s.drained()

	byKey := make(map[string]*kgo.Record)
	for _, r := range s.log(topic) {
		require.Equal(t, "unreadable", headersOf(r)["dl_reason"])
		require.Equal(t, "invalid byte "+binary, headersOf(r)["dl_error"])
		require.Equal(t, "application/octet-stream", headersOf(r)["content-type"])
		byKey[fmt.Sprintf("%t%s", r.Key == nil, r.Key)] = r
	}
	require.Len(t, byKey, 4)
	require.Equal(t, binary, string(byKey["false\xff\x00key"].Value))
	require.Nil(t, byKey["true"].Value)
	require.NotNil(t, byKey["false"].Value)
}

// B1: a place in the order that was taken early and is committed late is not
// skipped, also not by a later message of its own key; one that is rolled back
// leaves no trace.
func TestB1_RelayMeetsLateCommits(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := t.Context()
	relay := s.start()

	late, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, Enqueue(ctx, late, s.message(s.events, "late", 1)))
	gone, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, Enqueue(ctx, gone, s.message(s.events, "gone", 1)))

	// The others go on for long enough to move the marks.
	shard := Shard([]byte("late"))
	version := 0
	for start := relay.stats.raises.Load(); relay.stats.raises.Load() < start+4; version++ {
		s.enqueue(s.message(s.events, keyOf(shard, "early"), version))
		s.drained()
	}
	require.NoError(t, late.Commit(ctx))
	s.enqueue(s.message(s.events, "late", 2))
	require.NoError(t, gone.Rollback(ctx))
	s.drained()
	values := s.values(s.events)
	require.Equal(t, []string{"late/1", "late/2"}, values["late"])
	require.NotContains(t, values, "gone")
	require.Len(t, values[keyOf(shard, "early")], version)
	s.eventually("the mark rises when nobody writes", func() bool { return relay.from(shard) > 2 })
}

// from is where the reads of a shard start.
func (r *Relay) from(shard int16) int64 {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	if s := r.board.shards[shard]; s != nil {
		return s.mark.from
	}
	return -1 // not leased yet
}

// keyOf finds a key of a shard.
func keyOf(shard int16, name string) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("%s-%d", name, i); Shard([]byte(key)) == shard {
			return key
		}
	}
}

// B2: a database that was restored has lower transaction ids and sequences.
func TestB2_RelayNeedsNoCounters(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start()
	for i := range 5 {
		s.enqueue(s.message(s.events, "before", i))
	}
	s.drained()
	_, err := s.pool.Exec(t.Context(), "ALTER TABLE settleonce.outbox ALTER COLUMN seq RESTART WITH 1")
	require.NoError(t, err)
	for i := range 5 {
		s.enqueue(s.message(s.events, "after", i))
	}
	s.drained()
	require.Len(t, s.values(s.events)["after"], 5)
}

// B4: a message that cannot be published parks its key; the others flow, and the
// key goes on in order once it is repaired.
func TestB4_RelayParksOnlyTheKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	a, b := keyOf(3, "a"), keyOf(3, "b") // in one shard
	for i := range 10 {
		m := s.message(s.events, []string{a, b}[i%2], i)
		if i == 4 {
			m.Payload = []byte(strings.Repeat("x", 2<<20))
		}
		s.enqueue(m)
	}
	relay := s.start()
	s.eventually("the other key flows", func() bool { return s.rows("aggregateid = $1", []byte(b)) == 0 })
	s.eventually("the first two of the key flow", func() bool { return s.rows("aggregateid = $1", []byte(a)) == 3 })
	s.eventually("the reason is there", func() bool { return s.rows("parked_reason LIKE '%too large%'") == 1 })
	require.EqualValues(t, 1, relay.Stats().Parked)
	_, _, parked, err := relay.Depth(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, parked)

	// Rows of the key that come now wait as well, also when the low-water mark has passed the parked one.
	s.enqueue(s.message(s.events, a, 10), s.message(s.replies, a, 1))
	s.eventually("another topic of the key flows", func() bool { return s.rows("aggregatetype = $1", s.replies) == 0 })
	s.eventually("the mark passes the parked row", func() bool {
		s.enqueue(s.message(s.events, b, 99))
		return relay.from(3) > 10
	})
	require.Equal(t, 1, s.rows("parked_reason IS NOT NULL"))
	require.Equal(t, []string{a + "/0", a + "/2"}, s.values(s.events)[a])

	_, err = s.pool.Exec(t.Context(), "UPDATE settleonce.outbox SET parked_reason = NULL, payload = $1 WHERE parked_reason IS NOT NULL",
		[]byte(a+"/4"))
	require.NoError(t, err)
	s.drained()
	require.Equal(t, []string{a + "/0", a + "/2", a + "/4", a + "/6", a + "/8", a + "/10"}, s.values(s.events)[a])
}

// G10: when a parked row is repaired, reads that start above it do not see it,
// but they do see the rows that waited for it. Those must go on waiting until
// the mark is lowered.
func TestRepairedRowGoesFirst(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first := s.message(s.events, "k", 1)
	first.Payload = []byte(strings.Repeat("x", 2<<20))
	s.enqueue(first, s.message(s.events, "k", 2))
	relay := s.start(func(c *RelayConfig) { c.Sweep = time.Hour })
	flow := func(what string, condition func() bool) {
		version := 0
		s.eventually(what, func() bool {
			version++
			s.enqueue(s.message(s.events, keyOf(Shard([]byte("k")), "other"), version))
			return condition()
		})
	}
	flow("the mark passes both", func() bool { return relay.from(Shard([]byte("k"))) > 2 })
	_, err := s.pool.Exec(t.Context(), "UPDATE settleonce.outbox SET parked_reason = NULL, payload = $1 WHERE parked_reason IS NOT NULL",
		[]byte("k/1"))
	require.NoError(t, err)
	s.enqueue(s.message(s.events, "k", 3))
	seen := relay.Stats().Published
	flow("some cycles pass", func() bool { return relay.Stats().Published > seen+5 })
	s.eventually("the key waits", func() bool { return s.rows("true") == 3 })

	require.NoError(t, relay.sweep(t.Context()))
	s.drained()
	require.Equal(t, []string{"k/1", "k/2", "k/3"}, s.values(s.events)["k"])
}

func TestRelayParksUnknownTopicAndBadRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.enqueue(s.message(s.name+"nowhere", "k", 1), s.message(s.name+"nowhere", "k", 2), s.message(s.events, "k", 1))
	_, err := s.pool.Exec(t.Context(), `INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, headers)
		VALUES (0, gen_random_uuid(), $1, 'x', 'foreign', '{"a": {"b": 1}}')`, s.events)
	require.NoError(t, err)
	s.start()
	s.eventually("both are parked", func() bool { return s.rows("parked_reason IS NOT NULL") == 2 })
	s.eventually("the second one waits", func() bool { return s.rows("true") == 3 })
	require.Equal(t, 1, s.rows("parked_reason LIKE '%create it%'"))
	require.Equal(t, 1, s.rows("parked_reason LIKE 'headers are not%'"))
	require.Equal(t, []string{"k/1"}, s.values(s.events)["k"])

	s.topic("nowhere")
	_, err = s.pool.Exec(t.Context(), "UPDATE settleonce.outbox SET parked_reason = NULL, headers = NULL")
	require.NoError(t, err)
	s.drained()
	require.Equal(t, []string{"k/1", "k/2"}, s.values(s.name + "nowhere")["k"])
}

// A key with a long queue does not hold up the other keys of its shard.
func TestRelayLooksPastABusyKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	busy, other := keyOf(5, "busy"), keyOf(5, "other")
	_, err := s.pool.Exec(t.Context(), `INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, payload)
		SELECT 5, gen_random_uuid(), $1, convert_to($2, 'UTF8'), 'reply', convert_to(i::text, 'UTF8') FROM generate_series(1, 400) i`,
		s.replies, busy)
	require.NoError(t, err)
	s.enqueue(s.message(s.events, other, 1))
	s.start(func(c *RelayConfig) { c.BatchSize = 8 })
	s.drained()
	came, before := s.log(s.events)[0].Timestamp, 0
	for _, r := range s.log(s.replies) {
		if r.Timestamp.Before(came) {
			before++
		}
	}
	require.Less(t, before, 300, "it came long before the busy one was through")
	values := s.values(s.replies)[busy]
	require.Len(t, values, 400)
	for i, v := range values {
		require.Equal(t, strconv.Itoa(i+1), v)
	}
}

func TestRelayRefusesOtherShardCount(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	_, err := s.pool.Exec(t.Context(), "UPDATE settleonce.installation SET shards = 32")
	require.NoError(t, err)
	require.ErrorContains(t, s.relay(nil).Run(t.Context()), "installed with 32 shards")
}

func TestRelayDepth(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.relay(nil)
	rows, oldest, parked, err := r.Depth(t.Context())
	require.NoError(t, err)
	require.Zero(t, rows+int64(oldest)+parked)

	s.enqueue(s.message(s.events, "a", 1), s.message(s.events, "b", 1))
	_, err = s.pool.Exec(t.Context(), `UPDATE settleonce.outbox SET created_at = created_at - interval '1 hour',
		parked_reason = CASE WHEN aggregateid = 'a' THEN 'x' END`)
	require.NoError(t, err)
	s.eventually("the old answer has expired", func() bool {
		rows, oldest, parked, err = r.Depth(t.Context())
		return err == nil && rows == 2
	})
	require.InDelta(t, time.Hour.Seconds(), oldest.Seconds(), 60)
	require.EqualValues(t, 1, parked)
}

func TestRelayConfigRefusals(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	good := RelayConfig{Pool: s.pool, Kafka: s.admin}
	for want, change := range map[string]func(*RelayConfig){
		"set Pool":               func(c *RelayConfig) { c.Pool = nil },
		"set Kafka":              func(c *RelayConfig) { c.Kafka = nil },
		"use 1 to 5000":          func(c *RelayConfig) { c.BatchSize = -1 },
		"use 3s or more":         func(c *RelayConfig) { c.Lease = time.Millisecond },
		"use 10 ms to 1 s":       func(c *RelayConfig) { c.Poll = -1 },
		"forgets ids":            func(c *RelayConfig) { c.RenewProducer = 8 * 24 * time.Hour },
		"sweep interval -1ns is": func(c *RelayConfig) { c.Sweep = -1 },
	} {
		cfg := good
		change(&cfg)
		_, err := NewRelay(cfg)
		require.ErrorContains(t, err, want)
	}
	_, err := NewRelay(good)
	require.NoError(t, err)
}

func TestWakerCoalesces(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	_, err = conn.Exec(t.Context(), "LISTEN "+wakeChannel)
	require.NoError(t, err)

	w := NewWaker(s.pool)
	w.timeout = patience // a notification that fails is dropped
	for range 1000 {
		w.Wake() // before Run: nothing blocks, and they become one
	}
	stop := s.runWaker(w)
	_, err = conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	s.eventually("it is counted", func() bool { return w.Sent() == 1 })
	w.Wake()
	_, err = conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	s.eventually("it is counted", func() bool { return w.Sent() == 2 })
	stop()
	require.Zero(t, w.Failures())
}

// Wake-ups carry the messages where the poll is slow, also after the listening
// connection broke.
func TestWakeUpsReachTheRelay(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	relay := s.start(func(c *RelayConfig) { c.Poll, c.Pool = time.Hour, s.ownPool() })
	w := NewWaker(s.pool)
	s.runWaker(w)
	s.owns(relay.Relay, Shards)
	version := 0
	flows := func() {
		s.eventually("a wake-up arrives", func() bool {
			version++
			s.enqueue(s.message(s.events, "k", version))
			w.Wake()
			return relay.Stats().Published >= 1
		})
		relay.stats.published.Store(0)
	}
	flows()
	_, err := s.pool.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", s.name)
	require.NoError(t, err)
	flows()
}

func (s *stage) runWaker(w *Waker) (stop func()) {
	ctx, cancel := contextWithCancel(s.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	s.t.Cleanup(stop)
	return stop
}

// A flood of bad records under one key leaves in batches: dead letters are in no
// order with each other. So does one of replies to one key, message by message,
// without looking at the whole backlog for each.
func TestRelayDrainsAFloodOfOneKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	topic := s.topic("payment.deadletter")
	const letters, replies = 6000, 300
	flood := make([]Message, 0, letters+replies)
	for i := range letters {
		m := s.message(topic, "same", i)
		m.Type = deadLetterType
		flood = append(flood, m)
	}
	for i := range replies {
		flood = append(flood, s.message(s.replies, "same", i))
	}
	s.enqueue(flood...)
	relay := s.start()
	s.drained()
	require.Len(t, s.values(topic)["same"], letters)
	got := s.values(s.replies)["same"]
	require.Len(t, got, replies)
	for i := range got {
		require.Equal(t, fmt.Sprintf("same/%d", i), got[i], "replies keep their order (G10)")
	}
	require.Zero(t, relay.stats.parked.Load())
}
