package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/consumer/inbox"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// The first try does its work and fails afterwards. Its marker goes with its
// work, so the next try does it.
func TestB13_MarkerAndEffectAreOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		if err := work(ctx, tx, m); err != nil {
			return err
		}
		if tries.Add(1) == 1 {
			return errors.New("the first try fails after its work")
		}
		return nil
	}, nil)
	w.events("order-1", 1)
	w.handled(in, 1)
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
	require.EqualValues(t, 2, tries.Load())
	require.Equal(t, 1, w.count("SELECT count(*) FROM settleonce_inbox.processed WHERE consumer = 'packing'"))
}

// The same message twice in one batch, and again in a later one, and in another
// member's: the repetition is nothing, the rest is done.
func TestB14_RepetitionsLeaveTheRestAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		for order := range 5 {
			w.events(fmt.Sprintf("order-%d", order), 1)
		}
	}
	one, stop := w.run(work, nil)
	w.handled(one, 15)
	require.EqualValues(t, 5, one.Stats().Applied)
	stop()
	two, _ := w.run(work, nil)
	for order := range 6 {
		w.events(fmt.Sprintf("order-%d", order), 1)
	}
	w.handled(two, 6)
	require.EqualValues(t, 1, two.Stats().Applied)
	require.Len(t, w.tasks(), 6)
	for order, versions := range w.tasks() {
		require.Equal(t, []int{1}, versions, order)
	}
}

// Two members have the same message at once: the second waits for the first, and
// then finds its marker.
func TestB14_TwoMembersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	inside, release := make(chan struct{}, 2), make(chan struct{})
	slow := func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		inside <- struct{}{}
		<-release // as if the process were frozen, deaf to its context
		return work(ctx, tx, m)
	}
	one, _ := w.run(slow, func(c *inbox.Config) { c.Prefix = "" })
	w.events("order-1", 1)
	<-inside
	// Another group with the same name in the database stands for a member that
	// was given the partition while the first one still works.
	other := payment.NewTopics("other-")
	admin, err := w.client.EnsureTopics(t.Context(), []kafka.TopicSpec{
		{Name: other.Events, Partitions: 1, Replication: 1}, {Name: other.DeadLetter, Partitions: 1, Replication: 1},
	})
	require.NoError(t, err)
	require.Len(t, admin, 2)
	copied := message(event("order-1", 1), time.Now())
	copied.Topic = other.Events
	w.publish(copied)
	two, _ := w.run(work, func(c *inbox.Config) { c.Prefix = "other-" })
	require.Eventually(t, func() bool {
		return w.count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}, 5*time.Minute, 5*time.Millisecond)
	close(release)
	w.handled(one, 1)
	w.handled(two, 1)
	require.EqualValues(t, 1, two.Stats().Repeated)
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
}

// A message whose marker may be forgotten is not done again.
func TestB15_InboxRefusesWhatIsOlderThanItsMarkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := message(event("order-old", 1), time.Now().Add(-101*24*time.Hour))
	w.publish(old)
	w.events("order-new", 1)
	in, _ := w.run(work, nil)
	w.handled(in, 2)
	require.Equal(t, map[string][]int{"order-new": {1}}, w.tasks())
	dead := w.deadLetters()
	require.Len(t, dead, 1)
	require.Equal(t, "stale", dead[0]["dl_reason"])
	require.Equal(t, string(old.Value), dead[0][""])
}

// A message that goes on failing becomes a dead letter, bytes unchanged, with the
// reason; what comes before and after it is done, in order. Sent again, it is done.
func TestPoisonBecomesADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var repaired atomic.Bool
	handler := func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		if e, err := m.Event(); err == nil && e.Version == 2 && !repaired.Load() {
			if _, err := tx.Exec(ctx, "INSERT INTO no_such_table VALUES (1)"); err != nil {
				return err
			}
		}
		return work(ctx, tx, m)
	}
	w.events("order-1", 1, 2, 3, 4)
	nameless := message(event("order-1", 9), time.Now())
	nameless.Headers = nil
	broken := message(event("order-1", 5), time.Now())
	broken.Value = []byte("{")
	w.publish(nameless, broken)
	in, _ := w.run(handler, nil)
	w.handled(in, 6)
	require.Equal(t, map[string][]int{"order-1": {1, 3, 4}}, w.tasks())
	dead := w.deadLetters()
	require.Len(t, dead, 3)
	require.Equal(t, "handler_failed", dead[0]["dl_reason"])
	require.Contains(t, dead[0]["dl_error"], "no_such_table")
	require.Equal(t, "payment.events", dead[0]["dl_topic"])
	require.Equal(t, "packing", dead[0]["dl_consumer"])
	require.Equal(t, "no_id", dead[1]["dl_reason"])
	require.Equal(t, "{", dead[2][""])
	require.EqualValues(t, 1, in.Stats().Missing) // version 3 came after version 1

	repaired.Store(true)
	w.events("order-1", 2)
	w.handled(in, 7)
	require.Equal(t, map[string][]int{"order-1": {1, 3, 4, 2}}, w.tasks())
}

