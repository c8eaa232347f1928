package payment

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Decoded is what could be read of a record's value.
type Decoded struct {
	// Command holds what is asked for; to be used only when Err is nil.
	Command Command
	// Identity is valid when Identified.
	Identity Identity
	// Identified reports whether key, caller and operation could be read beyond
	// doubt. An invalid command is then answered "rejected"; else it is a dead letter.
	Identified bool
	// Err says what is wrong; nil for a valid command.
	Err *CommandError
}

// KeyMatches reports whether a record's Kafka key is the command's
// idempotencyKey, in either case of its letters.
func (d *Decoded) KeyMatches(recordKey []byte) bool {
	key, ok := ParseKey(string(recordKey))
	return ok && d.Identified && key == d.Identity.Key
}

// Decode reads a command as consumers do: strict about everything the contract
// names, open to optional fields it does not know yet. It never panics and never
// keeps a reference to value.
func Decode(value []byte) Decoded { return decode(value, false) }

// DecodeCommand is Decode for those who need only the command; the error is a
// *CommandError.
func DecodeCommand(value []byte) (Command, error) { return commandOf(decode(value, false)) }

// DecodeStrict reads a command as producers' edges do: like DecodeCommand, but a
// field the contract does not know is an error, since it may be a misspelled one.
func DecodeStrict(value []byte) (Command, error) { return commandOf(decode(value, true)) }

// UnmarshalJSON reads what DecodeCommand reads, so that there is no second,
// lenient reading of a command anywhere.
func (c *Command) UnmarshalJSON(value []byte) error {
	command, err := DecodeCommand(value)
	if err == nil {
		*c = command
	}
	return err
}

func commandOf(d Decoded) (Command, error) {
	if d.Err != nil {
		return Command{}, d.Err
	}
	return d.Command, nil
}

func decode(value []byte, strict bool) Decoded {
	switch {
	case value == nil:
		return Decoded{Err: &CommandError{Reason: DeadNullValue, Problem: "a record without a value is no command"}}
	case !utf8.Valid(value):
		return Decoded{Err: &CommandError{Reason: DeadUnreadable, Problem: "must be valid UTF-8"}}
	}
	d := decoder{scanner: scanner{text: string(value)}, strict: strict}
	if !d.object(1, d.member) || d.space() != 0 || d.pos < len(d.text) {
		d.fail("must be one JSON object and nothing after it")
		return Decoded{Err: &CommandError{Reason: DeadUnreadable, Problem: d.bad}}
	}
	return d.judge()
}

// field is a bit per field of a command.
type field uint16

const (
	fieldKey field = 1 << iota
	fieldCaller
	fieldOperation
	fieldOrder
	fieldObligation
	fieldFollows
	fieldAmount
	fieldCurrency
	fieldCustomer
	fieldMethod
	fieldChannel
	fieldIssued
	fieldMetadata
)

// requiredFields is in the order in which missing ones are reported.
var requiredFields = [...]struct {
	field field
	name  string
}{
	{fieldOrder, "orderId"},
	{fieldAmount, "amount"},
	{fieldCurrency, "currency"},
	{fieldCustomer, "customerId"},
	{fieldMethod, "paymentMethod"},
	{fieldChannel, "channel"},
	{fieldIssued, "issuedAt"},
}

type decoder struct {
	scanner

	command Command
	strict  bool
	seen    field
	// broken are the fields that cannot be relied on: twice, of another type, or
	// with refused content. The identity must have none of them.
	broken field
	fault  *CommandError
}

// member reads one field of the command.
func (d *decoder) member(name string) bool {
	f, text := d.lookup(name)
	if f == 0 {
		return d.unknown(name)
	}
	if d.seen&f != 0 {
		d.reject(f, name, "must not occur twice")
		return d.value(1)
	}
	d.seen |= f
	ok := d.known(f, name, text)
	if d.taboo != "" {
		d.reject(f, name, d.taboo)
		d.taboo = ""
	}
	return ok
}

// known reads the value of a known field: a string into text, where there is one.
func (d *decoder) known(f field, name string, text *string) bool {
	if f == fieldAmount {
		return d.amount()
	}
	if f == fieldMetadata {
		return d.metadata()
	}
	if d.space() != '"' {
		d.reject(f, name, "must be a string; leave it out rather than null if it is optional")
		return d.value(1)
	}
	content, ok := d.quoted()
	if !ok {
		return false
	}
	if text == nil {
		d.parsed(f, name, content)
		return true
	}
	*text = content
	if f == fieldObligation && content == "" {
		d.reject(f, name, "must not be empty; leave it out for the order itself")
	}
	return true
}

// lookup returns the field of a name and, for plain text, where it goes.
func (d *decoder) lookup(name string) (field, *string) {
	switch name {
	case "idempotencyKey":
		return fieldKey, nil
	case "caller":
		return fieldCaller, &d.command.Caller
	case "operation":
		return fieldOperation, &d.command.Operation
	case "orderId":
		return fieldOrder, &d.command.OrderID
	case "obligation":
		return fieldObligation, &d.command.Obligation
	case "follows":
		return fieldFollows, nil
	case "amount":
		return fieldAmount, nil
	case "currency":
		return fieldCurrency, &d.command.Currency
	case "customerId":
		return fieldCustomer, &d.command.CustomerID
	case "paymentMethod":
		return fieldMethod, &d.command.PaymentMethod
	case "channel":
		return fieldChannel, &d.command.Channel
	case "issuedAt":
		return fieldIssued, nil
	case "metadata":
		return fieldMetadata, nil
	default:
		return 0, nil
	}
}

