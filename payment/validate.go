package payment

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The limits of a command. The JSON Schema states the same ones.
const (
	MaxCommandBytes  = 64 << 10
	MaxNesting       = 16
	MaxTextLength    = 128 // characters of orderId, obligation, customerId, paymentMethod
	MaxNameLength    = 64  // characters of caller, operation, channel
	MaxMetadata      = 32  // entries
	MaxMetadataKey   = 64  // characters
	MaxMetadataValue = 512 // characters
	MaxMetadataBytes = 8 << 10
)

// CommandError says why a command is not one, and what to change.
type CommandError struct {
	// Reason goes into the dead letter when the command cannot be answered; empty
	// where it can be, since its key was read.
	Reason DeadLetterReason
	// Field is the JSON name of the field that is wrong; empty for the whole value.
	Field string
	// Problem is one sentence on what to change. It never repeats the value.
	Problem string
}

// Error returns the field and the sentence.
func (e *CommandError) Error() string {
	if e.Field == "" {
		return "invalid command: " + e.Problem
	}
	return "invalid command: " + e.Field + ": " + e.Problem
}

// Validate checks every rule of the contract, for producers before they publish.
// The error is a *CommandError on the first rule that is broken.
func (c *Command) Validate() error {
	if err := c.identityProblem(); err != nil {
		return err
	}
	if c.IssuedAt.IsZero() {
		return problem("issuedAt", problemMissing)
	}
	if year := c.IssuedAt.UTC().Year(); year < 1970 || year > 2999 {
		return problem("issuedAt", problemTime)
	}
	if err := c.contentProblem(); err != nil {
		return err
	}
	return nil
}

const (
	problemMissing  = "is missing; every command needs it"
	problemName     = "must be 1 to 64 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
	problemKey      = "must be a UUID version 4 in its 36-character form, made once per intent"
	problemUUID     = "must be a UUID in its 36-character form, not the nil UUID"
	problemTime     = "must be an RFC 3339 time between 1970 and 2999 with at most 9 decimals, like 2026-11-30T10:00:00.123Z"
	problemAmount   = "must be between 1 and 9007199254740991 minor units"
	problemWhole    = "must be a whole number of minor units"
	problemCurrency = "must be a current ISO 4217 code in capitals, like EUR"
	problemCard     = "looks like a card number; send a token of the provider instead, never card data"
)

func problem(field, sentence string) *CommandError {
	return &CommandError{Field: field, Problem: sentence}
}

// identityProblem checks what is needed to name the payment (B17).
func (c *Command) identityProblem() *CommandError {
	switch {
	case !isVersion4(c.IdempotencyKey):
		return &CommandError{Reason: DeadNoKey, Field: "idempotencyKey", Problem: problemKey}
	case !isName(c.Caller):
		return &CommandError{Reason: DeadNoKey, Field: "caller", Problem: problemName}
	case !isName(c.Operation):
		return &CommandError{Reason: DeadNoKey, Field: "operation", Problem: problemName}
	default:
		return nil
	}
}

// contentProblem checks everything else.
func (c *Command) contentProblem() *CommandError {
	if c.Operation != OperationCharge {
		return problem("operation", `must be "charge", the only operation of this version`)
	}
	if c.Amount < 1 || c.Amount > MaxAmount {
		return problem("amount", problemAmount)
	}
	if _, known := Exponent(c.Currency); !known {
		return problem("currency", problemCurrency)
	}
	if !isName(c.Channel) {
		return problem("channel", problemName)
	}
	if c.Follows != nil && *c.Follows == uuid.Nil {
		return problem("follows", problemUUID)
	}
	if err := c.textProblem(); err != nil {
		return err
	}
	return metadataProblem(c.Metadata)
}

func (c *Command) textProblem() *CommandError {
	texts := [...]struct{ field, value string }{
		{"orderId", c.OrderID},
		{"obligation", c.ObligationOrDefault()},
		{"customerId", c.CustomerID},
		{"paymentMethod", c.PaymentMethod},
	}
	for i := range texts {
		if sentence := textRule(texts[i].value); sentence != "" {
			return problem(texts[i].field, sentence)
		}
	}
	if LooksLikeCard(c.PaymentMethod) {
		return problem("paymentMethod", problemCard)
	}
	return nil
}

