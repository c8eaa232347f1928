package sim

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/payment"
)

// Instant is a provider inside the process: it settles everything at once and
// counts what it was sent. Benchmarks use it to leave the network out. Make one
// with NewInstant.
type Instant struct {
	shards [shardCount]instantShard
}

type instantShard struct {
	mu    sync.Mutex
	sends map[uuid.UUID]int32
}

var _ channel.Adapter = (*Instant)(nil)

// NewInstant makes an instant provider that has no charges.
func NewInstant() *Instant {
	p := &Instant{}
	for i := range p.shards {
		p.shards[i].sends = map[uuid.UUID]int32{}
	}
	return p
}

// Capabilities is the record of an instant provider.
func (p *Instant) Capabilities() channel.Capabilities {
	return DefaultBehaviour().Capabilities("sim:instant")
}

// Submit settles the charge and counts the send. A context that is over is
// answered "not sent".
func (p *Instant) Submit(ctx context.Context, r channel.Request) payment.Answer {
	if ctx.Err() != nil {
		return payment.Answer{Class: payment.ClassNotSent, Cause: causeOf(ctx.Err())}
	}
	s := p.shard(r.ProviderKey)
	s.mu.Lock()
	s.sends[r.ProviderKey]++
	s.mu.Unlock()
	return payment.Answer{Class: payment.ClassSucceeded, Reference: reference(r.ProviderKey, 1)}
}

// Query answers succeeded for every key that was sent.
func (p *Instant) Query(_ context.Context, l channel.Lookup) payment.Answer {
	if p.Sends(l.ProviderKey) == 0 {
		return payment.Answer{Class: payment.ClassNotFound}
	}
	return payment.Answer{Class: payment.ClassSucceeded, Reference: reference(l.ProviderKey, 1)}
}

// Sends returns how often a key was sent.
func (p *Instant) Sends(key uuid.UUID) int {
	s := p.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.sends[key])
}

// Counts returns the number of keys, of sends, and of keys sent more than once.
func (p *Instant) Counts() (keys, sends, repeated int) {
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		keys += len(s.sends)
		for _, n := range s.sends {
			sends += int(n)
			if n > 1 {
				repeated++
			}
		}
		s.mu.Unlock()
	}
	return keys, sends, repeated
}

func (p *Instant) shard(key uuid.UUID) *instantShard { return &p.shards[key[15]%shardCount] }
