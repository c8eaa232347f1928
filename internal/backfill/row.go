package backfill

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// Refusal says why a row was not taken.
type Refusal struct {
	// Row is its number in the source, from 1; ID its id or key there.
	Row int64  `json:"row"`
	ID  string `json:"id"`
	// Code is stable; Problem a sentence that never repeats the row's content.
	Code    string `json:"code"`
	Problem string `json:"problem"`
}

// The codes of refusals.
const (
	CodeBrokenRow  = "broken_row"
	CodeNoIdentity = "no_identity"
	CodeInvalid    = "invalid"
	CodeOutcome    = "unknown_outcome"
	CodeContent    = "other_content"
	CodeDiffers    = "other_outcome"
	CodeLive       = "live_payment"
	CodeUnstorable = "unstorable"
)

// fault is a row that cannot be taken.
type fault struct{ code, problem string }

func (f fault) Error() string { return f.problem }

func invalid(field, sentence string) error { return fault{CodeInvalid, field + ": " + sentence} }

// get is a field of a row.
func (m *Mapping) get(r *Record, field string) string {
	if value, ok := m.cfg.Values[field]; ok {
		return value
	}
	if i, ok := m.indexes[field]; ok && i < len(r.Fields) {
		return strings.TrimSpace(r.Fields[i])
	}
	return ""
}

// name is what people find a row by.
func (m *Mapping) name(r *Record) string { return shown(cmp.Or(m.get(r, FieldID), m.get(r, FieldKey))) }

// shown is text of a row as reports may have it: short, and never card data.
func shown(text string) string {
	if payment.LooksLikeCard(text) {
		return "(looks like a card number)"
	}
	return fmt.Sprintf("%.80s", strings.ToValidUTF8(text, "?"))
}

// payment makes a payment of a row. generated says that its key is not its own.
func (m *Mapping) payment(r *Record) (p store.Imported, generated bool, err error) {
	if r.Broken != "" {
		return p, false, fault{CodeBrokenRow, r.Broken}
	}
	p.Command = payment.Command{
		Caller: m.get(r, FieldCaller), Operation: cmp.Or(m.get(r, FieldOperation), payment.OperationCharge),
		OrderID: m.get(r, FieldOrder), Obligation: m.get(r, FieldObligation), Currency: m.get(r, FieldCurrency),
		CustomerID: m.get(r, FieldCustomer), PaymentMethod: m.get(r, FieldMethod), Channel: m.get(r, FieldChannel),
	}
	p.ProviderReference, p.Cause, p.Ask = m.get(r, FieldProviderReference), m.get(r, FieldCause), m.cfg.Ask
	for _, step := range []func(*Record, *store.Imported) error{m.amount, m.outcome, m.times, m.providerKey} {
		if err := step(r, &p); err != nil {
			return p, false, err
		}
	}
	if generated, err = m.key(r, &p); err != nil {
		return p, false, err
	}
	if err := p.Command.ValidateImported(); err != nil {
		return p, false, fault{CodeInvalid, strings.TrimPrefix(err.Error(), "invalid command: ")}
	}
	p.Fingerprint, err = p.Command.ImportedFingerprint()
	if err != nil {
		return p, false, fault{CodeInvalid, err.Error()}
	}
	namespace, known := m.cfg.Caller(p.Command.Caller)
	if !known {
		// Under another name nothing would recognise its retries.
		return p, false, invalid(FieldCaller, "is none of the callers that are configured")
	}
	p.Namespace, p.Registered, p.ChannelIdentity = namespace, m.cfg.Registered, m.cfg.Identity(p.Command.Channel)
	return p, generated, nil
}

