package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
)

// appendBody writes a charge as JSON, the same bytes for the same charge: the
// request's hash shows that every send of an attempt was the same.
func appendBody(out []byte, r *channel.Request) []byte {
	out = append(out, `{"amount":`...)
	out = strconv.AppendInt(out, r.Amount, 10)
	out = appendMember(out, "currency", r.Currency)
	out = appendMember(out, "customer", r.CustomerID)
	out = appendMember(out, "method", r.PaymentMethod)
	out = appendMember(out, "order", r.OrderID)
	out = append(out, `,"paymentId":"`...)
	out = appendUUID(out, r.PaymentID)
	out = append(out, '"')
	if len(r.Metadata) > 0 {
		out = appendMetadata(out, r.Metadata)
	}
	return append(out, '}')
}

func appendMetadata(out []byte, metadata map[string]string) []byte {
	out = append(out, `,"metadata":`...)
	separator := byte('{')
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		out = append(out, separator)
		out = appendString(out, name)
		out = append(out, ':')
		out = appendString(out, metadata[name])
		separator = ','
	}
	return append(out, '}')
}

func appendMember(out []byte, name, value string) []byte {
	out = append(out, ',', '"')
	out = append(out, name...)
	out = append(out, '"', ':')
	return appendString(out, value)
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
