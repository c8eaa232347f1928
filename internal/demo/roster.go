package demo

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/callers/signing"
	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/fleet"
)

// The callers of a run that keeps callers apart (G12).
const (
	// notary must sign its commands.
	notary = "notary"
	// partner has topics of its own for replies and events.
	partner = "partner"
	// chain has paid orders when kiosk comes into its namespace, in the middle.
	chain, kiosk = "chain", "kiosk"
	// leaver is shut out in the middle, and newcomer is added.
	leaver, newcomer = "leaver", "newcomer"
)

// roster are the callers of a run, and how they are kept apart.
type roster struct {
	names      []string
	namespaces map[string]string // at the end
	// named are the namespaces that are repaid by name only.
	named []string
	// own are the callers with topics of their own, with what ends their names.
	own map[string]string
	// keys are those of callers that sign; ring are all that count.
	keys map[string]signing.Key
	ring []signing.Key
	// table says that the table of callers is the truth, and not the settings.
	table bool
	// file holds the ring.
	file string
	// tokens are the credentials of callers, for the edge.
	tokens map[string]string
	play   *callerPlay
}

// rosterOf are the callers that a run's configuration asks for.
func rosterOf(cfg *Config) *roster {
	r := &roster{
		names: slices.Clone(callers), namespaces: maps.Clone(namespaces), named: []string{repayNamed}, keys: map[string]signing.Key{}, tokens: map[string]string{},
		table: cfg.Registered,
	}
	if cfg.Apart {
		r.add(notary, partner)
		r.own = map[string]string{partner: partner}
		r.signs(cfg.Seed)
	}
	if cfg.Shop != nil {
		r.add(cfg.Shop.Caller)
		r.named = append(r.named, cfg.Shop.Caller)
	}
	if cfg.Registered {
		r.add(chain, kiosk, leaver, newcomer)
		r.namespaces[kiosk] = chain
	}
	return r
}

func (r *roster) add(names ...string) {
	for _, name := range names {
		r.names, r.namespaces[name] = append(r.names, name), name
	}
}

// setting is the callers as a setting says them.
func (r *roster) setting() string {
	var pairs []string
	for _, caller := range slices.Sorted(maps.Keys(r.namespaces)) {
		pairs = append(pairs, caller+"="+r.namespaces[caller])
	}
	return strings.Join(pairs, ",")
}

// everywhere are the settings of every process, of the operator's tools too.
func (r *roster) everywhere() []string {
	var pairs []string
	for _, caller := range slices.Sorted(maps.Keys(r.own)) {
		pairs = append(pairs, caller+"="+r.own[caller])
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{"SETTLEONCE_CALLER_TOPICS=" + strings.Join(pairs, ",")}
}

// env are the settings of the workers.
func (r *roster) env() []string {
	out := []string{"SETTLEONCE_REPAY_NAMED=" + strings.Join(r.named, ",")}
	if r.table {
		out = append(out, "SETTLEONCE_CALLERS_FROM=database")
	} else {
		out = append(out, "SETTLEONCE_CALLERS="+r.setting())
	}
	if r.file != "" {
		out = append(out, "SETTLEONCE_SIGNING_KEYS_FILE="+r.file, "SETTLEONCE_REQUIRE_SIGNATURE="+notary)
	}
	return out
}

// edgeEnv are those that a gateway has beside: it signs what it publishes.
func (r *roster) edgeEnv() []string {
	if r.file == "" {
		return nil
	}
	return []string{"SETTLEONCE_SIGNING_KEY=" + edgeKey}
}

// enrol writes the file of keys, and gives the callers their credentials. The one who
// comes in the middle is not there yet, and the one who moves has a namespace of its own.
func (r *roster) enrol(ctx context.Context, f *fleet.Fleet, edge bool) error {
	if len(r.ring) > 0 {
		r.file = filepath.Join(f.Dir(), "signing-keys")
		if err := os.WriteFile(r.file, []byte(fileOf(r.ring)), 0o600); err != nil {
			return fmt.Errorf("write the signing keys: %w", err)
		}
	}
	if !edge && !r.table {
		return nil
	}
	for _, caller := range r.names {
		namespace := r.namespaces[caller]
		switch caller {
		case newcomer:
			continue
		case kiosk:
			namespace = kiosk
		}
		bearer, err := f.AddCaller(ctx, caller, namespace)
		if err != nil {
			return err
		}
		r.tokens[caller] = bearer
	}
	return nil
}

// clientTokens are those of callers that may come over HTTP at any time.
func (r *roster) clientTokens() map[string]string {
	out := maps.Clone(r.tokens)
	for _, caller := range []string{kiosk, leaver} {
		delete(out, caller)
	}
	return out
}

// tell adds to the rules what is known about the callers.
func (r *roster) tell(rules *check.Rules) {
	rules.Callers, rules.Namespaces, rules.Own, rules.RepayNamed = r.names, r.namespaces, r.own, r.named
	if r.play != nil {
		rules.Forged = r.play.forged
		rules.Expected = append(rules.Expected, r.play.expectations()...)
		rules.ShutOut = r.play.shutOut
	}
}
