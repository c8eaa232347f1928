package outbox

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stop is a point at which a test holds a relay.
type stop struct {
	reached, goOn chan struct{}
	once, free    sync.Once
}

func newStop(t *testing.T) *stop {
	t.Helper()
	s := &stop{reached: make(chan struct{}), goOn: make(chan struct{})}
	t.Cleanup(s.release)
	return s
}

func (s *stop) wait() {
	s.once.Do(func() { close(s.reached) })
	<-s.goOn
}

func (s *stop) release() { s.free.Do(func() { close(s.goOn) }) }

func (s *stop) awaitReached(t *testing.T) {
	t.Helper()
	select {
	case <-s.reached:
	case <-time.After(patience):
		require.FailNow(t, "the relay did not get there")
	}
}

// heldDial holds the bytes of produce requests back, as the network or a stopped
// process may at any point of a write.
func heldDial(at *stop) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &heldConn{Conn: conn, at: at}, nil
	}
}

type heldConn struct {
	net.Conn

	at   *stop
	left int // of the request under way
}

func (c *heldConn) Write(b []byte) (int, error) {
	if c.left == 0 && len(b) >= 6 {
		c.left = int(binary.BigEndian.Uint32(b)) + 4
		if produce := binary.BigEndian.Uint16(b[4:]) == 0; produce {
			c.at.wait()
		}
	}
	n, err := c.Conn.Write(b)
	c.left = max(c.left-n, 0)
	return n, err
}

// takeAway lets a relay's leases run out at once, by the database's clock, and
// makes it count as dead.
func (s *stage) takeAway(r *Relay) {
	s.t.Helper()
	for _, sql := range []string{
		"UPDATE settleonce.outbox_shards SET lease_until = '-infinity' WHERE owner = $1",
		"DELETE FROM settleonce.outbox_relays WHERE owner = $1",
	} {
		_, err := s.pool.Exec(s.t.Context(), sql, r.owner)
		require.NoError(s.t, err)
	}
}

func (s *stage) owns(r *Relay, shards int) {
	s.t.Helper()
	s.eventually("the relay has its shards", func() bool { return r.ready() == shards })
}

// ready counts the shards that may be published.
func (r *Relay) ready() (n int) {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	for _, s := range r.board.shards {
		if s.ready {
			n++
		}
	}
	return n
}

// B6, G10: the bytes of a relay that was frozen in the middle of a write arrive
// after the new owner has published the next version. The broker refuses them.
func TestB6_FrozenPublishIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	write, tend := newStop(t), newStop(t)
	frozen := make(chan struct{})
	old := s.relay(heldDial(write))
	old.hooks.deadline = context.WithoutCancel // it looked at the clock before
	old.hooks.tend = func() {
		select {
		case <-frozen:
			tend.wait()
		default:
		}
	}
	s.run(old)
	s.owns(old, Shards)
	s.enqueue(s.message(s.events, "k", 1))
	write.awaitReached(t)
	close(frozen)
	old.tendNow()
	tend.awaitReached(t)
	s.takeAway(old)

	next := s.start()
	s.drained()
	s.enqueue(s.message(s.events, "k", 2))
	s.drained()
	require.Equal(t, []string{"k/1", "k/2"}, s.values(s.events)["k"])

	write.release()
	s.eventually("the old relay is told", func() bool { return old.Stats().Fenced == 1 })
	require.Equal(t, []string{"k/1", "k/2"}, s.values(s.events)["k"])

	// Awake again, it takes its share and no more.
	tend.release()
	s.owns(old, Shards/2)
	s.owns(next.Relay, Shards/2)
	s.enqueue(s.message(s.events, "k", 3))
	s.drained()
	require.Equal(t, []string{"k/1", "k/2", "k/3"}, s.values(s.events)["k"])
}

