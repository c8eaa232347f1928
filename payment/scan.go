package payment

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads JSON (RFC 8259) strictly and without allocating, except for
// strings with escapes. A grammar error ends the scan; what is grammatical but
// refused by the contract (\u0000, a lone surrogate) is noted in taboo and the
// scan goes on, so that the rest can still be read and answered.
type scanner struct {
	text  string
	pos   int
	bad   string // the grammar error, if any
	taboo string // the refused content, if any
}

const (
	tabooNUL       = `must not contain the character U+0000`
	tabooSurrogate = `must not contain a \u escape that is half of a surrogate pair`
)

// fail notes the first grammar error and always returns false.
func (s *scanner) fail(sentence string) bool {
	if s.bad == "" {
		s.bad = sentence
	}
	return false
}

// space skips white space and returns the next byte, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.text) {
		switch b := s.text[s.pos]; b {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return b
		}
	}
	return 0
}

// expect skips white space and one given byte.
func (s *scanner) expect(b byte) bool {
	if s.space() != b || s.pos >= len(s.text) {
		return s.fail("is not JSON")
	}
	s.pos++
	return true
}

// quoted reads a string token at the scanner's position.
func (s *scanner) quoted() (string, bool) {
	if !s.expect('"') {
		return "", false
	}
	start, escaped := s.pos, false
	for s.pos < len(s.text) {
		switch b := s.text[s.pos]; {
		case b == '"':
			raw := s.text[start:s.pos]
			s.pos++
			if escaped {
				return s.unescape(raw)
			}
			return raw, true
		case b == '\\':
			escaped = true
			s.pos += 2
		case b < ' ':
			return "", s.fail("is not JSON: a string holds a control character")
		default:
			s.pos++
		}
	}
	return "", s.fail("is not JSON: a string does not end")
}

// unescape resolves the escapes of a string token.
func (s *scanner) unescape(raw string) (string, bool) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		if raw[i+1] != 'u' {
			plain := strings.IndexByte(`"\/bfnrt`, raw[i+1])
			if plain < 0 {
				return "", s.fail("is not JSON: an escape is unknown")
			}
			out = append(out, "\"\\/\b\f\n\r\t"[plain])
			i += 2
			continue
		}
		r, size := s.unicodeEscape(raw[i:])
		if size == 0 {
			return "", s.fail(`is not JSON: a \u escape is broken`)
		}
		out = utf8.AppendRune(out, r)
		i += size
	}
	return string(out), true
}

// unicodeEscape reads \uXXXX, or a surrogate pair of two, and returns how many
// bytes it took; 0 if it is broken.
func (s *scanner) unicodeEscape(raw string) (rune, int) {
	r := hex4(raw)
	switch {
	case r < 0:
		return 0, 0
	case r == 0:
		s.taboo = tabooNUL
	case utf16.IsSurrogate(r):
		if second := hex4(raw[6:]); second >= 0 {
			if pair := utf16.DecodeRune(r, second); pair != utf8.RuneError {
				return pair, 12
			}
		}
		s.taboo = tabooSurrogate
		return utf8.RuneError, 6
	}
	return r, 6
}

// hex4 reads the four digits of a \u escape at the start of raw, or -1.
func hex4(raw string) rune {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return -1
	}
	var r rune
	for i := 2; i < 6; i++ {
		digit := hexDigit(raw[i])
		if digit < 0 {
			return -1
		}
		r = r<<4 | digit
	}
	return r
}

func hexDigit(b byte) rune {
	switch {
	case isDigit(b):
		return rune(b - '0')
	case b >= 'a' && b <= 'f':
		return rune(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return rune(b-'A') + 10
	default:
		return -1
	}
}

// number reads a number token: -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *scanner) number() (string, bool) {
	start := s.pos
	s.skip("-")
	if !s.skip("0") && s.digits() == 0 {
		return "", s.fail("is not JSON")
	}
	if s.skip(".") && s.digits() == 0 {
		return "", s.fail("is not JSON: a number is broken")
	}
	if s.skip("eE") {
		s.skip("+-")
		if s.digits() == 0 {
			return "", s.fail("is not JSON: a number is broken")
		}
	}
	return s.text[start:s.pos], true
}

// skip passes over one byte of the set.
func (s *scanner) skip(set string) bool {
	if s.pos >= len(s.text) || strings.IndexByte(set, s.text[s.pos]) < 0 {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) digits() int {
	start := s.pos
	for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
		s.pos++
	}
	return s.pos - start
}

func (s *scanner) literal(word string) bool {
	if !strings.HasPrefix(s.text[s.pos:], word) {
		return s.fail("is not JSON")
	}
	s.pos += len(word)
	return true
}

// value passes over any value at the given depth of nesting.
func (s *scanner) value(depth int) bool {
	var ok bool
	switch s.space() {
	case '{':
		return s.object(depth+1, func(string) bool { return s.value(depth + 1) })
	case '[':
		return s.array(depth + 1)
	case '"':
		_, ok = s.quoted()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		_, ok = s.number()
	}
	return ok
}

// object reads an object at the given depth and hands every name to member,
// which must read the value.
func (s *scanner) object(depth int, member func(name string) bool) bool {
	if depth > MaxNesting {
		return s.fail("must not nest deeper than 16 levels")
	}
	if !s.expect('{') {
		return false
	}
	if s.space() == '}' {
		s.pos++
		return true
	}
	for {
		name, ok := s.quoted()
		if !ok || !s.expect(':') || !member(name) {
			return false
		}
		if s.space() == '}' {
			s.pos++
			return true
		}
		if !s.expect(',') {
			return false
		}
	}
}

func (s *scanner) array(depth int) bool {
	if depth > MaxNesting {
		return s.fail("must not nest deeper than 16 levels")
	}
	if !s.expect('[') {
		return false
	}
	if s.space() == ']' {
		s.pos++
		return true
	}
	for s.value(depth) {
		if s.space() == ']' {
			s.pos++
			return true
		}
		if !s.expect(',') {
			return false
		}
	}
	return false
}
