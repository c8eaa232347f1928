package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const (
	// snapshotTTL spares the database when several scrape at once.
	snapshotTTL = 5 * time.Second
	// snapshotTimeout bounds what a scrape may wait for the database.
	snapshotTimeout = 3 * time.Second
)

// Snapshot is what the database says about the whole installation. Every
// process shows the same, so take the maximum over instances.
type Snapshot struct {
	// Unresolved counts open payments by state and age.
	Unresolved []UnresolvedCount
	// OldestUnresolved is the age of the oldest open payment by state.
	OldestUnresolved map[string]time.Duration
	// RetryQueue counts payments that wait for a query of a tier (1s, 4s, 16s).
	RetryQueue map[string]int64
	// OutboxPending counts messages on their way, parked ones included.
	OutboxPending, OutboxParked int64
	// OutboxOldest is the age of the oldest message that can be published, parked
	// ones and what waits behind them left out.
	OutboxOldest time.Duration
	// Suspect says that commits may have been lost, and nobody has acknowledged it.
	Suspect bool
	// ReviewItems counts open items by kind.
	ReviewItems map[string]int64
	// UnmatchedCallbacks counts callbacks whose payment is not there, by channel.
	UnmatchedCallbacks map[string]int64
	// Channels is the retry budget and the breaker of each channel.
	Channels []ChannelState
}

// UnresolvedCount is how many open payments have a state and an age.
type UnresolvedCount struct {
	State string
	// Age is the bucket, like "1m-15m".
	Age   string
	Count int64
}

// ChannelState is a channel's retry budget and breaker.
type ChannelState struct {
	Channel string
	// Tokens are the queries that may be made now.
	Tokens float64
	// BreakerOpen says that nothing is sent for now.
	BreakerOpen bool
}

// SnapshotFunc asks the database. It must be cheap: it runs with every scrape,
// every few seconds at most.
type SnapshotFunc func(ctx context.Context) (Snapshot, error)

// CollectSnapshot adds the gauges that come from the database. While it does
// not answer they are absent, which alerts can tell from zero.
func (m *Metrics) CollectSnapshot(ask SnapshotFunc, log zerolog.Logger) {
	c := &snapshotCollector{ask: ask, log: log, now: time.Now}
	c.errors = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "snapshot_errors_total", Help: "Times the database did not answer what the gauges ask.",
	})
	m.registry.MustRegister(c)
}

type snapshotCollector struct {
	ask    SnapshotFunc
	log    zerolog.Logger
	now    func() time.Time
	errors prometheus.Counter

	mu    sync.Mutex
	asked time.Time
	last  Snapshot
	err   error
}

var snapshotDescs = struct {
	unresolved, oldest, retry, pending, parked, outboxAge, suspect, review, unmatched, tokens, breaker *prometheus.Desc
}{
	unresolved: describe("unresolved_payments", "Open payments by state and age.", "state", "age"),
	oldest:     describe("unresolved_oldest_age_seconds", "Age of the oldest open payment, by state.", "state"),
	retry:      describe("retry_queue_payments", "Payments that wait for a query, by tier.", "tier"),
	pending:    describe("outbox_pending_messages", "Messages in the outbox that are not published (counted up to 100,000)."),
	parked:     describe("outbox_parked_messages", "Messages in the outbox that cannot be published as they are."),
	outboxAge:  describe("outbox_oldest_age_seconds", "Age of the oldest message in the outbox that can be published."),
	suspect:    describe("installation_suspect", "1 while commits may have been lost and nobody has acknowledged it (settleonce recover)."),
	review:     describe("review_items", "Open review items, by kind.", "kind"),
	unmatched:  describe("callbacks_unmatched", "Callbacks whose payment is not there, by channel (counted up to 100,000).", "channel"),
	tokens:     describe("query_budget_available", "Queries that the retry budget allows now.", "channel"),
	breaker:    describe("breaker_open", "1 while the breaker of a channel is open.", "channel"),
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *snapshotCollector) Describe(ch chan<- *prometheus.Desc) {
	d := snapshotDescs
	for _, desc := range []*prometheus.Desc{
		d.unresolved, d.oldest, d.retry, d.pending, d.parked, d.outboxAge, d.suspect, d.review, d.unmatched, d.tokens, d.breaker,
	} {
		ch <- desc
	}
	c.errors.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *snapshotCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.snapshot()
	c.errors.Collect(ch)
	if err != nil {
		return
	}
	set := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, u := range s.Unresolved {
		set(snapshotDescs.unresolved, float64(u.Count), u.State, u.Age)
	}
	for state, age := range s.OldestUnresolved {
		set(snapshotDescs.oldest, age.Seconds(), state)
	}
	for tier, n := range s.RetryQueue {
		set(snapshotDescs.retry, float64(n), tier)
	}
	set(snapshotDescs.pending, float64(s.OutboxPending))
	set(snapshotDescs.parked, float64(s.OutboxParked))
	set(snapshotDescs.outboxAge, s.OutboxOldest.Seconds())
	set(snapshotDescs.suspect, boolValue(s.Suspect))
	for kind, n := range s.ReviewItems {
		set(snapshotDescs.review, float64(n), kind)
	}
	for channel, n := range s.UnmatchedCallbacks {
		set(snapshotDescs.unmatched, float64(n), channel)
	}
	for _, state := range s.Channels {
		set(snapshotDescs.tokens, state.Tokens, state.Channel)
		set(snapshotDescs.breaker, boolValue(state.BreakerOpen), state.Channel)
	}
}

// snapshot asks at most once per snapshotTTL, also while it fails: a database in
// trouble is not helped by more questions.
func (c *snapshotCollector) snapshot() (Snapshot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && c.now().Sub(c.asked) < snapshotTTL {
		return c.last, c.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	c.last, c.err = c.ask(ctx)
	c.asked = c.now()
	if c.err != nil {
		c.errors.Inc()
		c.log.Warn().Err(c.err).Msg("gauges from the database are missing")
	}
	return c.last, c.err
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