// B3: a relay frozen between publishing and marking marks nothing when it wakes
// up, although the rows are still there. The new owner repeats the messages with
// the same ids.
func TestB3_LateMarkChangesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	mark, tend, publish := newStop(t), newStop(t), newStop(t)
	old := s.relay(nil)
	old.hooks.mark = func(rows int) {
		if rows > 0 {
			mark.wait()
		}
	}
	old.hooks.tend = func() {
		select {
		case <-mark.reached:
			tend.wait()
		default:
		}
	}
	s.run(old)
	s.owns(old, Shards)
	var messages []Message
	for i := range 1000 {
		messages = append(messages, s.message(s.events, keyOf(2, "k"), i))
	}
	// One shard, many keys: they are all in the first cycle.
	for i := range messages {
		messages[i].Key = []byte(keyOf(2, string(messages[i].Payload)))
	}
	s.enqueue(messages[:400]...)
	mark.awaitReached(t)
	old.tendNow()
	tend.awaitReached(t)
	s.takeAway(old)

	next := s.relay(nil)
	next.hooks.publish = func(ids []int16) {
		if len(ids) > 0 {
			publish.wait()
		}
	}
	s.run(next)
	publish.awaitReached(t)
	before := s.rows("true")
	mark.release()
	s.eventually("the old relay marks too late", func() bool { return old.Stats().LateMarks > 0 })
	require.Equal(t, before, s.rows("true"))

	publish.release()
	s.enqueue(messages[400:]...)
	s.drained()
	tend.release()
	ids := make(map[string][]string)
	for _, r := range s.log(s.events) {
		ids[string(r.Value)] = append(ids[string(r.Value)], headersOf(r)["ce_id"])
	}
	require.Len(t, ids, 1000)
	repeated := 0
	for _, m := range messages {
		for _, id := range ids[string(m.Payload)] {
			require.Equal(t, m.ID.String(), id)
		}
		repeated += len(ids[string(m.Payload)]) - 1
	}
	require.EqualValues(t, old.Stats().LateMarks, repeated)
}

// B19: the broker has forgotten the transactional id, so an old owner would not
// be refused: alarm, and wait until it must be over. A successor waits too.
func TestB19_ChangedProducerIsWaitedOut(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var began time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), `WITH forgotten AS (UPDATE settleonce.outbox_shards
		SET producer_id = 9007199254740993, producer_epoch = 1) SELECT clock_timestamp()`).Scan(&began))
	s.enqueue(s.message(s.events, "k", 1))
	shortest := func(c *RelayConfig) { c.Lease = 3 * time.Second } // it is waited for
	first := s.start(shortest)
	s.eventually("every shard alarms", func() bool { return first.Stats().ProducerChanges >= Shards })
	first.stop()

	second := s.start() // with a lease that it does not lose: the message comes once
	s.owns(second.Relay, Shards)
	require.Zero(t, second.Stats().ProducerChanges)
	s.drained()
	var over time.Time
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&over))
	require.Greater(t, over.Sub(began), first.cfg.Lease+first.cfg.share())
	require.Equal(t, []string{"k/1"}, s.values(s.events)["k"])
}

// A transactional id is kept alive by taking new epochs, while messages flow.
func TestProducersAreRenewed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	// What a publish that was cut short left open is forgotten at a renewal, and comes again.
	relay := s.start(alone, func(c *RelayConfig) { c.RenewProducer = 300 * time.Millisecond })
	epoch := func() (n int) {
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT coalesce(min(producer_epoch), -1) FROM settleonce.outbox_shards").Scan(&n))
		return n
	}
	s.owns(relay.Relay, Shards)
	first, sent := epoch(), 0
	s.eventually("every shard takes new epochs", func() bool {
		sent++
		s.enqueue(s.message(s.events, "k", sent))
		return epoch() >= first+3
	})
	s.drained()
	require.Len(t, s.values(s.events)["k"], sent)
	require.Zero(t, relay.Stats().ProducerChanges+relay.Stats().Fenced)
}
