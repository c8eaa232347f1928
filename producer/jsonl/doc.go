// Package jsonl publishes payment commands from JSON lines: one command, or one
// intent without a key, on each line.
//
// It reads everything before it sends anything, so that a file with a mistake in
// its last line has not already charged its first. A line without an
// idempotencyKey gets one, once: whoever publishes has to keep the completed
// commands before the first send, since only they can be retried safely.
package jsonl
