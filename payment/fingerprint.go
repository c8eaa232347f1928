package payment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// FingerprintVersion is the algorithm Command.Fingerprint uses. A stored
// fingerprint of an older version is compared by computing that version again,
// so an algorithm, once published, is never changed, only added to.
const FingerprintVersion int16 = 1

// RawFingerprintVersion marks a fingerprint over a record's bytes, for commands
// that cannot be judged valid and so have no business content to normalize.
const RawFingerprintVersion int16 = 0

// ErrNotText reports text that is not valid UTF-8, which has no canonical JSON.
var ErrNotText = errors.New("text is not valid UTF-8")

// Fingerprint is the hash of a command's normalized business content. Two
// commands of one identity with different fingerprints are in conflict (G8).
// Fingerprints are comparable with ==; different versions are never equal.
type Fingerprint struct {
	// Version is the algorithm that made Sum.
	Version int16
	// Sum is a SHA-256.
	Sum [32]byte
}

// String shows the version and the hash, for logs.
func (f Fingerprint) String() string {
	return strconv.Itoa(int(f.Version)) + ":" + hex.EncodeToString(f.Sum[:])
}

// Fingerprint hashes what the payer is asked for: SHA-256 over the canonical
// JSON (RFC 8785) of orderId, obligation (defaulted), amount, currency,
// customerId, paymentMethod and channel. The amount goes in as a decimal string,
// since canonical JSON would round big numbers. It fails with ErrNotText.
func (c *Command) Fingerprint() (Fingerprint, error) {
	var buffer [512]byte
	canonical, err := c.appendCanonical(buffer[:0])
	if err != nil {
		return Fingerprint{}, err
	}
	return Fingerprint{Version: FingerprintVersion, Sum: sha256.Sum256(canonical)}, nil
}

// RawFingerprint hashes a record's bytes as they are, with version 0. A retry
// that repeats the same invalid bytes is a duplicate; a repaired command under
// the same key is a conflict, so it is not charged after "rejected" (G2).
func RawFingerprint(value []byte) Fingerprint {
	return Fingerprint{Version: RawFingerprintVersion, Sum: sha256.Sum256(value)}
}

// appendCanonical writes the canonical JSON of the business content. The names
// are in the order RFC 8785 asks for, so nothing has to be sorted.
func (c *Command) appendCanonical(dst []byte) ([]byte, error) {
	for _, text := range [...]string{c.Channel, c.Currency, c.CustomerID, c.Obligation, c.OrderID, c.PaymentMethod} {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("fingerprint command: %w", ErrNotText)
		}
	}
	dst = append(dst, `{"amount":"`...)
	dst = strconv.AppendInt(dst, c.Amount, 10)
	dst = appendText(append(dst, `","channel":`...), c.Channel)
	dst = appendText(append(dst, `,"currency":`...), c.Currency)
	dst = appendText(append(dst, `,"customerId":`...), c.CustomerID)
	dst = appendText(append(dst, `,"obligation":`...), c.ObligationOrDefault())
	dst = appendText(append(dst, `,"orderId":`...), c.OrderID)
	dst = appendText(append(dst, `,"paymentMethod":`...), c.PaymentMethod)
	return append(dst, '}'), nil
}