// A handler that hides a failed statement, or ends the transaction, is not taken
// at its word; nor is a constraint that fails only at the commit.
func TestHandlerCannotBreakTheTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.events("order-hides", 1)
	w.events("order-commits", 1)
	w.events("order-deferred", 1)
	w.events("order-fine", 1)
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		e, err := m.Event()
		if err != nil {
			return err
		}
		switch e.OrderID {
		case "order-hides":
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		case "order-commits":
			return tx.Commit(ctx)
		case "order-deferred":
			if err := work(ctx, tx, m); err != nil {
				return err
			}
		}
		return work(ctx, tx, m)
	}, nil)
	w.handled(in, 4)
	require.Equal(t, map[string][]int{"order-fine": {1}}, w.tasks())
	reasons := map[string]string{}
	for _, dead := range w.deadLetters() {
		reasons[dead["dl_reason"]] += dead["dl_error"]
	}
	require.Contains(t, reasons["handler_failed"], "although a statement of it failed")
	require.Contains(t, reasons["handler_failed"], "the transaction is the inbox's to end")
	require.Contains(t, reasons["handler_failed"], "commit:")
}

// Missing versions are told, to the handler and in the counters.
func TestGapsAreNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var mu sync.Mutex
	missing := map[string][]int{}
	in, _ := w.run(func(_ context.Context, _ pgx.Tx, m *inbox.Message) error {
		e, err := m.Event()
		mu.Lock()
		defer mu.Unlock()
		missing[e.OrderID] = append(missing[e.OrderID], m.Missing)
		return err
	}, nil)
	w.events("order-whole", 1, 2, 3)
	w.events("order-gap", 1, 2, 5, 6)
	w.events("order-start", 3)
	w.handled(in, 8)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string][]int{"order-whole": {0, 0, 0}, "order-gap": {0, 0, 2, 0}, "order-start": {2}}, missing)
	require.EqualValues(t, 4, in.Stats().Missing)
}

// A lock that was not free in time says nothing about the message, however often.
func TestLockTimeoutsAreWaitedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var tries atomic.Int32
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		if tries.Add(1) <= 4 { // twice as often as a message is tried that is to blame
			_, err := tx.Exec(ctx, "DO $$BEGIN RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = '55P03'; END$$")
			return err
		}
		return work(ctx, tx, m)
	}, nil)
	w.events("order-1", 1)
	w.handled(in, 1)
	require.Equal(t, map[string][]int{"order-1": {1}}, w.tasks())
	require.Empty(t, w.deadLetters())
}

// Transactions of several partitions may deadlock whenever they have many messages. Then
// they are made smaller, until they get through: with one message each they cannot.
func TestDeadlockedBatchesGetSmaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.events("order-1", 1, 2, 3, 4, 5, 6)
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		if err := work(ctx, tx, m); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DO $$BEGIN IF (SELECT count(*) FROM tasks WHERE xmin = pg_current_xact_id()::xid) > 1 THEN
			RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01'; END IF; END$$`)
		return err
	}, nil)
	w.handled(in, 6)
	require.Equal(t, map[string][]int{"order-1": {1, 2, 3, 4, 5, 6}}, w.tasks())
	require.Empty(t, w.deadLetters())
}

