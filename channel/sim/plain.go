package sim

// plain reads the JSON that both sides of this package write: one object without
// white space whose members are strings without escapes, whole numbers, true, or
// an object of such strings. Everything else is left to encoding/json, which
// agrees with it; it is several times slower, and that would be the largest part
// of a charge.
type plain struct {
	text []byte
	pos  int
}

// object reads an object to its end, handing each member's name to member, which
// reads the value. It reports whether all of it was plain.
func (p *plain) object(member func(name []byte) bool) bool {
	if !p.take('{') {
		return false
	}
	for first := true; ; first = false {
		if first && p.take('}') {
			return true
		}
		name, ok := p.quoted()
		if !ok || !p.take(':') || !member(name) {
			return false
		}
		if p.take('}') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

// whole reports whether nothing is left.
func (p *plain) whole() bool { return p.pos == len(p.text) }

func (p *plain) take(b byte) bool {
	if p.pos >= len(p.text) || p.text[p.pos] != b {
		return false
	}
	p.pos++
	return true
}

// quoted reads a string of printable ASCII without escapes.
func (p *plain) quoted() ([]byte, bool) {
	if !p.take('"') {
		return nil, false
	}
	start := p.pos
	for ; p.pos < len(p.text); p.pos++ {
		switch b := p.text[p.pos]; {
		case b == '"':
			p.pos++
			return p.text[start : p.pos-1], true
		case b < ' ' || b == '\\' || b >= 0x7f:
			return nil, false
		}
	}
	return nil, false
}

func (p *plain) string(into *string) bool {
	text, ok := p.quoted()
	*into = string(text)
	return ok
}

// maxDigits keeps a number far from overflow; longer ones are not plain.
const maxDigits = 17

// number reads a whole number from 1 without sign.
func (p *plain) number(into *int64) bool {
	start := p.pos
	var n int64
	for p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9' {
		n = n*10 + int64(p.text[p.pos]-'0')
		p.pos++
		if p.pos-start > maxDigits {
			return false
		}
	}
	*into = n
	return p.pos > start && p.text[start] != '0'
}

func (p *plain) strings(into *map[string]string) bool {
	found := map[string]string{}
	*into = found
	return p.object(func(name []byte) bool {
		var value string
		ok := p.string(&value)
		found[string(name)] = value
		return ok
	})
}

// readPlain reads a charge; false when it is not plain.
func (c *Content) readPlain(text []byte) bool {
	p := plain{text: text}
	return p.object(func(name []byte) bool {
		switch string(name) {
		case "amount":
			return p.number(&c.Amount)
		case "currency":
			return p.string(&c.Currency)
		case "customer":
			return p.string(&c.Customer)
		case "method":
			return p.string(&c.Method)
		case "order":
			return p.string(&c.Order)
		case "paymentId":
			return p.string(&c.PaymentID)
		case "metadata":
			return c.Metadata == nil && p.strings(&c.Metadata)
		}
		return false
	}) && p.whole()
}

// readPlain reads an answer; false when it is not plain.
func (a *Answer) readPlain(text []byte) bool {
	p := plain{text: text}
	return p.object(func(name []byte) bool {
		switch string(name) {
		case "id":
			return p.string(&a.ID)
		case "status":
			return p.string((*string)(&a.Status))
		case "providerKey":
			return p.string(&a.ProviderKey)
		case "amount":
			return p.number(&a.Amount)
		case "currency":
			return p.string(&a.Currency)
		case "cause":
			return p.string(&a.Cause)
		case "code":
			return p.string(&a.Code)
		}
		return false
	}) && p.whole()
}
