// Package check judges an installation from outside: from the channel's own
// ledger, from what is in the topics, and from the tables, which it only reads.
// It shares no code with the workers beyond the messages' types, so that it does
// not share their mistakes.
//
// Judge looks at topics and ledger. Database is what the tables say, and its
// Compare holds them against both. Each check names the guarantee it is about.
package check
