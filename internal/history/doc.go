// Package history checks what callers saw against a small sequential model of a
// payment: one key is delivered, settled by its provider, and looked at, by many
// at once, and some never hear what became of their call. If no order of the
// calls, each at one moment between its begin and its end, explains all the
// answers, a guarantee is broken: G1 (claimed once), G2 (the first outcome or
// rejection ever after), G8 (conflict) or G9 (terminal is sticky).
//
// The search for that order is porcupine's; the model shares no code with the
// store.
package history
