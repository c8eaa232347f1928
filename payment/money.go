package payment

import "strconv"

// MaxAmount is the largest amount in minor units that a message may carry:
// 2^53 − 1, the largest integer every JSON parser reads exactly.
const MaxAmount = 1<<53 - 1

// Money is an amount with its currency. Nothing here computes with it; it is
// compared and shown.
type Money struct {
	// Amount is in minor units of Currency.
	Amount int64
	// Currency is an ISO 4217 code.
	Currency string
}

// Money returns what the command asks for.
func (c *Command) Money() Money { return Money{Amount: c.Amount, Currency: c.Currency} }

// String formats the money for people: "19.99 EUR", "500 JPY", "1.234 KWD". An
// unknown currency has no known point, so its minor units are shown as such.
func (m Money) String() string {
	exponent, known := Exponent(m.Currency)
	if !known {
		return strconv.FormatInt(m.Amount, 10) + " minor units of " + m.Currency
	}
	sign, digits := "", strconv.FormatInt(m.Amount, 10)
	if m.Amount < 0 {
		sign, digits = "-", digits[1:]
	}
	if exponent == 0 {
		return sign + digits + " " + m.Currency
	}
	for len(digits) <= exponent {
		digits = "0" + digits
	}
	point := len(digits) - exponent
	return sign + digits[:point] + "." + digits[point:] + " " + m.Currency
}
