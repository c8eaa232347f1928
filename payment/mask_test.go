package payment_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/settleonce/settleonce/payment"
)

func TestMask(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"card 4111111111111111 refused":        "card ****1111 refused",
		"card 4111 1111 1111 1111 refused":     "card ****1111 refused",
		"card 4111-1111-1111-1111":             "card ****1111",
		"order 12 4111111111111111 of 5":       "order 12 ****1111 of 5",
		"4111111111111111 5555555555554444":    "****1111 ****4444",
		"378282246310005":                      "****0005",
		"order 4111111111111112 is no card":    "order 4111111111111112 is no card",
		"tok_visa_4242 expired":                "tok_**** expired",
		"Authorization: Bearer abc.def-ghi":    "Authorization: Bear****",
		"key sk_live_abcdef0123 was refused":   "key sk_l**** was refused",
		"whsec_abcdef":                         "whse****",
		"payment 8e03978e-40d5-43e8-bc93-6894": "payment 8e03978e-40d5-43e8-bc93-6894",
		"nothing to hide":                      "nothing to hide",
	} {
		require.Equal(t, want, payment.Mask(text))
	}
}

func TestMaskToken(t *testing.T) {
	t.Parallel()
	for token, want := range map[string]string{
		"": "****", "short": "****", "tok_visa": "tok_****", "pm_1234567890": "pm_1****",
		"4111111111111111": "****1111",
	} {
		require.Equal(t, want, payment.MaskToken(token))
	}
}

func TestLooksLikeCard(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"4111111111111111", "4222222222222", "378282246310005", "5555 5555 5555 4444", "6011-1111-1111-1117", "6304000000000000000",
	} {
		require.True(t, payment.LooksLikeCard(text), text)
	}
	for _, text := range []string{
		"", "tok_visa", "tok_4111111111111111", "4111111111111112", "411111111111", "41111111111111111111", "４１１１", "- - -",
	} {
		require.False(t, payment.LooksLikeCard(text), text)
	}
}

// What a provider says is stored and published: always bounded, clean text.
func TestCleanText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "insufficient funds", payment.CleanText("  insufficient\nfunds\x00 ", 100))
	require.Equal(t, "ab", payment.CleanText("abc", 2))
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 50).Draw(t, "limit")
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		clean := payment.CleanText(text, limit)
		require.True(t, utf8.ValidString(clean))
		require.LessOrEqual(t, utf8.RuneCountInString(clean), limit)
		require.False(t, strings.ContainsFunc(clean, unicode.IsControl))
	})
}