// What no settleonce wrote may stand in a topic too: a version or a time that no database takes is a dead letter,
// and never holds up the partition.
func TestHostileNumbersHoldNobodyUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, _ := w.run(func(_ context.Context, _ pgx.Tx, m *inbox.Message) error {
		_, err := m.Event()
		return err
	}, nil)
	version := event("order-version", math.MaxInt32)
	version.Version++
	late := message(event("order-late", 1), time.Now())
	late.Time, late.Headers = time.UnixMilli(math.MaxInt64/1000), late.Headers[:2]
	w.publish(message(version, time.Now()))
	w.publish(late)
	w.events("order-good", 1)
	w.handled(in, 3)
	reasons := []string{}
	for _, letter := range w.deadLetters() {
		reasons = append(reasons, letter["dl_reason"])
	}
	require.ElementsMatch(t, []string{string(payment.DeadHandlerFailed), string(payment.DeadUnreadable)}, reasons)
}

// Sessions are killed again and again, before and after their COMMIT, while the
// messages come three times: everything is done once, in order. Each round of
// kills follows a message that got as far as its handler, and their number is
// bounded: a machine that is too slow to commit between two kills ends too.
func TestB12_InboxSessionsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const orders, versions, rounds = 40, 5, 30
	var all []kafka.Message
	for version := 1; version <= versions; version++ {
		for order := range orders {
			all = append(all, message(event(fmt.Sprintf("order-%d", order), version), time.Now()))
		}
	}
	for range 3 {
		w.publish(all...)
	}
	handling := make(chan struct{}, 1)
	killing, stopKilling := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	var killed atomic.Int64
	killer.Go(func() {
		for range rounds {
			select {
			case <-handling:
			case <-killing.Done():
				return
			}
			tag, err := w.pool.Exec(killing, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'victim' AND random() < 0.5`)
			if err == nil {
				killed.Add(tag.RowsAffected())
			}
		}
	})
	pool := w.ownPool("victim") // who looks at the end must not meet a session that was killed last
	in, _ := w.run(func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
		select {
		case handling <- struct{}{}:
		default:
		}
		return work(ctx, tx, m)
	}, func(c *inbox.Config) { c.Pool, c.Batch, c.Attempts = pool, 7, 1 })
	w.handled(in, orders*versions)
	stopKilling()
	killer.Wait()
	require.Eventually(t, func() bool { return w.count("SELECT count(*) FROM tasks") == orders*versions }, 5*time.Minute, 10*time.Millisecond)
	for order, done := range w.tasks() {
		require.Len(t, done, versions, order)
		require.True(t, slices.IsSorted(done), "%s: %v", order, done)
	}
	require.Empty(t, w.deadLetters())
	require.Positive(t, killed.Load())
}

// A topic that keeps records for longer than markers is refused at the start.
func TestRetentionIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in, err := inbox.New(inbox.Config{
		Name: "packing", Topics: []string{"payment.events"}, Handler: work, Pool: w.pool, Brokers: w.cluster.ListenAddrs(),
		Retention: 24 * time.Hour,
	})
	require.NoError(t, err)
	_, err = w.client.EnsureTopics(t.Context(), []kafka.TopicSpec{
		{Name: payment.NewTopics("").Events, Partitions: partitions, Replication: 1, Config: map[string]string{"retention.ms": "172800000"}},
	})
	require.NoError(t, err)
	require.ErrorContains(t, in.Run(t.Context()), "set Retention to more than that")
	require.NoError(t, in.Close(t.Context()))
}

func TestConfigSaysWhatToChange(t *testing.T) {
	t.Parallel()
	valid := inbox.Config{Name: "packing", Topics: []string{"payment.events"}, Handler: work, Pool: newWorld(t).pool, Brokers: []string{"localhost:1"}}
	require.NoError(t, valid.WithDefaults().Validate())
	for want, change := range map[string]func(*inbox.Config){
		"name the job":        func(c *inbox.Config) { c.Name = "" },
		"name a topic":        func(c *inbox.Config) { c.Topics = nil },
		"no handler":          func(c *inbox.Config) { c.Handler = nil },
		"set Pool":            func(c *inbox.Config) { c.Pool = nil },
		"out of range":        func(c *inbox.Config) { c.Batch = -1 },
		"too few":             func(c *inbox.Config) { c.Attempts = -1 },
		"too short":           func(c *inbox.Config) { c.Timeout = time.Millisecond },
		"protect from nothin": func(c *inbox.Config) { c.Retention = time.Minute },
		"broker":              func(c *inbox.Config) { c.Brokers = nil },
	} {
		c := valid
		change(&c)
		require.ErrorContains(t, c.WithDefaults().Validate(), want)
	}
}
