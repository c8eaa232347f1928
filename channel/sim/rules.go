package sim

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// metadataKey is the metadata entry that scripts faults for its own charge.
const metadataKey = "sim"

// Rule scripts faults for the charges that match it.
type Rule struct {
	// Faults is in the notation of the package comment. A fault without @ strikes
	// every send (or query).
	Faults string `json:"faults"`
	// Match says which charges are meant; empty means all.
	Match Match `json:"match"`
	// Times is how often the rule strikes before it is spent. Zero means always.
	Times int `json:"times"`

	faults []Fault
}

// Match selects charges; every field that is set must be equal.
type Match struct {
	ProviderKey string            `json:"providerKey,omitempty"`
	PaymentID   string            `json:"paymentId,omitempty"`
	Order       string            `json:"order,omitempty"`
	Customer    string            `json:"customer,omitempty"`
	Amount      int64             `json:"amount,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
}

func (m *Match) covers(key uuid.UUID, c *Content) bool {
	for name, value := range m.Metadata {
		if c.Metadata[name] != value {
			return false
		}
	}
	return (m.ProviderKey == "" || m.ProviderKey == key.String()) &&
		(m.PaymentID == "" || m.PaymentID == c.PaymentID) &&
		(m.Order == "" || m.Order == c.Order) &&
		(m.Customer == "" || m.Customer == c.Customer) &&
		(m.Amount == 0 || m.Amount == c.Amount)
}

// ruleBook holds the rules that are not spent.
type ruleBook struct {
	count atomic.Int64 // so that a request without rules takes no lock
	mu    sync.Mutex
	rules []*Rule
}

func (b *ruleBook) add(rule Rule) error {
	faults, err := ParseFaults(rule.Faults, everySend)
	if err != nil {
		return err
	}
	rule.faults = faults
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = append(b.rules, &rule)
	b.count.Store(int64(len(b.rules)))
	return nil
}

func (b *ruleBook) list() []Rule {
	b.mu.Lock()
	defer b.mu.Unlock()
	rules := make([]Rule, 0, len(b.rules))
	for _, rule := range b.rules {
		rules = append(rules, *rule)
	}
	return rules
}

func (b *ruleBook) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rules = nil
	b.count.Store(0)
}

// strike adds what the rules have for a send or query, and uses them up.
func (b *ruleBook) strike(p plan, key uuid.UUID, n int, content *Content, query bool) plan {
	if b.count.Load() == 0 {
		return p
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rule := range b.rules {
		if !rule.Match.covers(key, content) {
			continue
		}
		before := len(p)
		p = p.add(ofKind(rule.faults, query), n)
		if len(p) > before && rule.Times > 0 {
			rule.Times--
			if rule.Times == 0 {
				rule.Times = spent
			}
		}
	}
	b.rules = slices.DeleteFunc(b.rules, func(r *Rule) bool { return r.Times == spent })
	b.count.Store(int64(len(b.rules)))
	return p
}

const spent = -1

// planSubmit gathers what strikes a send: rules, metadata, amount, chance.
func (s *Server) planSubmit(sub *submit) plan {
	return s.plan(&sub.rules.Behaviour, sub.key, sub.send, &sub.content, false)
}

func (s *Server) planQuery(rules *settings, key uuid.UUID, n int, content *Content) plan {
	return s.plan(&rules.Behaviour, key, n, content, true)
}

func (s *Server) plan(b *Behaviour, key uuid.UUID, n int, content *Content, query bool) plan {
	p := s.rules.strike(nil, key, n, content, query)
	if script := content.Metadata[metadataKey]; script != "" {
		if faults, err := ParseFaults(script, 1); err == nil {
			p = p.add(ofKind(faults, query), n)
		}
	}
	if b.AmountFaults {
		p = p.add(ofKind(byAmount(content.Amount), query), n)
	}
	return append(p, b.byRate(key, n, query)...)
}

// ofKind returns the faults of submits or those of queries.
func ofKind(faults []Fault, query bool) []Fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Kind.ofQuery() != query })
}
