package paymenttest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/payment"
)

// Case is one record's value and how every reader must judge it.
type Case struct {
	// Name says what is special about it.
	Name string
	// Value is the record's value.
	Value []byte
	// Valid: it is a command.
	Valid bool
	// Identified: it is invalid, but its key, caller and operation can be read, so
	// that it is answered "rejected" with INVALID_COMMAND. Else it is a dead letter.
	Identified bool
	// Reason is what Decode says about one that is not identified.
	Reason payment.DeadLetterReason
	// Field is the one to blame; empty for the whole value.
	Field string
}

// Corpus returns good and bad commands: the bad-input matrix. Kafka key, null
// values, unknown channels and compression are the consumer's own part of it.
func Corpus() []Case {
	cases := validCases()
	cases = append(cases, unreadableCases()...)
	cases = append(cases, namelessCases()...)
	cases = append(cases, invalidCases()...)
	return append(cases, metadataCases()...)
}

func good(name string, value object) Case {
	return Case{Name: name, Value: value.JSON(), Valid: true, Identified: true}
}

func unreadable(name, value string) Case {
	return Case{Name: name, Value: []byte(value), Reason: payment.DeadUnreadable}
}

func nameless(name, field string, value object) Case {
	return Case{Name: name, Value: value.JSON(), Reason: payment.DeadNoKey, Field: field}
}

func invalid(name, field string, value object) Case {
	return Case{Name: name, Value: value.JSON(), Identified: true, Field: field}
}

// each makes one case of every value.
func each(values []string, one func(value string) Case) []Case {
	cases := make([]Case, len(values))
	for i, value := range values {
		cases[i] = one(value)
	}
	return cases
}

func validCases() []Case {
	b := base()
	cases := []Case{
		good("minimal", b),
		good("all optional fields", b.with("obligation", `"part-1"`).with("metadata", `{"cart":"c-55"}`).
			with("follows", `"ff2255d7-18d1-5b8f-9078-152829f1b82f"`)),
		good("unknown optional field", b.with("loyalty", `{"tier":[1,null,true,{"a":-0.5e-3}]}`)),
		good("unknown field twice", b.and("x", `1`).and("x", `2`)),
		good("unknown field in another case", b.with("Amount", `"x"`)),
		good("unknown field with a huge number", b.with("x", `1e999999999999`)),
		good("upper-case key", b.with("idempotencyKey", `"`+strings.ToUpper(Key)+`"`)),
		good("escaped name", b.without("amount").and(`\u0061mount`, `1999`)),
		good("escapes in text", b.with("orderId", `"\u00e9\/\\\"\ud83d\ude42"`)),
		good("escaped backslash before u0000", b.with("orderId", `"a\\u0000"`)),
		good("empty metadata", b.with("metadata", `{}`)),
		good("amount written 1999.0", b.with("amount", `1999.0`)),
		good("amount written 1.999e3", b.with("amount", `1.999e3`)),
		good("amount written 199900E-2", b.with("amount", `199900E-2`)),
		good("smallest amount", b.with("amount", `1`)),
		good("largest amount", b.with("amount", `9007199254740991`)),
		good("largest amount, spelled long", b.with("amount", `9007199254740991.`+strings.Repeat("0", 70))),
		good("128 wide characters", b.with("orderId", quote(strings.Repeat("é", 128)))),
		good("name of 64", b.with("caller", quote(strings.Repeat("a", 64)))),
		good("numeric token that is no card", b.with("paymentMethod", `"4111111111111112"`)),
		good("offset", b.with("issuedAt", `"2026-11-30T11:00:00+01:00"`)),
		good("nanoseconds", b.with("issuedAt", `"2026-11-30T10:00:00.123456789Z"`)),
		good("leap day", b.with("issuedAt", `"2028-02-29T23:59:59Z"`)),
	}
	spaced := strings.NewReplacer(`,"`, " ,\r\n\t\"", `":`, `" : `).Replace(string(b.JSON()))
	cases = append(cases, Case{Name: "white space", Value: []byte(" \n" + spaced + "\t\r\n"), Valid: true, Identified: true})
	return append(cases, each([]string{"JPY", "KWD", "CLF"}, func(currency string) Case {
		return good("currency "+currency, b.with("currency", quote(currency)))
	})...)
}

