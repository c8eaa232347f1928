package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/kafka/kafkatest"
)

const apiProduce = 0

// B5: what the brokers took is settled row by row; the rest stays and is
// published when it can be.
func TestB5_PartialFailureSettlesRowByRow(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	fault := s.embedded().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: s.replies, Err: kerr.NotLeaderForPartition, Count: -1,
	})
	var messages []Message
	for i := range 10 {
		topic := s.events
		if i >= 4 {
			topic = s.replies
		}
		messages = append(messages, s.message(topic, keyOf(7, strconv.Itoa(i)), i)) // all in one shard
	}
	s.enqueue(messages...)
	relay := s.relay(nil, alone) // a shard whose publish was cut short would be in trouble too
	var together atomic.Bool
	relay.hooks.publish = func(shards []int16) {
		if relay.Stats().PublishErrors > 0 && len(shards) > 1 && slices.Contains(shards, 7) {
			together.Store(true)
		}
	}
	s.run(relay)
	s.eventually("the first four are settled", func() bool { return s.rows("true") == 6 })
	s.eventually("the failure is counted", func() bool { return relay.Stats().PublishErrors > 0 })
	require.Equal(t, 6, s.rows("aggregatetype = $1 AND parked_reason IS NULL", s.replies))
	// The shard is in trouble; the others flow, and do not wait for it.
	well := 0
	s.eventually("it is tried again", func() bool {
		well++
		s.enqueue(s.message(s.events, keyOf(9, "well"), well), s.message(s.events, keyOf(11, "well"), well))
		return relay.Stats().PublishErrors > 3
	})
	s.eventually("other shards flow", func() bool { return s.rows("shard <> 7") == 0 })
	require.False(t, together.Load())

	fault.Remove()
	s.drained()
	require.Len(t, s.log(s.events), 4+2*well)
	require.Len(t, s.log(s.replies), 6)
}

// B6: the broker writes and reports an error, or its answer is lost. The
// repetition is the same batch, and is stored once.
func TestB6_RepeatedBatchIsStoredOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var faults kafkatest.Faults
	if s.cluster != nil {
		s.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.events, Err: kerr.RequestTimedOut, Count: 2})
	}
	faults.Lose(apiProduce, 3)
	s.run(s.relay(faults.Dial))
	for version := range 20 {
		s.enqueue(s.message(s.events, "k", version), s.message(s.events, "other", version))
	}
	s.drained()
	require.Zero(t, faults.Left(apiProduce))
	s.inOrderOnce(s.events, map[string]int{"k": 20, "other": 20})
}

// inOrderOnce requires the versions 0..n-1 of every key in a topic, each once.
func (s *stage) inOrderOnce(topic string, keys map[string]int) {
	s.t.Helper()
	values := s.values(topic)
	require.Len(s.t, values, len(keys))
	for key, n := range keys {
		require.Len(s.t, values[key], n, key)
		for i, v := range values[key] {
			require.Equal(s.t, fmt.Sprintf("%s/%d", key, i), v)
		}
	}
}

// B6: leaders of partitions move while messages flow.
func TestB6_MovingLeaderKeepsOrder(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cluster := s.embedded()
	s.start()
	keys := make(map[string]int)
	for version := range 40 {
		for k := range 8 {
			key := fmt.Sprint("k", k)
			s.enqueue(s.message(s.events, key, version))
			keys[key] = version + 1
		}
		if version%5 == 0 {
			for p := range int32(4) {
				require.NoError(t, cluster.MoveTopicPartition(s.events, p, (p+int32(version/5))%2))
			}
		}
	}
	s.drained()
	s.inOrderOnce(s.events, keys)
}

func TestRelaysShareFairlyAndHandOver(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	relays := []*actor{s.start(), s.start(), s.start()}
	shared := func(most int) func() bool {
		return func() bool {
			sum := 0
			for _, r := range relays {
				n := r.ready()
				if n > most {
					return false
				}
				sum += n
			}
			return sum == Shards
		}
	}
	s.eventually("three relays share", shared(6))
	relays[0].stop()
	relays = relays[1:]
	s.eventually("two relays share", shared(8))
	require.Zero(t, relays[0].Stats().LostLeases+relays[1].Stats().LostLeases)
}

