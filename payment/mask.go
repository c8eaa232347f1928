package payment

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// secretPattern finds what must not stand in a log: words with a credential's
// or payment token's prefix, and bearer or basic credentials.
var secretPattern = regexp.MustCompile(
	`(?i)\b(?:tok|pm|src|card|sk|pk|rk|whsec|seti|pi_secret)_[A-Za-z0-9_\-]+|\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=\-]+`)

// digitRun finds digits in groups that single spaces or dashes part; digitGroup
// one such group.
var (
	digitRun   = regexp.MustCompile(`[0-9](?:[ \-]?[0-9]){12,}`)
	digitGroup = regexp.MustCompile(`[0-9]+`)
)

// Mask makes text fit for logs and for people: card-like numbers keep their last
// four digits, tokens and credentials their first four characters. It is not
// meant to be reversed or parsed.
func Mask(text string) string {
	text = digitRun.ReplaceAllStringFunc(text, maskRun)
	return secretPattern.ReplaceAllStringFunc(text, MaskToken)
}

// MaskToken shows only enough of a token to tell two apart: its first four
// characters where it is long enough, else nothing.
func MaskToken(token string) string {
	if LooksLikeCard(token) {
		return maskCard(token)
	}
	if utf8.RuneCountInString(token) < 8 {
		return "****"
	}
	return string([]rune(token)[:4]) + "****"
}

// CleanText makes a provider's text fit to be stored and published: masked,
// valid UTF-8, without control characters, at most limit characters.
func CleanText(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = strings.TrimSpace(Mask(text))
	if utf8.RuneCountInString(text) > limit {
		text = strings.TrimSpace(string([]rune(text)[:limit]))
	}
	return text
}

// LooksLikeCard reports whether the whole text reads as a card number: 13 to 19
// digits, with or without single spaces or dashes, that pass the Luhn check.
func LooksLikeCard(text string) bool {
	digits := 0
	for i := range len(text) {
		switch b := text[i]; {
		case b >= '0' && b <= '9':
			digits++
		case b != ' ' && b != '-':
			return false
		}
	}
	return digits >= 13 && digits <= 19 && luhn(text)
}

func maskCard(text string) string {
	if !LooksLikeCard(text) {
		return text
	}
	digits := strings.NewReplacer(" ", "", "-", "").Replace(text)
	return "****" + digits[len(digits)-4:]
}

// maskRun masks every card number in a run of digit groups. A card may stand
// beside other numbers, so each row of whole groups is tried.
func maskRun(run string) string {
	groups := digitGroup.FindAllStringIndex(run, -1)
	for first := range groups {
		for last := first; last < len(groups); last++ {
			start, end := groups[first][0], groups[last][1]
			if LooksLikeCard(run[start:end]) {
				return run[:start] + maskCard(run[start:end]) + maskRun(run[end:])
			}
		}
	}
	return run
}

// luhn checks the digits of the text and passes over everything else.
func luhn(text string) bool {
	sum, double := 0, false
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] < '0' || text[i] > '9' {
			continue
		}
		digit := int(text[i] - '0')
		if double {
			digit *= 2
			digit = digit/10 + digit%10
		}
		sum += digit
		double = !double
	}
	return sum%10 == 0
}

func isControl(r rune) bool { return r < 0x20 || (r >= 0x7f && r <= 0x9f) }
