// Package model holds the protocol in Promela, to be checked by spin: see
// docs/model.md. Its tests see to it that what the models say about the code
// stays true: that the places they name exist, and that every rule they can
// leave out is left out in some check.
package model
