package payment_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/payment"
)

// P19: no currency is scaled by 100 because most are.
func TestMoneyString(t *testing.T) {
	t.Parallel()
	for want, money := range map[string]payment.Money{
		"19.99 EUR":                            {Amount: 1999, Currency: "EUR"},
		"5.00 EUR":                             {Amount: 500, Currency: "EUR"},
		"0.05 EUR":                             {Amount: 5, Currency: "EUR"},
		"0.00 EUR":                             {Amount: 0, Currency: "EUR"},
		"-0.05 EUR":                            {Amount: -5, Currency: "EUR"},
		"500 JPY":                              {Amount: 500, Currency: "JPY"},
		"-500 JPY":                             {Amount: -500, Currency: "JPY"},
		"1.234 KWD":                            {Amount: 1234, Currency: "KWD"},
		"0.001 KWD":                            {Amount: 1, Currency: "KWD"},
		"0.0001 CLF":                           {Amount: 1, Currency: "CLF"},
		"90071992547409.91 USD":                {Amount: payment.MaxAmount, Currency: "USD"},
		"-92233720368547758.08 USD":            {Amount: math.MinInt64, Currency: "USD"},
		"7 minor units of XAU":                 {Amount: 7, Currency: "XAU"},
		"7 minor units of " + "eur":            {Amount: 7, Currency: "eur"},
		"-9223372036854775808 minor units of ": {Amount: math.MinInt64},
	} {
		require.Equal(t, want, money.String())
	}
}

func TestExponentOfEveryCurrency(t *testing.T) {
	t.Parallel()
	counts := map[int]int{}
	for _, code := range payment.Currencies() {
		require.Regexp(t, `^[A-Z]{3}$`, code)
		exponent, known := payment.Exponent(code)
		require.True(t, known, code)
		counts[exponent]++
	}
	// ISO 4217 list one, November 2026. Who changes the table changes the numbers.
	require.Equal(t, map[int]int{0: 17, 2: 139, 3: 7, 4: 2}, counts)

	for code, want := range map[string]int{
		"JPY": 0, "KRW": 0, "VND": 0, "XOF": 0, "ISK": 0, "CLP": 0, "UYI": 0,
		"EUR": 2, "USD": 2, "HUF": 2, "TWD": 2, "MGA": 2, "MRU": 2, "XCG": 2, "ZWG": 2, "SLE": 2, "VED": 2,
		"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
		"CLF": 4, "UYW": 4,
	} {
		exponent, known := payment.Exponent(code)
		require.True(t, known, code)
		require.Equal(t, want, exponent, code)
	}
}

func TestExponentRefusesWhatCannotBePaidIn(t *testing.T) {
	t.Parallel()
	for _, code := range []string{
		"", "eur", "EURO", "EU", "€", "XAU", "XAG", "XPT", "XPD", "XDR", "XTS", "XXX", "XBA", "XSU", "XUA",
		"HRK", "BGN", "ANG", "CUC", "ZWL", "SLL", "DEM", "BTC",
	} {
		_, known := payment.Exponent(code)
		require.False(t, known, code)
	}
}
