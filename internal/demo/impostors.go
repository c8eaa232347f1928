package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/fleet"
	"github.com/settleonce/settleonce/payment"
)

// pose is a request at the edge by somebody who shows a key that is none.
type pose struct {
	at      time.Duration
	request request
}

// guess is a key that somebody makes who knows the public part of a caller's key.
type guess struct {
	name string
	make func(victim, other string) string
}

var guesses = []guess{
	{"the id of its key, and another caller's secret", func(victim, other string) string {
		_, secret := parts(other)
		id, _ := parts(victim)
		return id + "_" + secret
	}},
	{"its key with one letter changed", func(victim, _ string) string { return damaged(victim) }},
	{"the id of its key, and a guessed secret", func(victim, _ string) string {
		id, _ := parts(victim)
		return id + "_" + strings.Repeat("a", 52)
	}},
}

// parts splits a key, so_ID_SECRET, before the secret.
func parts(key string) (id, secret string) {
	i := strings.LastIndex(key, "_")
	return key[:i], key[i+1:]
}

const (
	// impostors are how many come in a run.
	impostors = 18
	// likeNoOther is added to the amounts that impostors ask for, so that their commands
	// are known by them.
	likeNoOther = 1_000_000
)

// impersonate plans requests of impostors: new payments, other amounts under keys of
// their victims, and looks at their payments.
func (p *callerPlay) impersonate(w *writer, s *script) {
	victims := slices.DeleteFunc(slices.Clone(s.payments), func(of *planned) bool {
		return of.at == 0 || of.command.Amount <= 0 || p.roster.tokens[of.command.Caller] == ""
	})
	if len(victims) == 0 {
		return // nothing comes over HTTP
	}
	for i := range impostors {
		of := victims[w.random.IntN(len(victims))]
		way := guesses[i%len(guesses)]
		c := of.command
		c.Amount += likeNoOther + int64(i)
		if i/len(guesses)%3 == 0 {
			c.IdempotencyKey, c.OrderID, c.Obligation = w.key(), fmt.Sprintf("posed-%d-%d", w.seed%1e6, i), ""
		}
		other := p.roster.tokens["shop"]
		if c.Caller == "shop" {
			other = p.roster.tokens["billing"]
		}
		r, err := posing(&c, way.make(p.roster.tokens[c.Caller], other), way.name, i)
		if err != nil {
			continue // the script makes none such
		}
		r.look = i/len(guesses)%3 == 2
		at := time.Duration(w.random.Int64N(int64(s.length)))
		p.poses = append(p.poses, pose{at: at, request: r})
	}
	slices.SortStableFunc(p.poses, func(a, b pose) int { return cmp.Compare(a.at, b.at) })
}

// posing is a request with a key that is none.
func posing(c *payment.Command, token, posed string, gateway int) (request, error) {
	sum, err := c.Fingerprint()
	return request{command: *c, sum: sum, token: token, posed: posed, first: gateway}, err
}

// pretend has the impostors come, each at its time.
func (p *callerPlay) pretend(ctx context.Context, at *clients) error {
	if at == nil {
		return nil
	}
	begun := time.Now()
	for _, one := range p.poses {
		if !fleet.Pause(ctx, time.Until(begun.Add(one.at))) {
			return ctx.Err()
		}
		at.start(ctx, one.request, false)
	}
	return nil
}
