package payment

import (
	"maps"
	"slices"
	"unicode/utf8"
)

// shortEscapes are the escapes RFC 8785 asks for; other control characters are
// written as \u00xx in lower case, and everything else as it is.
var shortEscapes = [256]byte{'"': '"', '\\': '\\', '\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// appendText appends a JSON string as canonical JSON writes it. Bytes that are
// not UTF-8 become U+FFFD, so what is published is always JSON.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		b := text[i]
		if b >= ' ' && b != '"' && b != '\\' && b < utf8.RuneSelf {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(append(dst, text[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += size
			continue
		}
		dst = appendEscape(append(dst, text[start:i]...), b)
		i++
		start = i
	}
	return append(append(dst, text[start:]...), '"')
}

func appendEscape(dst []byte, b byte) []byte {
	const digits = "0123456789abcdef"
	if short := shortEscapes[b]; short != 0 {
		return append(dst, '\\', short)
	}
	return append(dst, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
}

func sortedKeys(entries map[string]string) []string {
	return slices.Sorted(maps.Keys(entries))
}