// key is the row's own where it is a UUID, of any version: only a version 4 can
// ever come again in a command. Else it is derived from the row's id.
func (m *Mapping) key(r *Record, p *store.Imported) (generated bool, err error) {
	text, id := m.get(r, FieldKey), m.get(r, FieldID)
	if len(text) == 36 {
		if key, err := uuid.Parse(text); err == nil && key != uuid.Nil {
			p.Command.IdempotencyKey = key
			return false, nil
		}
	}
	if id == "" {
		return false, fault{CodeNoIdentity, "has neither a UUID as its idempotencyKey nor an id to derive one from"}
	}
	p.Command.IdempotencyKey = payment.ImportedKey(p.Command.Caller, p.Command.Operation, id)
	return true, nil
}

func (m *Mapping) amount(r *Record, p *store.Imported) error {
	text := m.get(r, FieldAmount)
	if m.cfg.MajorUnits {
		exponent, known := payment.Exponent(p.Command.Currency)
		if !known {
			return invalid(FieldCurrency, "must be a current ISO 4217 code in capitals, like EUR")
		}
		var ok bool
		if text, ok = minor(text, exponent); !ok {
			return invalid(FieldAmount, "must be a number like 19.99, with no more decimals than its currency has")
		}
	}
	amount, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return invalid(FieldAmount, "must be a whole number of minor units; for amounts like 19.99 say --amounts major")
	}
	p.Command.Amount = amount
	return nil
}

// minor moves the point: further decimals must be zeros.
func minor(text string, exponent int) (string, bool) {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > exponent {
		if strings.Trim(decimals[exponent:], "0") != "" {
			return "", false
		}
		decimals = decimals[:exponent]
	}
	decimals += strings.Repeat("0", exponent-len(decimals))
	digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
	return whole + decimals, whole != "" && digits(whole) && digits(decimals)
}

func (m *Mapping) outcome(r *Record, p *store.Imported) error {
	text := m.get(r, FieldOutcome)
	word, mapped := m.cfg.Outcomes[text]
	if !mapped {
		word = strings.ToLower(text)
	}
	state, ok := outcomes[word]
	if !ok {
		return fault{CodeOutcome, fmt.Sprintf("its outcome %q has no meaning: give it one with --outcomes, as succeeded, declined or unknown", shown(text))}
	}
	p.State = state
	return nil
}

func (m *Mapping) times(r *Record, p *store.Imported) error {
	now := m.cfg.Now().UTC()
	ended, err := parseTime(FieldEndedAt, m.get(r, FieldEndedAt), now)
	if err != nil {
		return err
	}
	created, err := parseTime(FieldCreatedAt, m.get(r, FieldCreatedAt), now)
	switch {
	case err != nil:
		return err
	case created.IsZero() && ended.IsZero():
		created = now.Truncate(time.Microsecond)
	case created.IsZero():
		created = ended
	case !ended.IsZero() && ended.Before(created.Add(-clockSkew)):
		return invalid(FieldEndedAt, "lies before createdAt")
	}
	p.Command.IssuedAt = created
	if p.State != payment.Review {
		p.EndedAt = ended
	}
	return nil
}

// clockSkew is how far clocks of the older system may differ.
const clockSkew = 5 * time.Minute

// layouts are RFC 3339 and what databases print; without a zone it is UTC.
var layouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"}

func parseTime(field, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		t = t.UTC().Truncate(time.Microsecond)
		if t.After(now.Add(clockSkew)) || t.Year() < 1970 {
			return t, invalid(field, "must lie between 1970 and now")
		}
		return t, nil
	}
	return time.Time{}, invalid(field, "must be a time like 2026-11-30T10:00:00Z or 2026-11-30 10:00:00, then taken for UTC")
}

func (m *Mapping) providerKey(r *Record, p *store.Imported) error {
	text := m.get(r, FieldProviderKey)
	if text == "" {
		return nil
	}
	key, err := uuid.Parse(text)
	if err != nil || len(text) != 36 || key == uuid.Nil {
		return nil //nolint:nilerr // A key that is no UUID is none that an adapter could ask by: as if it were not known.
	}
	p.ProviderKey = key
	return nil
}
