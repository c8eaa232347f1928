// Package outbox carries messages from Postgres to Kafka: whoever changes a
// payment writes its messages into the table settleonce.outbox in the same
// transaction (G7), and a [Relay] publishes them afterwards.
//
// What it promises:
//
//   - A message of a committed transaction is published at least once, one of
//     a transaction that was rolled back never (G5, G7).
//   - Messages of one topic and key appear in the topic in the order in which
//     they were enqueued; a repetition may follow its own original, never an
//     older message after a newer one. This holds with several relays, with
//     one that was frozen and wakes up, and after a crash between publishing
//     and marking (G10). Messages without a key have no order.
//   - A message that cannot be published as it is (too large, no such topic,
//     no right to write) is parked with the reason. The later messages of its
//     topic and key wait for it; everything else flows. After a repair,
//     UPDATE settleonce.outbox SET parked_reason = NULL lets them go on.
//
// The table follows Debezium's outbox convention, so that the relay could be
// swapped. Its order is guarded by the order of steps (model/relay.pml in the
// design): take the lease of a shard, take a producer epoch, read under the
// lease, publish under the epoch, mark under the lease.
package outbox
