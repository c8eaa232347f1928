package backfill

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/payment"
)

// The fields of a payment that a source can give.
const (
	FieldID                = "id"
	FieldKey               = "idempotencyKey"
	FieldCaller            = "caller"
	FieldOperation         = "operation"
	FieldOrder             = "orderId"
	FieldObligation        = "obligation"
	FieldAmount            = "amount"
	FieldCurrency          = "currency"
	FieldCustomer          = "customerId"
	FieldMethod            = "paymentMethod"
	FieldChannel           = "channel"
	FieldOutcome           = "outcome"
	FieldCause             = "cause"
	FieldProviderReference = "providerReference"
	FieldProviderKey       = "providerKey"
	FieldCreatedAt         = "createdAt"
	FieldEndedAt           = "endedAt"
)

// Fields lists them.
func Fields() []string {
	return []string{
		FieldID, FieldKey, FieldCaller, FieldOperation, FieldOrder, FieldObligation, FieldAmount, FieldCurrency, FieldCustomer, FieldMethod,
		FieldChannel, FieldOutcome, FieldCause, FieldProviderReference, FieldProviderKey, FieldCreatedAt, FieldEndedAt,
	}
}

// MappingConfig says what a row means.
type MappingConfig struct {
	// Columns names, per field, the column that gives it. A field that is not
	// named is given by the column of its name, in any case, with or without "_".
	Columns map[string]string
	// Values gives fields the same value in every row, instead of a column.
	Values map[string]string
	// Outcomes says what the source's words mean: succeeded, declined or unknown.
	// These three, and nothing at all, are understood without it.
	Outcomes map[string]string
	// MajorUnits says that amounts are like 19.99, not in minor units like 1999.
	MajorUnits bool
	// Caller is the namespace of a caller's obligations, and whether the caller is
	// configured. Defaults to any caller, and itself.
	Caller func(name string) (namespace string, known bool)
	// Registered says that the namespaces are from the table of callers: a run ends
	// when one of them is changed meanwhile (G15).
	Registered bool
	// Identity is the account of a channel at its provider, "" for one that is not
	// configured. Defaults to none.
	Identity func(channel string) string
	// Ask lets the provider be asked about payments without an outcome whose
	// provider key is known.
	Ask bool
	// Now bounds times: nothing ended later. Defaults to time.Now.
	Now func() time.Time
}

// Mapping makes payments of rows.
type Mapping struct {
	cfg     MappingConfig
	indexes map[string]int
	width   int
}

// NewMapping compares the configuration with the columns of a source. Every fault
// is one sentence that says what to change.
func NewMapping(cfg MappingConfig, columns []string) (*Mapping, error) {
	if cfg.Caller == nil {
		cfg.Caller = func(name string) (string, bool) { return name, true }
	}
	if cfg.Identity == nil {
		cfg.Identity = func(string) string { return "" }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Mapping{cfg: cfg, indexes: make(map[string]int), width: len(columns)}
	for _, check := range []func([]string) error{checkColumns, m.checkNames, m.index, m.checkOutcomes, m.checkComplete} {
		if err := check(columns); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// simple is a name as it is compared: SQL folds case, and writes pay_id for payId.
func simple(name string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(name), "_", ""))
}

func checkColumns(columns []string) error {
	seen := make(map[string]bool, len(columns))
	for _, c := range columns {
		if seen[c] {
			return inputf("the source has two columns %q: give them different names", c)
		}
		seen[c] = true
	}
	return nil
}

func (m *Mapping) checkNames([]string) error {
	fields := Fields()
	for _, given := range []struct {
		flag  string
		names map[string]string
	}{{"--map", m.cfg.Columns}, {"--set", m.cfg.Values}} {
		for _, field := range slices.Sorted(maps.Keys(given.names)) {
			if !slices.Contains(fields, field) {
				return inputf("%s names the field %q, which is none: there are %s", given.flag, field, strings.Join(fields, ", "))
			}
		}
	}
	for _, field := range fields {
		if m.cfg.Columns[field] != "" && m.cfg.Values[field] != "" {
			return inputf("%s is given by --map and by --set: give it once", field)
		}
	}
	return nil
}

// index finds the column of every field. A name in --map is taken as it is first.
func (m *Mapping) index(columns []string) error {
	for _, field := range Fields() {
		named, mapped := m.cfg.Columns[field]
		if _, set := m.cfg.Values[field]; set {
			continue
		}
		wanted := cmp.Or(named, field)
		i := slices.Index(columns, wanted)
		if i < 0 {
			i = slices.IndexFunc(columns, func(c string) bool { return simple(c) == simple(wanted) })
		}
		switch {
		case i >= 0:
			m.indexes[field] = i
		case mapped:
			return inputf("--map takes %s from the column %q, which the source does not have: it has %s", field, named, strings.Join(columns, ", "))
		}
	}
	return nil
}

func (m *Mapping) checkOutcomes([]string) error {
	for _, word := range slices.Sorted(maps.Keys(m.cfg.Outcomes)) {
		if _, ok := outcomes[m.cfg.Outcomes[word]]; !ok {
			return inputf("--outcomes gives %q the meaning %q: say succeeded, declined or unknown", word, m.cfg.Outcomes[word])
		}
	}
	return nil
}

func (m *Mapping) has(field string) bool {
	_, column := m.indexes[field]
	_, value := m.cfg.Values[field]
	return column || value
}

func (m *Mapping) checkComplete(columns []string) error {
	for _, field := range []string{FieldCaller, FieldOrder, FieldAmount, FieldCurrency, FieldChannel, FieldOutcome} {
		if !m.has(field) {
			return inputf("nothing gives the %s: name its column with --map %s=COLUMN, or one value for all with --set %s=VALUE; there are %s",
				field, field, field, strings.Join(columns, ", "))
		}
	}
	if !m.has(FieldID) && !m.has(FieldKey) {
		return inputf("nothing tells the payments apart: name their own id with --map id=COLUMN, or their keys with --map idempotencyKey=COLUMN")
	}
	return nil
}

// outcomes are the words that are understood.
var outcomes = map[string]payment.State{
	"succeeded": payment.Succeeded, "declined": payment.Declined, "unknown": payment.Review, "review": payment.Review, "": payment.Review,
}
