package sim

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"

	"github.com/google/uuid"
)

// plan is what strikes one send or query; empty for nearly all.
type plan []Fault

func (p plan) find(kind Kind) (Fault, bool) {
	for _, fault := range p {
		if fault.Kind == kind {
			return fault, true
		}
	}
	return Fault{}, false
}

func (p plan) has(kind Kind) bool {
	_, ok := p.find(kind)
	return ok
}

// add takes over the faults that strike the given send.
func (p plan) add(faults []Fault, send int) plan {
	for _, fault := range faults {
		if fault.Send == everySend || fault.Send == send {
			p = append(p, fault)
		}
	}
	return p
}

// decision is the status an execution ends in.
func (p plan) decision() (Status, time.Duration) {
	for _, fault := range p {
		switch fault.Kind {
		case Declined:
			return StatusDeclined, 0
		case Refused:
			return StatusRefused, 0
		case Authorized:
			return StatusAuthorized, 0
		case LateSettlement:
			return StatusProcessing, fault.For
		default:
		}
	}
	return StatusSettled, 0
}

// byAmount returns the fault an amount stands for.
func byAmount(amount int64) []Fault {
	kind := AmountFault(amount)
	if kind == "" {
		return nil
	}
	send := 1
	if kind.decides() {
		send = everySend
	}
	return []Fault{{Kind: kind, Send: send, For: faultDuration}}
}

// byRate returns the faults that chance brings to a send, the same for the same
// seed whatever the order of requests.
func (b *Behaviour) byRate(key uuid.UUID, n int, query bool) []Fault {
	if len(b.Rates) == 0 {
		return nil
	}
	var faults []Fault
	for _, kind := range kinds {
		rate := b.Rates[kind]
		if rate > 0 && kind.ofQuery() == query && chance(b.Seed, key, n, kind) < rate {
			faults = append(faults, Fault{Kind: kind, For: faultDuration})
		}
	}
	return faults
}

// chance is a number in [0, 1) that depends on its arguments only.
func chance(seed uint64, key uuid.UUID, n int, kind Kind) float64 {
	h := fnv.New64a()
	var head [16]byte
	binary.LittleEndian.PutUint64(head[:8], seed)
	binary.LittleEndian.PutUint64(head[8:], uint64(n)) //nolint:gosec // a count
	_, _ = h.Write(head[:])
	_, _ = h.Write(key[:])
	_, _ = h.Write([]byte(kind))
	mixed := h.Sum64() * 0x9e3779b97f4a7c15
	mixed ^= mixed >> 32
	return float64(mixed*0xd6e8feb86659fd93>>11) / math.Exp2(53)
}
