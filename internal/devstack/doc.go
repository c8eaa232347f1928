// Package devstack runs the servers that settleonce needs where nobody has set them up: a private
// Postgres and an embedded Kafka broker, on free loopback ports, with their data in a folder.
//
// It serves `settleonce dev`, `demo` and `bench`, and the tests. It is for development: one node, no
// replication, and a broker that was written for tests. Production uses servers of its own.
package devstack
