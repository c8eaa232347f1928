package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
)

// appendBody writes a charge as JSON, the same bytes for the same charge: the
// request's hash shows that every send of an attempt was the same.
func appendBody(out []byte, r *channel.Request) []byte {
	c := Content{
		Amount: r.Amount, Currency: r.Currency, Customer: r.CustomerID, Method: r.PaymentMethod,
		Order: r.OrderID, PaymentID: r.PaymentID.String(), Metadata: r.Metadata,
	}
	return c.appendJSON(out)
}

// appendJSON writes the content as encoding/json would, at a fraction of the cost.
func (c *Content) appendJSON(out []byte) []byte {
	out = append(out, `{"amount":`...)
	out = strconv.AppendInt(out, c.Amount, 10)
	out = appendMember(out, "currency", c.Currency)
	out = appendMember(out, "customer", c.Customer)
	out = appendMember(out, "method", c.Method)
	out = appendMember(out, "order", c.Order)
	out = appendMember(out, "paymentId", c.PaymentID)
	if len(c.Metadata) > 0 {
		out = appendMetadata(out, c.Metadata)
	}
	return append(out, '}')
}

// appendJSON writes the answer.
func (a *Answer) appendJSON(out []byte) []byte {
	start := len(out)
	out = appendMember(out, "id", a.ID)
	out = appendMember(out, "status", string(a.Status))
	out = appendMember(out, "providerKey", a.ProviderKey)
	out = appendNumber(out, "amount", a.Amount)
	out = appendMember(out, "currency", a.Currency)
	out = appendMember(out, "cause", a.Cause)
	out = appendMember(out, "code", a.Code)
	if a.Replayed {
		out = append(out, `,"replayed":true`...)
	}
	return closeObject(out, start)
}

// appendJSON writes the line, without its end.
func (l *line) appendJSON(out []byte) []byte {
	out = append(out, `{"at":"`...)
	out = l.At.UTC().AppendFormat(out, time.RFC3339Nano)
	out = append(out, `","key":"`...)
	out = appendUUID(out, l.Key)
	out = append(out, '"')
	out = appendMember(out, "kind", string(l.Kind))
	out = appendNumber(out, "send", int64(l.Send))
	out = appendMember(out, "why", l.Why)
	out = appendMember(out, "status", string(l.Status))
	out = appendMember(out, "reference", l.Reference)
	out = appendNumber(out, "booked", l.Amount)
	out = appendMember(out, "bookedCurrency", l.Currency)
	if l.Forgot {
		out = append(out, `,"forgot":true`...)
	}
	out = appendNumber(out, "lagNanos", l.Lag)
	out = appendNumber(out, "settleAt", l.SettleAt)
	if l.Content != nil {
		out = append(out, `,"content":`...)
		out = l.Content.appendJSON(out)
	}
	return append(out, '}')
}

// closeObject turns the members written since start, each with a comma before
// it, into an object.
func closeObject(out []byte, start int) []byte {
	if len(out) == start {
		return append(out, '{', '}')
	}
	out[start] = '{'
	return append(out, '}')
}

func appendMetadata(out []byte, metadata map[string]string) []byte {
	out = append(out, `,"metadata":`...)
	separator := byte('{')
	names := make([]string, 0, 16) // stays on the stack for most
	for name := range metadata {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, separator)
		out = appendString(out, name)
		out = append(out, ':')
		out = appendString(out, metadata[name])
		separator = ','
	}
	return append(out, '}')
}

// appendMember writes a comma, a name and a string; nothing for an empty one.
func appendMember(out []byte, name, value string) []byte {
	if value == "" {
		return out
	}
	out = append(out, ',', '"')
	out = append(out, name...)
	out = append(out, '"', ':')
	return appendString(out, value)
}

// appendNumber writes a comma, a name and a number; nothing for 0.
func appendNumber(out []byte, name string, value int64) []byte {
	if value == 0 {
		return out
	}
	out = append(out, ',', '"')
	out = append(out, name...)
	out = append(out, '"', ':')
	return strconv.AppendInt(out, value, 10)
}

// appendString writes a JSON string; only what needs escaping takes the long way.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			text, err := json.Marshal(s)
			if err != nil {
				return append(out, `""`...)
			}
			return append(out, text...)
		}
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

func appendUUID(out []byte, id uuid.UUID) []byte {
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return append(out, text[:]...)
}

// requestHash identifies what was sent: half a SHA-256 of key and body, in hex.
func requestHash(key uuid.UUID, body []byte) string {
	whole := make([]byte, 0, len(key)+len(body))
	whole = append(append(whole, key[:]...), body...)
	sum := sha256.Sum256(whole)
	return hex.EncodeToString(sum[:16])
}
