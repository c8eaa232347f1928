// Package check judges an installation from outside: from the channel's own
// ledger, from what is in the topics, and from the tables, which it only reads.
// It shares no code with the workers beyond the messages' types, so that it does
// not share their mistakes.
//
// Judge holds the evidence of topics, ledger and, where it was read, Database
// against each other; Inspect collects it from an installation. Each check names
// the guarantee it is about.
package check
