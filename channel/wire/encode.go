package wire

import (
	"strconv"
	"strings"
)

// encode appends the whole request, so that it can leave in one Write.
func (c *Client) encode(out []byte, r Request) []byte {
	out = append(out, r.Method...)
	out = append(out, ' ')
	out = append(out, c.prefix...)
	out = append(out, r.Target...)
	out = append(out, " HTTP/1.1\r\n"...)
	out = append(out, c.head...)
	out = appendFields(out, r.Header)
	if len(r.Body) > 0 {
		out = append(out, "Content-Length: "...)
		out = strconv.AppendInt(out, int64(len(r.Body)), 10)
		out = append(out, "\r\n"...)
	}
	out = append(out, "\r\n"...)
	return append(out, r.Body...)
}

func appendFields(out []byte, fields []Field) []byte {
	for _, f := range fields {
		out = append(out, f.Name...)
		out = append(out, ": "...)
		out = append(out, f.Value...)
		out = append(out, "\r\n"...)
	}
	return out
}

// valid refuses what could end a line early: a second request smuggled into the
// first would be a second send under one permit.
func (r Request) valid() bool {
	if r.Method == "" || !strings.HasPrefix(r.Target, "/") || !clean(r.Method, '!') || !clean(r.Target, '!') {
		return false
	}
	for _, f := range r.Header {
		if !f.valid() {
			return false
		}
	}
	return true
}

func (f Field) valid() bool {
	return f.Name != "" && clean(f.Name, '!') && !strings.Contains(f.Name, ":") && clean(f.Value, ' ')
}

// clean reports whether every byte is printable and not below the lowest allowed.
func clean(s string, lowest byte) bool {
	for i := range len(s) {
		if s[i] < lowest || s[i] == 0x7f {
			return false
		}
	}
	return true
}