func (d *decoder) unknown(name string) bool {
	if d.strict {
		d.reject(0, "", "has a field that is not part of a command; remove it or correct its name: "+CleanText(name, MaxNameLength))
	}
	ok := d.value(1)
	if d.taboo != "" {
		d.reject(0, "", d.taboo)
		d.taboo = ""
	}
	return ok
}

// reject notes what is wrong with a field and lets the scan go on.
func (d *decoder) reject(f field, name, sentence string) {
	d.broken |= f
	if d.fault == nil {
		d.fault = problem(name, sentence)
	}
}

// parsed takes the fields that are more than text.
func (d *decoder) parsed(f field, name, content string) {
	var ok bool
	sentence := problemTime
	switch name {
	case "idempotencyKey":
		sentence = problemKey
		d.command.IdempotencyKey, ok = ParseKey(content)
	case "follows":
		var id uuid.UUID
		sentence = problemUUID
		id, ok = parseUUID(content)
		d.command.Follows = &id
	default:
		d.command.IssuedAt, ok = parseTime(content)
	}
	if !ok {
		d.reject(f, name, sentence)
	}
}

func (d *decoder) amount() bool {
	if b := d.space(); b != '-' && !isDigit(b) {
		d.reject(fieldAmount, "amount", "must be a number, not a string or anything else")
		return d.value(1)
	}
	token, ok := d.number()
	if !ok {
		return false
	}
	amount, sentence := parseAmount(token)
	if sentence != "" {
		d.reject(fieldAmount, "amount", sentence)
	}
	d.command.Amount = amount
	return true
}

func (d *decoder) metadata() bool {
	if d.space() != '{' {
		d.reject(fieldMetadata, "metadata", "must be an object of strings; leave it out rather than null")
		return d.value(1)
	}
	entries := 0
	return d.object(2, func(name string) bool {
		if entries++; entries > MaxMetadata {
			d.reject(fieldMetadata, "metadata", "must have at most 32 entries")
			return d.value(2)
		}
		if d.space() != '"' {
			d.reject(fieldMetadata, "metadata", "must hold only strings")
			return d.value(2)
		}
		content, ok := d.quoted()
		if _, twice := d.command.Metadata[name]; twice {
			d.reject(fieldMetadata, "metadata", "must not have a name twice")
		}
		if d.command.Metadata == nil {
			d.command.Metadata = make(map[string]string, 4)
		}
		d.command.Metadata[name] = content
		return ok
	})
}

// judge turns what was read into a verdict: first what names the payment, then
// everything else.
func (d *decoder) judge() Decoded {
	if err := d.identity(); err != nil {
		return Decoded{Err: err}
	}
	result := Decoded{Identity: d.command.Identity(), Identified: true}
	switch err := d.content(); {
	case len(d.text) > MaxCommandBytes:
		result.Err = &CommandError{Problem: "must be at most 65536 bytes"}
	case err != nil:
		result.Err = err
	default:
		result.Command = d.command
	}
	return result
}

func (d *decoder) identity() *CommandError {
	for _, part := range [...]struct {
		field field
		name  string
	}{{fieldKey, "idempotencyKey"}, {fieldCaller, "caller"}, {fieldOperation, "operation"}} {
		if d.seen&part.field == 0 {
			return &CommandError{Reason: DeadNoKey, Field: part.name, Problem: problemMissing}
		}
		if d.broken&part.field != 0 {
			return &CommandError{Reason: DeadNoKey, Field: part.name, Problem: d.faultOf(part.name)}
		}
	}
	return d.command.identityProblem()
}

// faultOf returns the sentence about a field of the identity.
func (d *decoder) faultOf(name string) string {
	if d.fault != nil && d.fault.Field == name {
		return d.fault.Problem
	}
	return "must be one string"
}

func (d *decoder) content() *CommandError {
	if d.fault != nil {
		return d.fault
	}
	for _, required := range requiredFields {
		if d.seen&required.field == 0 {
			return problem(required.name, problemMissing)
		}
	}
	return d.command.contentProblem()
}

// parseAmount reads a JSON number that is a whole number, however it is spelled
// (JSON Schema calls 1999.0 and 1.999e3 integers too), without floating point.
func parseAmount(token string) (int64, string) {
	if len(token) <= 16 && strings.IndexFunc(token, func(r rune) bool { return r < '0' || r > '9' }) < 0 {
		amount, err := strconv.ParseInt(token, 10, 64)
		if err != nil || amount < 1 || amount > MaxAmount {
			return 0, problemAmount
		}
		return amount, ""
	}
	mantissa, exponent := splitExponent(strings.TrimPrefix(token, "-"))
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	significant := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(significant)
	switch {
	case significant == "":
		return 0, problemAmount
	case exponent < 0:
		return 0, problemWhole
	case token[0] == '-' || len(significant)+exponent > 16:
		return 0, problemAmount
	}
	return parseAmount(significant + strings.Repeat("0", exponent))
}

// splitExponent returns the exponent of a number token, capped far beyond the
// length of any record.
func splitExponent(token string) (string, int) {
	const limit = 1 << 40
	mantissa, suffix := token, ""
	if at := strings.IndexAny(token, "eE"); at >= 0 {
		mantissa, suffix = token[:at], token[at+1:]
	}
	if suffix == "" {
		return mantissa, 0
	}
	exponent, err := strconv.Atoi(suffix)
	if err != nil || exponent > limit || exponent < -limit {
		exponent = limit
		if suffix[0] == '-' {
			exponent = -limit
		}
	}
	return mantissa, exponent
}
