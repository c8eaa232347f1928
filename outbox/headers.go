package outbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/tracing"
	"github.com/settleonce/settleonce/payment"
)

// The column "headers" is a JSON object of strings. What is no UTF-8 text, or
// would look like what follows, is written behind this prefix.
const binaryPrefix = "data:;base64,"

// Names of record headers: CloudEvents 1.0 in its Kafka binding's binary mode.
const (
	headerID          = "ce_id"
	headerSource      = "ce_source"
	headerType        = "ce_type"
	headerTime        = "ce_time"
	headerSpecVersion = "ce_specversion"
	headerSubject     = "ce_subject"
	headerContentType = "content-type"
)

// derived reports whether the relay makes this header from a column.
func derived(name string) bool {
	switch name {
	case headerID, headerSource, headerType, headerTime, headerSpecVersion:
		return true
	default:
		return false
	}
}

// encodeHeaders writes a message's headers as the JSON of the column, nil for
// none. Names are sorted, so that equal messages are equal rows.
func encodeHeaders(m *Message) *string {
	if m.Subject == "" && m.Trace == "" && len(m.Headers) == 0 {
		return nil
	}
	names := make([]string, 0, len(m.Headers))
	for name := range m.Headers {
		if !derived(name) && (name != headerSubject || m.Subject == "") && (name != tracing.Header || m.Trace == "") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	b := make([]byte, 0, 64+64*len(names))
	b = append(b, '{')
	if m.Subject != "" {
		b = appendPair(b, headerSubject, m.Subject)
	}
	if m.Trace != "" {
		b = appendPair(b, tracing.Header, m.Trace)
	}
	for _, name := range names {
		b = appendPair(b, name, m.Headers[name])
	}
	s := string(append(b, '}'))
	return &s
}

func appendPair(b []byte, name, value string) []byte {
	if len(b) > 1 {
		b = append(b, ',')
	}
	b = appendText(b, name)
	b = append(b, ':')
	return appendText(b, value)
}

// appendText appends s as a JSON string that gives back every byte of it.
func appendText(b []byte, s string) []byte {
	if !storable(s) || strings.HasPrefix(s, binaryPrefix) {
		s = binaryPrefix + base64.StdEncoding.EncodeToString([]byte(s))
	}
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

var errHeaders = errors.New("headers are not a JSON object of strings")

// decodeHeaders appends the headers of the column to dst.
func decodeHeaders(dst []kafka.Header, column []byte) ([]kafka.Header, error) {
	if len(column) == 0 {
		return dst, nil
	}
	if headers, ok := decodePlain(dst, column); ok {
		return headers, nil
	}
	var object map[string]string
	if err := json.Unmarshal(column, &object); err != nil {
		return dst, fmt.Errorf("%w: %w", errHeaders, err)
	}
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		key, err := unwrapText(name)
		if err != nil {
			return dst, err
		}
		value, err := unwrapText(object[name])
		if err != nil {
			return dst, err
		}
		dst = append(dst, kafka.Header{Key: key, Value: []byte(value)})
	}
	return dst, nil
}

// decodePlain reads what encodeHeaders writes for ordinary text, and leaves
// everything else (escapes, spaces, binary values) to the general decoder.
// Nearly every row takes this way.
func decodePlain(dst []kafka.Header, column []byte) ([]kafka.Header, bool) {
	rest := column
	open := byte('{')
	for len(rest) > 1 && rest[0] == open {
		var name, value []byte
		var ok bool
		if name, rest, ok = plainText(rest[1:], ':'); !ok {
			return dst, false
		}
		if value, rest, ok = plainText(rest[1:], 0); !ok {
			return dst, false
		}
		dst = append(dst, kafka.Header{Key: string(name), Value: slices.Clone(value)})
		open = ','
	}
	return dst, string(rest) == "}" && open == ','
}

// plainText takes one string without escapes off rest; next must follow it
// unless it is zero.
func plainText(rest []byte, next byte) (text, tail []byte, ok bool) {
	if len(rest) == 0 || rest[0] != '"' {
		return nil, rest, false
	}
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return nil, rest, false
		case c == '"':
			text, tail = rest[1:i], rest[i+1:]
			ok = len(tail) > 0 && (next == 0 || tail[0] == next) && !strings.HasPrefix(string(text), binaryPrefix)
			return text, tail, ok
		}
	}
	return nil, rest, false
}

func unwrapText(s string) (string, error) {
	encoded, binary := strings.CutPrefix(s, binaryPrefix)
	if !binary {
		return s, nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errHeaders, err)
	}
	return string(raw), nil
}

const (
	specVersion   = "1.0"
	contentJSON   = "application/json"
	contentBinary = "application/octet-stream"
)

// recordHeaders are the headers of the published record: CloudEvents' binary
// mode, and what the row carries beyond it.
func (w *row) recordHeaders(source []byte) ([]kafka.Header, error) {
	id, err := w.id.MarshalText()
	if err != nil {
		return nil, fmt.Errorf("write ce_id: %w", err)
	}
	const derivedHeaders, usual = 5, 3
	headers := make([]kafka.Header, 0, derivedHeaders+usual)
	headers = append(headers,
		kafka.Header{Key: headerSpecVersion, Value: []byte(specVersion)},
		kafka.Header{Key: headerID, Value: id},
		kafka.Header{Key: headerSource, Value: source},
		kafka.Header{Key: headerType, Value: []byte(w.kind)},
		kafka.Header{Key: headerTime, Value: w.created.UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout)},
	)
	if headers, err = decodeHeaders(headers, w.headers); err != nil {
		return nil, err
	}
	var content, dead, clash bool
	for _, h := range headers[derivedHeaders:] {
		content = content || h.Key == headerContentType
		dead = dead || h.Key == payment.DeadHeaderReason
		clash = clash || derived(h.Key)
	}
	if clash { // a row that somebody else wrote
		headers = append(headers[:derivedHeaders], slices.DeleteFunc(headers[derivedHeaders:],
			func(h kafka.Header) bool { return derived(h.Key) })...)
	}
	switch {
	case content:
	case dead:
		headers = append(headers, kafka.Header{Key: headerContentType, Value: []byte(contentBinary)})
	default:
		headers = append(headers, kafka.Header{Key: headerContentType, Value: []byte(contentJSON)})
	}
	return headers, nil
}

// timeLayout is RFC 3339 with Postgres's precision, in UTC.
const timeLayout = "2006-01-02T15:04:05.000000Z"
