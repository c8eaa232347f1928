package sim

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	shardCount = 64
	// queriedAtMost bounds the times of queries that are kept of a key.
	queriedAtMost = 16
)

// books are the provider's charges by provider key.
type books struct {
	journal *journal
	shards  [shardCount]shard
}

type shard struct {
	mu      sync.Mutex
	entries map[uuid.UUID]*entry
}

// openBooks reads the ledger file and returns the books it describes.
func openBooks(path string) (*books, error) {
	b := &books{}
	for i := range b.shards {
		b.shards[i].entries = map[uuid.UUID]*entry{}
	}
	journal, err := openJournal(path, func(l *line) { b.shard(l.Key).entry(l.Key).apply(l) })
	if err != nil {
		return nil, err
	}
	b.journal = journal
	return b, nil
}

func (b *books) shard(key uuid.UUID) *shard { return &b.shards[key[15]%shardCount] }

// entry returns the key's entry, new if need be. The lock is held.
func (s *shard) entry(key uuid.UUID) *entry {
	e, ok := s.entries[key]
	if !ok {
		e = &entry{Charge: Charge{ProviderKey: key}}
		s.entries[key] = e
	}
	return e
}

// arrive counts a submit that came in and returns its number under its key.
func (b *books) arrive(key uuid.UUID, content *Content, now time.Time) int {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	e.Requests++
	if e.FirstAt.IsZero() {
		e.FirstAt = now
	}
	if e.Content.Currency == "" {
		e.Content = *content
	}
	return e.Requests
}

// begin marks a request as under way; false when another one of the key is, on a
// channel that executes a key once.
func (b *books) begin(key uuid.UUID, exclusive bool) bool {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	if exclusive && e.underWay > 0 {
		return false
	}
	e.underWay++
	return true
}

// abandon takes back begin for a request that is not executed.
func (b *books) abandon(key uuid.UUID) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry(key).underWay--
}

// note writes a line that changes no charge, so a failure to write it is told by
// the next one that does.
func (b *books) note(key uuid.UUID, send int, why string, content *Content) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := line{At: time.Now(), Kind: lineDropped, Key: key, Send: send, Why: why}
	if s.entry(key).Executions == 0 {
		l.Content = content
	}
	if b.journal.append(&l) == nil {
		s.entry(key).apply(&l)
	}
}

// verdict is what an execution, or the memory of one, answers.
type verdict struct {
	booking

	status   Status
	repeated bool
	// reused: the key is known with other content; nothing was executed.
	reused bool
	// settleIn is when a charge in processing settles; 0 when none does.
	settleIn time.Duration
}

// execute runs a request that is under way and ends it: the remembered answer, or
// an execution that is in the ledger before this returns.
func (b *books) execute(key uuid.UUID, send int, content *Content, p plan, rules *Behaviour) (verdict, error) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	e.underWay--
	now := time.Now()
	l := line{At: now, Key: key, Send: send}
	forgot := p.has(Forgotten) || !e.rememberedAt(now, rules.KeyMemory)
	if rules.IdempotentSubmit && e.remembered != "" && !forgot {
		if !e.Content.equal(content) {
			return verdict{reused: true}, nil
		}
		if rules.PinsFailures || !e.remembered.failed() {
			l.Kind = lineRepeated
			e.apply(&l)
			return verdict{status: e.remembered, booking: e.answer, repeated: true}, b.journal.append(&l)
		}
	}
	settleIn := l.decide(e, content, p)
	l.Forgot = forgot
	if err := b.journal.append(&l); err != nil {
		return verdict{}, err
	}
	e.apply(&l)
	return verdict{status: l.Status, booking: e.answer, settleIn: settleIn}, nil
}

// decide fills in what an execution comes to.
func (l *line) decide(e *entry, content *Content, p plan) time.Duration {
	status, settleIn := p.decision()
	l.Kind, l.Status, l.Content = lineExecuted, status, content
	l.Reference = reference(l.Key, e.Executions+1)
	l.Amount, l.Currency = content.Amount, content.Currency
	if p.has(WrongAmount) {
		l.Amount--
	}
	if p.has(WrongCurrency) {
		l.Currency = otherCurrency(content.Currency)
	}
	if lag, ok := p.find(LookupLag); ok {
		l.Lag = int64(lag.For)
	}
	if status == StatusProcessing {
		l.SettleAt = l.At.Add(settleIn).UnixNano()
	}
	return settleIn
}

// unsettled returns the charges in processing and when they settle.
func (b *books) unsettled() map[uuid.UUID]time.Time {
	due := map[uuid.UUID]time.Time{}
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.Lock()
		for key, e := range s.entries {
			if e.Status == StatusProcessing {
				due[key] = e.settleAt
			}
		}
		s.mu.Unlock()
	}
	return due
}

// settle takes the money of a charge in processing.
func (b *books) settle(key uuid.UUID) error {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	if e.Status != StatusProcessing {
		return nil
	}
	l := line{
		At: time.Now(), Kind: lineSettled, Key: key, Status: StatusSettled,
		Reference: e.Reference, Amount: e.BookedAmount, Currency: e.BookedCurrency,
	}
	if err := b.journal.append(&l); err != nil {
		return err
	}
	e.apply(&l)
	return nil
}

// lookup is what a query sees of a charge; its number under the key and the
// content come along for the faults.
func (b *books) lookup(key uuid.UUID, rules *Behaviour) (c change, n int, content Content, found bool) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return change{}, 0, Content{}, false
	}
	e.Queries++
	now := time.Now()
	if len(e.QueriedAt) < queriedAtMost {
		e.QueriedAt = append(e.QueriedAt, now)
	}
	c, found = e.seen(now, rules.VisibilityLag)
	if rules.QueryReach > 0 && now.Sub(e.FirstAt) > rules.QueryReach {
		found = false
	}
	return c, e.Queries, e.Content, found
}

// get returns a copy of a charge.
func (b *books) get(key uuid.UUID) (Charge, bool) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.entries[key]
	if !found {
		return Charge{}, false
	}
	return e.Charge, true
}

// each calls f with a copy of every charge, one shard at a time in no order,
// until it returns false.
func (b *books) each(f func(Charge) bool) {
	for i := range b.shards {
		for _, charge := range b.shards[i].snapshot() {
			if !f(charge) {
				return
			}
		}
	}
}

func (s *shard) snapshot() []Charge {
	s.mu.Lock()
	defer s.mu.Unlock()
	charges := make([]Charge, 0, len(s.entries))
	for _, e := range s.entries {
		charges = append(charges, e.Charge)
	}
	slices.SortFunc(charges, func(a, b Charge) int { return a.FirstAt.Compare(b.FirstAt) })
	return charges
}

// rememberedAt reports whether the memory of the key lasts until now.
func (e *entry) rememberedAt(now time.Time, memory time.Duration) bool {
	return memory == 0 || now.Sub(e.rememberedFrom) < memory
}

func reference(key uuid.UUID, execution int) string {
	return "ch_" + strings.ReplaceAll(key.String(), "-", "") + "_" + strconv.Itoa(execution)
}

func otherCurrency(currency string) string {
	if currency == "USD" {
		return "EUR"
	}
	return "USD"
}
