package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/store"
)

func (w *world) overview() store.Overview {
	w.t.Helper()
	o, err := w.store.Overview(w.t.Context())
	require.NoError(w.t, err)
	return o
}

// A message that was parked, and what waits behind it, has an alert of its own:
// it must not look as if the relay were stuck.
func TestOldestMessageIsOneThatCanGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	insert := func(shard int, key any, age, parked string) {
		w.exec(`INSERT INTO settleonce.outbox (shard, id, aggregatetype, aggregateid, type, created_at, parked_reason)
			VALUES ($1, gen_random_uuid(), 'payment.events', $2, 't', clock_timestamp() - $3::interval, nullif($4, ''))`, shard, key, age, parked)
	}
	insert(1, []byte("a"), "3 hours", "too large")
	insert(1, []byte("a"), "2 hours", "")
	insert(2, nil, "5 hours", "too large")
	o := w.overview()
	require.EqualValues(t, 3, o.Outbox)
	require.EqualValues(t, 2, o.OutboxParked)
	require.Zero(t, o.OutboxOldest)
	insert(2, nil, "10 minutes", "") // without a key nothing waits
	require.InDelta(t, 10*time.Minute, w.overview().OutboxOldest, float64(time.Minute))
	insert(1, []byte("b"), "1 hour", "")
	require.InDelta(t, time.Hour, w.overview().OutboxOldest, float64(time.Minute))
}

func TestOverviewShowsASuspectInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.False(t, w.overview().Suspect)
	require.NoError(t, w.store.MarkSuspect(t.Context(), "restored"))
	require.True(t, w.overview().Suspect)
	_, err := w.store.Recover(t.Context(), "ada", "nothing lost")
	require.NoError(t, err)
	require.False(t, w.overview().Suspect)
}
