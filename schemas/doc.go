// Package schemas is the contract as data: the JSON Schemas of every message,
// golden payloads of every published version, the AsyncAPI document and the
// database migrations, embedded, with the code that checks values against them
// and applies them.
//
// The schemas are checked in tests and at the edges. The consumer's hot path
// decodes with payment.Decode, which agrees with command.json: a test runs both
// over one corpus.
package schemas