// textRule returns what is wrong with a text field, or "".
func textRule(text string) string {
	switch {
	case text == "":
		return "must not be empty"
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case len(text) > MaxTextLength && utf8.RuneCountInString(text) > MaxTextLength:
		return "must be at most 128 characters"
	case strings.ContainsFunc(text, isControl):
		return "must not contain control characters"
	case text[0] == ' ' || text[len(text)-1] == ' ':
		return "must not begin or end with a space"
	default:
		return ""
	}
}

func metadataProblem(entries map[string]string) *CommandError {
	if len(entries) > MaxMetadata {
		return problem("metadata", "must have at most 32 entries")
	}
	total := 0
	for name, value := range entries {
		total += len(name) + len(value)
		if sentence := entryRule(name, value); sentence != "" {
			return problem("metadata", sentence)
		}
	}
	if total > MaxMetadataBytes {
		return problem("metadata", "must be at most 8192 bytes in all")
	}
	return nil
}

func entryRule(name, value string) string {
	switch {
	case !utf8.ValidString(name) || !utf8.ValidString(value):
		return "must be valid UTF-8"
	case name == "" || utf8.RuneCountInString(name) > MaxMetadataKey:
		return "must have names of 1 to 64 characters"
	case strings.ContainsFunc(name, isControl):
		return "must not have control characters in a name"
	case utf8.RuneCountInString(value) > MaxMetadataValue:
		return "must have values of at most 512 characters"
	case strings.IndexByte(value, 0) >= 0:
		return "must not contain the character U+0000"
	default:
		return ""
	}
}

// IsName reports whether a text may name a caller, an operation, a channel or a
// namespace: 1 to 64 small letters, digits, '.', '_' and '-', the first of them no
// sign.
func IsName(text string) bool { return isName(text) }

// isName checks ^[a-z0-9][a-z0-9._-]{0,63}$.
func isName(text string) bool {
	if text == "" || len(text) > MaxNameLength {
		return false
	}
	for i := range len(text) {
		b := text[i]
		letter := b >= 'a' && b <= 'z' || b >= '0' && b <= '9'
		if !letter && (i == 0 || b != '.' && b != '_' && b != '-') {
			return false
		}
	}
	return true
}

func isVersion4(id uuid.UUID) bool {
	return id.Version() == 4 && id.Variant() == uuid.RFC4122
}

// ParseKey reads an idempotencyKey: a UUID v4 in its 36-character form, in
// either case. Braces, URNs and bare digits are refused, since two spellings of
// one key would be two Kafka keys.
func ParseKey(text string) (uuid.UUID, bool) {
	id, ok := parseUUID(text)
	return id, ok && isVersion4(id)
}

func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil && id != uuid.Nil
}

// parseTime reads an RFC 3339 time as the schema describes it and keeps
// microseconds, as the database does. time.Parse alone is more lenient.
func parseTime(text string) (time.Time, bool) {
	const shape = "0000-00-00T00:00:00"
	if len(text) < len(shape)+1 || !hasShape(text[:len(shape)], shape) {
		return time.Time{}, false
	}
	rest := text[len(shape):]
	if rest[0] == '.' {
		end := 1
		for end < len(rest) && isDigit(rest[end]) {
			end++
		}
		if end < 2 || end > 10 {
			return time.Time{}, false
		}
		rest = rest[end:]
	}
	if rest != "Z" && !isOffset(rest) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || text[:4] < "1970" || text[:4] > "2999" {
		return time.Time{}, false
	}
	return t.UTC().Truncate(time.Microsecond), true
}

// isOffset checks ±hh:mm up to 23:59.
func isOffset(text string) bool {
	return hasShape(text, "+00:00") && text[1:3] <= "23" && text[4:6] <= "59"
}

// hasShape checks text against a pattern: 0 is a digit, + either sign, anything
// else itself.
func hasShape(text, shape string) bool {
	if len(text) != len(shape) {
		return false
	}
	for i := range len(shape) {
		b, want := text[i], shape[i]
		ok := b == want
		switch want {
		case '0':
			ok = isDigit(b)
		case '+':
			ok = b == '+' || b == '-'
		}
		if !ok {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }
