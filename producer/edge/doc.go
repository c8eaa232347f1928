// Package edge is the way in over HTTP: it takes payments from upstream services
// that speak HTTP, tells what became of them, and mounts the callbacks of
// providers.
//
// A payment that this edge accepts is in Kafka, acknowledged by all in-sync
// replicas, before the answer leaves (G5). Everything else follows from that: a
// command is published first, always, and judged by the consumer like any other;
// the edge only looks into the database for what was decided, and compares
// fingerprints there (G8). It never decides anything itself, so an edge that is
// killed between the two loses nothing: the client sends the same key again and
// gets the first outcome (G2).
//
// A caller is who its credential says, never what a body says (G12). Another
// caller's payment has another id, so it is not found, like one that never was.
package edge
