package payment

import "strings"

// exponents is ISO 4217 list one as of November 2026, by number of digits after
// the point. It holds what can be paid in, and the funds codes that have a minor
// unit (BOV, CHE, CHW, CLF, COU, MXV, USN, UYI, UYW).
//
// Left out because ISO gives them no minor unit, so an integer amount has no
// meaning: XAG, XAU, XPD, XPT (metals), XBA, XBB, XBC, XBD (bond units), XDR,
// XSU, XUA (accounting units), XTS (testing), XXX (no currency). Left out because
// they are withdrawn: ANG (XCG since 2025), BGN (EUR since 2026), CUC, HRK, SLL,
// ZWL and older ones.
var exponents = currencyTable(map[int]string{
	0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
	2: "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD " +
		"CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP " +
		"GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT " +
		"LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN " +
		"NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB " +
		"SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS " +
		"UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
	3: "BHD IQD JOD KWD LYD OMR TND",
	4: "CLF UYW",
})

func currencyTable(byExponent map[int]string) map[string]int {
	table := make(map[string]int, 170)
	for exponent, codes := range byExponent {
		for code := range strings.FieldsSeq(codes) {
			table[code] = exponent
		}
	}
	return table
}

// Exponent returns how many digits of an amount in the currency's minor units
// stand after the point: 2 for EUR, 0 for JPY, 3 for KWD, 4 for CLF. It reports
// false for a code that is not a current ISO 4217 code with a minor unit.
func Exponent(currency string) (int, bool) {
	exponent, ok := exponents[currency]
	return exponent, ok
}

// Currencies returns every accepted currency code, in no particular order.
func Currencies() []string {
	codes := make([]string, 0, len(exponents))
	for code := range exponents {
		codes = append(codes, code)
	}
	return codes
}
