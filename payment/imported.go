package payment

import (
	"cmp"

	"github.com/google/uuid"
)

// What an imported payment's fingerprint leaves out, because the older system did
// not keep it. The version is the negative sum, so a late retry is compared by
// what is known, and never called a conflict for what is not.
const (
	gapCustomerID    int16 = 1
	gapPaymentMethod int16 = 2
)

// ImportedKey derives the idempotency key of a payment of an older system that
// had none: a UUID v5 of caller, operation and the payment's id there, so that
// every run of an import finds the same one. No client can send it: theirs are
// version 4.
func ImportedKey(caller, operation, id string) uuid.UUID {
	return derive("import", caller, operation, id)
}

// ValidateImported checks a payment of an older system: as Validate, but the key
// may be any UUID but the nil one, and CustomerID and PaymentMethod may be empty,
// which says that nobody knows them any more. The error is a *CommandError.
func (c *Command) ValidateImported() error {
	switch {
	case c.IdempotencyKey == uuid.Nil:
		return problem("idempotencyKey", problemUUID)
	case !isName(c.Caller):
		return problem("caller", problemName)
	case c.IssuedAt.UTC().Year() < 1970 || c.IssuedAt.UTC().Year() > 2999:
		return problem("issuedAt", problemTime)
	}
	filled := *c
	filled.CustomerID, filled.PaymentMethod = cmp.Or(c.CustomerID, "unknown"), cmp.Or(c.PaymentMethod, "unknown")
	if err := filled.contentProblem(); err != nil {
		return err
	}
	return nil
}

// ImportedFingerprint hashes what is known of a payment of an older system. Where
// everything is, it is Fingerprint. It fails with ErrNotText.
func (c *Command) ImportedFingerprint() (Fingerprint, error) {
	var gaps int16
	if c.CustomerID == "" {
		gaps |= gapCustomerID
	}
	if c.PaymentMethod == "" {
		gaps |= gapPaymentMethod
	}
	f, err := c.Fingerprint()
	if gaps != 0 {
		f.Version = -gaps
	}
	return f, err
}

// Matches reports whether the command, whose own fingerprint is given, has the
// content that f was made of, as far as f covers it (G8).
func (f Fingerprint) Matches(c *Command, own Fingerprint) bool {
	if f == own {
		return true
	}
	if f.Version >= 0 || own.Version != FingerprintVersion {
		return false // other algorithms, or a command that could not be read
	}
	known := *c
	if -f.Version&gapCustomerID != 0 {
		known.CustomerID = ""
	}
	if -f.Version&gapPaymentMethod != 0 {
		known.PaymentMethod = ""
	}
	partial, err := known.ImportedFingerprint()
	return err == nil && partial == f
}
