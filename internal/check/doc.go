// Package check judges an installation from outside: from the channel's own
// ledger, from what is in the topics, and from the tables, which it only reads.
// It shares no code with the workers beyond the messages' types, so that it does
// not share their mistakes.
//
// Judge holds the evidence of topics, ledger and, where they were read, the tables
// of the installation and of a service downstream against each other; Inspect
// collects it from an installation. Each check names the guarantee it is about.
//
// evidence.go files what was read under its payment (dossier.go), and verdict.go
// calls the rules: those of one payment are in payments.go, permits.go and
// punctual.go, of the keys of an order in orders.go, of queries in budget.go, dark.go
// and asked.go, of callers in callers.go, of callbacks and the HTTP edge in
// callbacks.go and told.go, of the tables in tables.go, of services downstream in
// downstream.go. unchecked.go says what none of them could see.
package check