func unreadableCases() []Case {
	b := string(base().JSON())
	body := strings.TrimSuffix(b, "}")
	cases := []Case{
		unreadable("empty value", ""), unreadable("blank", " \n"), unreadable("not JSON", "hello"),
		unreadable("null", "null"), unreadable("number", "42"), unreadable("string", `"`+Key+`"`),
		unreadable("array of a command", "["+b+"]"),
		unreadable("truncated", b[:len(b)-1]), unreadable("truncated in a string", b[:len(b)-3]),
		unreadable("truncated in an escape", body+`,"x":"\`),
		unreadable("two values", b+b), unreadable("trailing comma", body+",}"), unreadable("trailing text", b+"x"),
		unreadable("trailing NUL", b+"\x00"), unreadable("byte order mark", "\ufeff"+b),
		unreadable("single quotes", strings.ReplaceAll(b, `"`, `'`)), unreadable("comment", body+"/* */}"),
		unreadable("unquoted name", body+",x:1}"), unreadable("missing colon", body+`,"x" 1}`),
		unreadable("missing comma", body+`"x":1}`), unreadable("wrong bracket", body+"]"),
		unreadable("invalid UTF-8", strings.Replace(b, "order-1001", "order-\xff", 1)),
		unreadable("UTF-8 surrogate", strings.Replace(b, "order-1001", "order-\xed\xa0\x80", 1)),
		unreadable("overlong UTF-8", strings.Replace(b, "order-1001", "order-\xc0\x80", 1)),
		unreadable("UTF-16", strings.Join(strings.Split(b, ""), "\x00")),
		unreadable("raw control character", strings.Replace(b, "order-1001", "order-\n", 1)),
		unreadable("unknown escape", body+`,"x":"\a"}`), unreadable("short escape", body+`,"x":"\u00e"}`),
		unreadable("wrong escape", body+`,"x":"\u00zz"}`), unreadable("signed escape", body+`,"x":"\u+0e9"}`),
		unreadable("nested too deep", body+`,"x":`+strings.Repeat("[", 16)+strings.Repeat("]", 16)+"}"),
		unreadable("nested far too deep", strings.Repeat(`{"a":`, 100_000)),
		unreadable("arrays far too deep", strings.Repeat(`[`, 100_000)),
	}
	cases = append(cases, unreadable("broken amount", strings.Replace(b, "1999", "01999", 1)))
	return append(cases, each([]string{
		"01", "+1", "1.", ".5", "1e", "1e+", "-", "--1", "0x10", "1_000", "NaN", "Infinity", "tru", "nul", "True", "",
	}, func(number string) Case { return unreadable("broken value "+number, body+`,"x":`+number+"}") })...)
}

// namelessCases have no identity to answer under (B17).
func namelessCases() []Case {
	b := base()
	cases := []Case{
		{Name: "empty object", Value: []byte("{}"), Reason: payment.DeadNoKey, Field: "idempotencyKey"},
		nameless("key in another case", "idempotencyKey", b.without("idempotencyKey").and("IdempotencyKey", quote(Key))),
		nameless("key twice", "idempotencyKey", b.and("idempotencyKey", quote(Key))),
		nameless("key twice, once escaped", "idempotencyKey", b.and(`idempotency\u004bey`, quote(Key))),
		nameless("caller twice", "caller", b.and("caller", `"shop"`)),
		nameless("operation twice", "operation", b.and("operation", `"charge"`)),
		nameless("amount wrong as well", "idempotencyKey", b.with("amount", `-1`).with("idempotencyKey", `""`)),
		nameless("empty operation", "operation", b.with("operation", `""`)),
	}
	keys := each([]string{
		`""`, `" "`, `null`, `42`, `{}`, `[]`, `"null"`, `"00000000-0000-0000-0000-000000000000"`,
		`"ffffffff-ffff-ffff-ffff-ffffffffffff"`, quote(" " + Key), quote("{" + Key + "}"), quote("urn:uuid:" + Key),
		quote(strings.ReplaceAll(Key, "-", "")), `"8e03978e-40d5-13e8-bc93-6894a57f9324"`,
		`"8e03978e-40d5-53e8-bc93-6894a57f9324"`, `"8e03978e-40d5-73e8-bc93-6894a57f9324"`,
		`"8e03978e-40d5-43e8-cc93-6894a57f9324"`, `"8e03978e-40d5-43e8-bc93-6894a57f932\u0000"`, `"order-1001"`,
	}, func(key string) Case { return nameless("key "+key, "idempotencyKey", b.with("idempotencyKey", key)) })
	callers := each([]string{
		`""`, `" "`, `null`, `7`, `"Shop"`, `"-shop"`, `"shop "`, `"shop/x"`, `"shöp"`, `"shop\u0000"`, quote(strings.Repeat("a", 65)),
	}, func(caller string) Case { return nameless("caller "+caller, "caller", b.with("caller", caller)) })
	missing := each([]string{"idempotencyKey", "caller", "operation"}, func(name string) Case {
		return nameless("no "+name, name, b.without(name))
	})
	return slices.Concat(cases, keys, callers, missing)
}

