package demo

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/kafka"
)

// The keys that count in a run, by their ids.
const (
	notaryKey  = "notary-1"
	billingKey = "billing-1"
	edgeKey    = "edge-1"
)

// signs makes the keys of a run: the notary's, which must sign, that of another
// registered caller, and the edge's, which may speak for everybody.
func (r *roster) signs(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 14))
	r.ring = []signing.Key{
		{ID: notaryKey, Callers: []string{notary}, Secret: secret(random)},
		{ID: billingKey, Callers: []string{"billing"}, Secret: secret(random)},
		{ID: edgeKey, Callers: []string{signing.Everyone}, Secret: secret(random)},
	}
	r.keys[notary] = r.ring[0]
}

func secret(random *rand.Rand) []byte {
	var out []byte
	for range 4 {
		out = binary.LittleEndian.AppendUint64(out, random.Uint64())
	}
	return out
}

// fileOf is the file of keys.
func fileOf(ring []signing.Key) string {
	var text strings.Builder
	for _, k := range ring {
		text.WriteString(k.Line() + "\n")
	}
	return text.String()
}

// signed adds the signature that a delivery is given, or that of the caller that
// publishes it.
func (p *player) signed(d *delivery) kafka.Message {
	m := d.message(p.topic)
	signature := d.signature
	if d.command != nil && signature == "" {
		if key, ok := p.keys[d.command.Caller]; ok {
			signature = key.Sign(m.Key, m.Value)
		}
	}
	if signature != "" {
		m.Headers = append(m.Headers, kafka.Header{Key: signing.Header, Value: []byte(signature)})
	}
	return m
}
