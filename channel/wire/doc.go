// Package wire is the HTTP client of the channels: one permit, one request on
// the wire (G1). Nothing here ever sends twice: there is no retry, no redirect
// is followed, and no connection is tried after a byte may have left another.
//
// It speaks HTTP/1.1 over connections of its own instead of net/http's
// Transport, for two reasons. The Transport repeats a POST that carries an
// Idempotency-Key when a reused connection dies, and it cannot tell the caller
// whether anything left; here the request is one Write on the caller's own
// goroutine, so both are plain to see. And without the Transport's two
// goroutines per connection a call costs less than half of its CPU. Messages
// are still parsed by net/http.
package wire
