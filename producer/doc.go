// Package producer is for upstream services: it makes payment commands and
// brings them to Kafka without ever losing track of their identity.
//
// A command is one intent to charge. Its idempotencyKey is made once, by
// [NewCommand], and is the same in every retry: however often the command is
// published, it is charged at most once (G1) and every delivery gets the first
// outcome (G2). So the one rule for callers is: store the command before it is
// sent for the first time, and when in doubt send the same one again. A second
// call of NewCommand is a second payment.
//
// There are two ways to send:
//
//   - [Producer.Publish] sends directly. An error that is [ErrUnknown] means that
//     commands may or may not be in Kafka: publish the same ones again.
//   - [EnqueueTx] writes the command into an outbox table of the caller's own
//     database, in the caller's own transaction, beside the order it pays for.
//     An [OutboxPublisher] sends it from there, again after every crash, until
//     Kafka has it. Nothing can be forgotten between the two.
//
// Where the consumer asks for signatures, Config.SigningKey signs either way.
//
// The answer arrives on the topic payment.replies and, once per change, as a fact
// on payment.events, both under the same key.
package producer