func invalidCases() []Case {
	b := base()
	cases := []Case{
		invalid("another operation", "operation", b.with("operation", `"refund"`)),
		invalid("amount twice", "amount", b.and("amount", `1999`)),
		invalid("amount twice, once escaped", "amount", b.and(`amoun\u0074`, `1`)),
		invalid("NUL in an unknown field", "", b.with("x", `["\u0000"]`)),
		invalid("NUL in an unknown name", "", b.with(`x\u0000`, `1`)),
		invalid("half a surrogate pair in an unknown field", "", b.with("x", `{"y":"\ud83d"}`)),
		invalid("card number", "paymentMethod", b.with("paymentMethod", `"4111111111111111"`)),
		invalid("card number in groups", "paymentMethod", b.with("paymentMethod", `"4111 1111-1111 1111"`)),
		invalid("nil follows", "follows", b.with("follows", `"00000000-0000-0000-0000-000000000000"`)),
		{
			Name: "too large", Value: b.with("x", quote(strings.Repeat("x", payment.MaxCommandBytes))).JSON(),
			Identified: true,
		},
	}
	wrong := map[string][]string{
		"amount": {
			`0`, `-0`, `0.0`, `0e5`, `-1`, `-1999`, `1.5`, `0.1`, `1e-1`, `1999.01`, `9007199254740992`, `9223372036854775808`,
			`18446744073709551617`, strings.Repeat("9", 70), `1e16`, `1e400`, `1e999999999999`, `-1e999999999999`, `1e-999999999999`,
			`"1999"`, `null`, `true`, `[1999]`, `{}`,
		},
		"currency": {`""`, `"eur"`, `"EURO"`, `"XXX"`, `"XAU"`, `"DEM"`, `" EUR"`, `978`, `null`},
		"channel":  {`""`, `"Sim"`, `"../sim"`, `null`, `1`, quote(strings.Repeat("a", 65))},
		"issuedAt": {
			`""`, `null`, `1796032800`, `"2026-11-30"`, `"2026-11-30T10:00:00"`, `"2026-11-30 10:00:00Z"`, `"2026-11-30t10:00:00z"`,
			`"2026-02-29T10:00:00Z"`, `"2026-13-01T10:00:00Z"`, `"2026-11-31T10:00:00Z"`, `"2026-00-10T10:00:00Z"`,
			`"2026-11-30T24:00:00Z"`, `"2026-11-30T10:60:00Z"`, `"2026-12-31T23:59:60Z"`, `"2026-11-30T10:00:00,5Z"`,
			`"2026-11-30T10:00:00.Z"`, `"2026-11-30T10:00:00.1234567890Z"`, `"2026-11-30T10:00:00+1:00"`, `"2026-11-30T10:00:00+24:00"`,
			`"2026-11-30T10:00:00+0100"`, `"2026-11-30T10:00:00+01:60"`, `"0001-01-01T00:00:00Z"`, `"1969-12-31T23:59:59Z"`,
			`"3000-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-01:00"`, `"2026-11-30T10:00:00Z "`, `"2026-11-30T1:00:00Z"`, `"-026-11-30T10:00:00Z"`,
		},
		"follows": {`""`, `null`, `"order-1"`, quote("urn:uuid:" + Key), `1`},
	}
	text := []string{
		`""`, `" "`, `" x"`, `"x "`, `"\t"`, `"a\nb"`, `"a\u0000"`, `"a\u0085b"`, `"a\u007f"`, `"\ud83d"`, `"\ude42\ud83d"`, `"\ud83dx"`,
		`null`, `7`, `["x"]`, quote(strings.Repeat("é", 129)),
	}
	for _, field := range []string{"orderId", "obligation", "customerId", "paymentMethod"} {
		wrong[field] = text
	}
	for field, values := range wrong {
		cases = append(cases, each(values, func(value string) Case {
			return invalid(fmt.Sprintf("%s %.40s", field, value), field, b.with(field, value))
		})...)
	}
	for _, m := range b[3:] {
		cases = append(cases, invalid("no "+m.name, m.name, b.without(m.name)))
	}
	return cases
}

func metadataCases() []Case {
	b := base()
	entries := func(count, size int) string {
		list := make([]string, count)
		for i := range list {
			list[i] = fmt.Sprintf(`"k%03d":%s`, i, quote(strings.Repeat("v", size)))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	cases := []Case{
		good("32 entries", b.with("metadata", entries(32, 1))),
		good("8192 bytes of metadata", b.with("metadata", entries(16, 508))),
		good("long name and value", b.with("metadata", "{"+quote(strings.Repeat("é", 64))+":"+quote(strings.Repeat("é", 512))+"}")),
		good("value with control characters", b.with("metadata", `{"note":"a\nb\u0001"}`)),
		good("empty metadata value", b.with("metadata", `{"note":""}`)),
		invalid("33 entries", "metadata", b.with("metadata", entries(33, 1))),
		invalid("8193 bytes of metadata", "metadata", b.with("metadata", strings.TrimSuffix(entries(15, 508), "}")+`,"k":`+quote(strings.Repeat("v", 512))+"}")),
		invalid("metadata twice", "metadata", b.and("metadata", `{}`).and("metadata", `{}`)),
	}
	return append(cases, each([]string{
		`null`, `[]`, `"x"`, `{"a":1}`, `{"a":null}`, `{"a":{"b":"c"}}`, `{"a":"1","a":"1"}`, `{"a":"1","\u0061":"2"}`, `{"":"x"}`,
		`{"a\n":"x"}`, `{"a\u0000":"x"}`, `{"a":"\u0000"}`, `{"a":"\udead"}`,
		"{" + quote(strings.Repeat("é", 65)) + `:"x"}`, `{"a":` + quote(strings.Repeat("é", 513)) + "}",
	}, func(value string) Case {
		return invalid(fmt.Sprintf("metadata %.40s", value), "metadata", b.with("metadata", value))
	})...)
}

func quote(text string) string { return `"` + text + `"` }
