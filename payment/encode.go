package payment

import (
	"strconv"
	"time"

	"github.com/google/uuid"
)

// timeLayout is RFC 3339 in UTC with microseconds at most: what the database
// keeps, so that a time reads the same before and after it was stored.
const timeLayout = "2006-01-02T15:04:05.999999Z"

// AppendJSON appends the command as JSON. It does not validate.
func (c *Command) AppendJSON(dst []byte) []byte {
	dst = appendUUID(append(dst, `{"idempotencyKey":`...), c.IdempotencyKey)
	dst = appendText(append(dst, `,"caller":`...), c.Caller)
	dst = appendText(append(dst, `,"operation":`...), c.Operation)
	dst = appendText(append(dst, `,"orderId":`...), c.OrderID)
	dst = appendOptional(dst, `,"obligation":`, c.Obligation)
	if c.Follows != nil {
		dst = appendUUID(append(dst, `,"follows":`...), *c.Follows)
	}
	dst = strconv.AppendInt(append(dst, `,"amount":`...), c.Amount, 10)
	dst = appendText(append(dst, `,"currency":`...), c.Currency)
	dst = appendText(append(dst, `,"customerId":`...), c.CustomerID)
	dst = appendText(append(dst, `,"paymentMethod":`...), c.PaymentMethod)
	dst = appendText(append(dst, `,"channel":`...), c.Channel)
	dst = appendTime(append(dst, `,"issuedAt":`...), c.IssuedAt)
	if len(c.Metadata) > 0 {
		dst = appendMap(append(dst, `,"metadata":`...), c.Metadata)
	}
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (c *Command) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// AppendJSON appends the event as JSON.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = appendUUID(append(dst, `{"paymentId":`...), e.PaymentID)
	dst = appendText(append(dst, `,"caller":`...), e.Caller)
	dst = appendText(append(dst, `,"operation":`...), e.Operation)
	dst = appendUUID(append(dst, `,"idempotencyKey":`...), e.IdempotencyKey)
	dst = appendText(append(dst, `,"orderId":`...), e.OrderID)
	dst = appendText(append(dst, `,"obligation":`...), e.Obligation)
	dst = strconv.AppendInt(append(dst, `,"amount":`...), e.Amount, 10)
	dst = appendText(append(dst, `,"currency":`...), e.Currency)
	dst = appendText(append(dst, `,"channel":`...), e.Channel)
	dst = appendText(append(dst, `,"state":`...), e.State.String())
	dst = strconv.AppendInt(append(dst, `,"version":`...), int64(e.Version), 10)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(e.Attempt), 10)
	dst = appendOptional(dst, `,"providerReference":`, e.ProviderReference)
	dst = appendOptional(dst, `,"cause":`, e.Cause)
	dst = appendTime(append(dst, `,"occurredAt":`...), e.OccurredAt)
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (e *Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// AppendJSON appends the reply as JSON.
func (r *Reply) AppendJSON(dst []byte) []byte {
	dst = appendText(append(dst, `{"kind":`...), string(r.Kind))
	dst = appendOptional(dst, `,"code":`, string(r.Code))
	dst = appendOptional(dst, `,"detail":`, r.Detail)
	if r.BlockedBy != nil {
		dst = appendUUID(append(dst, `,"blockedBy":`...), *r.BlockedBy)
	}
	dst = appendText(append(dst, `,"caller":`...), r.Caller)
	dst = appendText(append(dst, `,"operation":`...), r.Operation)
	dst = appendUUID(append(dst, `,"idempotencyKey":`...), r.IdempotencyKey)
	dst = appendUUID(append(dst, `,"paymentId":`...), r.PaymentID)
	dst = appendText(append(dst, `,"state":`...), r.State.String())
	dst = strconv.AppendInt(append(dst, `,"version":`...), int64(r.Version), 10)
	dst = strconv.AppendBool(append(dst, `,"replayed":`...), r.Replayed)
	if r.Outcome != nil {
		dst = r.Outcome.AppendJSON(append(dst, `,"outcome":`...))
	}
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (r *Reply) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// AppendJSON appends the outcome as JSON.
func (o *Outcome) AppendJSON(dst []byte) []byte {
	dst = appendText(append(dst, `{"state":`...), o.State.String())
	dst = appendOptional(dst, `,"providerReference":`, o.ProviderReference)
	dst = appendOptional(dst, `,"cause":`, o.Cause)
	dst = appendTime(append(dst, `,"occurredAt":`...), o.OccurredAt)
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (o *Outcome) MarshalJSON() ([]byte, error) { return o.AppendJSON(nil), nil }

// AppendJSON appends the re-query as JSON.
func (r *Requery) AppendJSON(dst []byte) []byte {
	dst = appendUUID(append(dst, `{"paymentId":`...), r.PaymentID)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(r.Attempt), 10)
	dst = strconv.AppendInt(append(dst, `,"query":`...), int64(r.Query), 10)
	dst = appendTime(append(dst, `,"dueAt":`...), r.DueAt)
	return append(dst, '}')
}

// MarshalJSON writes what AppendJSON writes.
func (r *Requery) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

func appendOptional(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return appendText(append(dst, name...), text)
}

func appendUUID(dst []byte, id uuid.UUID) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b>>4], digits[b&0xf])
	}
	return append(dst, '"')
}

func appendTime(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, timeLayout)
	return append(dst, '"')
}

// appendMap writes the entries in the order of their names, so that equal
// content gives equal bytes.
func appendMap(dst []byte, entries map[string]string) []byte {
	before := byte('{')
	for _, name := range sortedKeys(entries) {
		dst = appendText(append(dst, before), name)
		dst = appendText(append(dst, ':'), entries[name])
		before = ','
	}
	return append(dst, '}')
}
