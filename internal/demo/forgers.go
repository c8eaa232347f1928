package demo

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/check"
)

// forger publishes in the notary's name, and does not have its key.
type forger struct {
	name string
	sign func(f *forgers, key, value []byte) string
}

// forgers are what they all have.
type forgers struct {
	roster *roster
	random *rand.Rand
}

// waysToForge are what may be wrong with a signature.
var waysToForge = []forger{
	{"signed by another registered caller", func(f *forgers, key, value []byte) string { return f.roster.ring[1].Sign(key, value) }},
	{"not signed", func(*forgers, []byte, []byte) string { return "" }},
	{"with a damaged signature", func(f *forgers, key, value []byte) string { return damaged(f.roster.keys[notary].Sign(key, value)) }},
	{"with the signature of another record", func(f *forgers, key, value []byte) string {
		return f.roster.keys[notary].Sign(key, append([]byte("x"), value...))
	}},
	{"signed by a guessed secret", func(f *forgers, key, value []byte) string {
		return signing.Key{ID: notaryKey, Callers: []string{notary}, Secret: secret(f.random)}.Sign(key, value)
	}},
	{"signed by a key that nobody knows", func(f *forgers, key, value []byte) string {
		return signing.Key{ID: "notary-2", Callers: []string{notary}, Secret: secret(f.random)}.Sign(key, value)
	}},
}

// damaged is a signature with one digit changed.
func damaged(signature string) string {
	last := signature[len(signature)-1]
	other := byte('0')
	if last == other {
		other = '1'
	}
	return signature[:len(signature)-1] + string(other)
}

// fewestForged are the forged commands, and one of so many records in a larger run.
const fewestForged, shareForged = 18, 100

// forge has strangers publish in the notary's name: new keys, and keys of its payments
// with the same content or another, before it or after it.
func (p *callerPlay) forge(w *writer, n int) {
	w.story, w.caller = "forged", notary
	all := &forgers{roster: p.roster, random: w.random}
	var genuine []*planned
	for _, of := range w.script.payments {
		if of.command.Caller == notary && of.at > 0 {
			genuine = append(genuine, of)
		}
	}
	for i := range n {
		way := &waysToForge[i%len(waysToForge)]
		of := genuine[w.random.IntN(len(genuine))]
		c, at := of.command, max(0, of.at-time.Second+w.upTo(3000))
		switch w.random.IntN(3) {
		case 0:
			c.Amount += 1 + w.random.Int64N(5000)
		case 1:
			w.orders++
			c.IdempotencyKey, c.OrderID, c.Obligation, c.Follows = w.key(), fmt.Sprintf("order-%d-%d", w.seed%1e6, w.orders), "", nil
		}
		key, value := []byte(c.IdempotencyKey.String()), c.AppendJSON(nil)
		signature := way.sign(all, key, value)
		p.forged = append(p.forged, check.Forgery{Key: key, Value: value, Signature: signature, How: way.name})
		w.script.deliveries = append(w.script.deliveries, delivery{at: at, key: key, value: value, signature: signature})
	}
}