// A stop finishes what is under way and gives the leases back.
func TestStopFinishesAndGivesBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	var messages []Message
	for i := range 4000 {
		messages = append(messages, s.message(s.events, fmt.Sprint("k", i), 0))
	}
	s.enqueue(messages...)
	relay := s.relay(nil, func(c *RelayConfig) { c.BatchSize = 20 })
	under := newStop(t)
	relay.hooks.published = func([]int16) { under.wait() }
	a := s.run(relay)
	under.awaitReached(t)
	a.cancel()
	under.release()
	a.stop()

	left := s.rows("true")
	require.Positive(t, left)
	require.Len(t, s.log(s.events), 4000-left, "what is published is marked, and the other way round")
	var leased, alive int
	require.NoError(t, s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM settleonce.outbox_shards WHERE owner <> ''
		OR lease_until > '-infinity'), (SELECT count(*) FROM settleonce.outbox_relays)`).Scan(&leased, &alive))
	require.Zero(t, leased+alive)
}

// The property of G10 under random takeovers: for every topic and key the log
// never goes back, and nothing is missing.
func TestOrderHoldsUnderRandomTakeovers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &chaos{stage: s, rng: rng, until: time.Now().Add(4 * time.Second)}
	c.run()
	s.drained()
	for _, topic := range []string{s.events, s.replies} {
		for key, values := range s.values(topic) {
			require.Len(t, neverBack(t, key, values), c.written[key], "versions of %s in %s", key, topic)
		}
	}
}

// neverBack requires that versions never fall, and returns them without their
// repetitions.
func neverBack(t *testing.T, key string, values []string) []string {
	t.Helper()
	last := -1
	for i, v := range values {
		version, err := strconv.Atoi(strings.TrimPrefix(v, key+"/"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, version, last, "%s: %v", key, values[max(0, i-5):i+1])
		require.LessOrEqual(t, version, last+1, "%s: a version is missing", key)
		last = version
	}
	return slices.Compact(values)
}

// chaos writes versions of keys while relays come, go and lose their leases.
type chaos struct {
	*stage

	rng     *rand.Rand
	until   time.Time
	written map[string]int
}

func (c *chaos) run() {
	const keys = 24
	c.written = make(map[string]int)
	counts := make([]int, keys)
	writers, ctx := errgroup.WithContext(c.t.Context())
	for k := range keys {
		seed := c.rng.Uint64()
		writers.Go(func() error {
			n, err := c.write(ctx, fmt.Sprint("key-", k), rand.New(rand.NewPCG(seed, 2)))
			counts[k] = n
			return err
		})
	}
	c.disturb()
	require.NoError(c.t, writers.Wait())
	for k, n := range counts {
		c.written[fmt.Sprint("key-", k)] = n
	}
	c.start()
}

// write appends versions, some in transactions that stay open a while, some
// rolled back, as a payment's row lock would let it: one transaction at a time.
func (c *chaos) write(ctx context.Context, key string, rng *rand.Rand) (version int, err error) {
	for time.Now().Before(c.until) {
		keep := rng.IntN(8) > 0
		err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
			messages := []Message{c.message(c.events, key, version), c.message(c.replies, key, version)}
			if err := Enqueue(ctx, tx, messages...); err != nil {
				return err
			}
			if rng.IntN(20) == 0 {
				pause(ctx, time.Duration(rng.IntN(500))*time.Millisecond, nil)
			}
			if !keep {
				return errRollBack
			}
			return nil
		})
		switch {
		case err == nil:
			version++
		case keep:
			return version, err
		}
		pause(ctx, time.Duration(rng.IntN(20))*time.Millisecond, nil)
	}
	return version, nil
}

var errRollBack = errors.New("roll back")

// disturb starts and stops relays, lets leases run out under them, breaks their
// database connections and loses answers of the brokers.
func (c *chaos) disturb() {
	var faults kafkatest.Faults
	relays := []*actor{c.launch(&faults), c.launch(&faults)}
	for time.Now().Before(c.until) {
		switch c.rng.IntN(7) {
		case 0:
			i := c.rng.IntN(len(relays))
			relays[i].stop()
			relays[i] = c.launch(&faults)
		case 1:
			c.begun(relays) // a relay that cannot read its installation does not start
			_, err := c.pool.Exec(c.t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", c.name)
			require.NoError(c.t, err)
		case 2:
			faults.Lose(apiProduce, 1+c.rng.IntN(2))
		default: // a lease runs out although its owner works
			_, err := c.pool.Exec(c.t.Context(), "UPDATE settleonce.outbox_shards SET lease_until = '-infinity' WHERE shard = ANY($1)",
				[]int16{int16(c.rng.IntN(Shards)), int16(c.rng.IntN(Shards)), int16(c.rng.IntN(Shards))})
			require.NoError(c.t, err)
			for _, r := range relays {
				r.tendNow()
			}
		}
		pause(c.t.Context(), time.Duration(20+c.rng.IntN(80))*time.Millisecond, nil)
	}
	for _, r := range relays {
		r.stop()
	}
}

// begun waits until every relay has said that it is alive.
func (c *chaos) begun(relays []*actor) {
	c.t.Helper()
	for _, r := range relays {
		c.eventually("the relay begins", func() bool {
			var alive bool
			err := c.pool.QueryRow(c.t.Context(), "SELECT EXISTS (SELECT FROM settleonce.outbox_relays WHERE owner = $1)", r.owner).Scan(&alive)
			return err == nil && alive
		})
	}
}

// ownPool is a pool whose connections can be told from those of the writers.
func (s *stage) ownPool() *pgxpool.Pool {
	s.t.Helper()
	config := s.pool.Config()
	config.ConnConfig.RuntimeParams["application_name"] = s.name
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(s.t.Context()), config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

func (c *chaos) launch(faults *kafkatest.Faults) *actor {
	c.t.Helper()
	return c.stage.run(c.relay(faults.Dial, func(cfg *RelayConfig) {
		cfg.BatchSize = 1 + c.rng.IntN(50)
		cfg.Lease = 12 * time.Second // of a relay whose connection is broken as it leaves, it runs out
		cfg.Pool = c.ownPool()
	}))
}
