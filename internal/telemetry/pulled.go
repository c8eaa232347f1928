package telemetry

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PartitionLag is how far this process is behind in a partition it owns.
type PartitionLag struct {
	Topic     string
	Partition int
	// Messages between the oldest unfinished record and the end of the log; -1
	// when that is not known yet.
	Messages int64
	// Age of the oldest unfinished record.
	Age time.Duration
}

// CollectLag adds the lag of the partitions that ask returns at each scrape;
// those of other processes are absent.
func (m *Metrics) CollectLag(ask func() []PartitionLag) { m.registry.MustRegister(lagCollector{ask}) }

type lagCollector struct{ ask func() []PartitionLag }

var (
	lagMessages = describe("consumer_lag_messages", "Records between the oldest unfinished one and the end of the partition.",
		"topic", "partition")
	lagSeconds = describe("consumer_lag_seconds", "Age of the oldest record of the partition that is not finished.",
		"topic", "partition")
)

// Describe implements prometheus.Collector.
func (c lagCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- lagMessages
	ch <- lagSeconds
}

// Collect implements prometheus.Collector.
func (c lagCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range c.ask() {
		partition := strconv.Itoa(l.Partition)
		if l.Messages >= 0 {
			ch <- prometheus.MustNewConstMetric(lagMessages, prometheus.GaugeValue, float64(l.Messages), l.Topic, partition)
		}
		ch <- prometheus.MustNewConstMetric(lagSeconds, prometheus.GaugeValue, l.Age.Seconds(), l.Topic, partition)
	}
}

// RelayStats are the counters of the outbox relay since its start.
type RelayStats struct {
	// Published counts acknowledged messages.
	Published uint64
	// PublishErrors and DatabaseErrors count failed batches and statements.
	PublishErrors, DatabaseErrors uint64
	// Parked counts messages that could not be published as they were.
	Parked uint64
	// Fenced counts shards given up because a newer owner had written.
	Fenced uint64
	// LostLeases counts leases that ran out while the relay was running.
	LostLeases uint64
	// ProducerChanges counts transactional ids that the broker had forgotten;
	// each is an alarm.
	ProducerChanges uint64
	// Shards are leased now.
	Shards int
}

// CollectRelay adds the counters of the relay.
func (m *Metrics) CollectRelay(ask func() RelayStats) { m.registry.MustRegister(relayCollector{ask}) }

type relayCollector struct{ ask func() RelayStats }

var relayDescs = struct{ published, errors, parked, fenced, leases, producers, shards *prometheus.Desc }{
	published: describe("relay_published_total", "Messages of the outbox that all in-sync replicas acknowledged."),
	errors:    describe("relay_errors_total", "Failures of the relay, by what failed.", "reason"),
	parked:    describe("relay_parked_total", "Messages that could not be published as they were."),
	fenced:    describe("relay_fenced_total", "Shards given up because a newer owner had written."),
	leases:    describe("relay_lost_leases_total", "Leases that ran out while the relay was running."),
	producers: describe("relay_producer_changes_total", "Transactional ids that the broker had forgotten; each is an alarm."),
	shards:    describe("relay_shards", "Shards of the outbox that this process leases."),
}

// Describe implements prometheus.Collector.
func (c relayCollector) Describe(ch chan<- *prometheus.Desc) {
	d := relayDescs
	for _, desc := range []*prometheus.Desc{d.published, d.errors, d.parked, d.fenced, d.leases, d.producers, d.shards} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c relayCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.ask()
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	count(relayDescs.published, s.Published)
	count(relayDescs.errors, s.PublishErrors, "publish")
	count(relayDescs.errors, s.DatabaseErrors, "database")
	count(relayDescs.parked, s.Parked)
	count(relayDescs.fenced, s.Fenced)
	count(relayDescs.leases, s.LostLeases)
	count(relayDescs.producers, s.ProducerChanges)
	ch <- prometheus.MustNewConstMetric(relayDescs.shards, prometheus.GaugeValue, float64(s.Shards))
}

// PoolStats is what a connection pool says of itself.
type PoolStats struct {
	// InUse and Idle are connections now, Max is their limit.
	InUse, Idle, Max int32
	// Waits counts acquisitions that had to wait for a connection, WaitTime is how
	// long they did in total.
	Waits    int64
	WaitTime time.Duration
}

// CollectPool adds the gauges of the connection pool: waiting says that
// postgres-pool-size is too small, or the database too slow.
func (m *Metrics) CollectPool(ask func() PoolStats) { m.registry.MustRegister(poolCollector{ask}) }

type poolCollector struct{ ask func() PoolStats }

var poolDescs = struct{ connections, limit, waits, seconds *prometheus.Desc }{
	connections: describe("postgres_connections", "Connections to the database, by use.", "use"),
	limit:       describe("postgres_connections_limit", "Most connections that this process may have."),
	waits:       describe("postgres_waits_total", "Times a connection had to be waited for."),
	seconds:     describe("postgres_wait_seconds_total", "Time spent waiting for a connection."),
}

// Describe implements prometheus.Collector.
func (c poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{poolDescs.connections, poolDescs.limit, poolDescs.waits, poolDescs.seconds} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.ask()
	set := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, kind, value, labels...)
	}
	set(poolDescs.connections, prometheus.GaugeValue, float64(s.InUse), "busy")
	set(poolDescs.connections, prometheus.GaugeValue, float64(s.Idle), "idle")
	set(poolDescs.limit, prometheus.GaugeValue, float64(s.Max))
	set(poolDescs.waits, prometheus.CounterValue, float64(s.Waits))
	set(poolDescs.seconds, prometheus.CounterValue, s.WaitTime.Seconds())
}
