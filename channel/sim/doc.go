// Package sim is the sandbox channel: a payment provider that runs beside us,
// keeps a ledger of its own, counts the charges per provider key, and can be
// told to misbehave in every way we know of.
//
// Server is the provider, Adapter speaks to it as any adapter speaks to its
// provider, and Instant is a provider inside the process for benchmarks.
// Behaviour says what the server does; Behaviour.Capabilities is the record that
// matches it.
//
// # Faults
//
// A fault is written kind[@n][:duration]; several are joined by commas. n is the
// send (or query) of its provider key that it strikes, * strikes all. A fault
// reaches the server in a charge's metadata ("sim": "lost_answer@1,declined@2"),
// as a rule (POST /admin/faults), by the last two digits of the amount where
// Behaviour.AmountFaults is set (see AmountFault), or by rate (Behaviour.Rates).
//
// # Callbacks
//
// With a target (PUT /admin/callbacks, or Config.Callbacks) the server sends a
// signed callback after each execution and settlement, and again until it is
// acknowledged. Faults whose name begins with callback_ spoil them: missing,
// duplicate, late, early (before its own answer), reordered, forged, stale,
// opposite, of a wrong amount, garbage, about a refund of all or of half. POST
// /admin/callbacks/contradict has everything that was said contradicted.
// GET /admin/callbacks counts.
//
// # Ledger
//
// Everything the server does is a line in its ledger file, written before the
// answer leaves, so that killing the process forgets nothing that was answered.
// GET /ledger streams one line per provider key, GET /ledger/summary counts,
// GET /ledger/load counts second by second.
package sim
