// Package cluster tests settleonce where it is meant to run: three brokers of Apache Kafka with three
// copies of everything, and a Postgres primary with a synchronous standby. While real worker processes
// pay, leaders are killed, two brokers of three are killed, all are restarted one after the other, and
// the database fails over. `make cluster` runs it; nothing else does.
//
// The payments with all that goes wrong in them, the waiting and the judging are the demo's. Here are
// the scenes, and beside them probes: plain payments, published twice, of which every scene requires
// that they end, are charged once and are told of.
package cluster
