package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settleonce/settleonce/consumer"
	"github.com/settleonce/settleonce/internal/callers"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/producer"
)

// callerSource is where a consumer learns who may ask for payments.
type callerSource struct {
	callers    consumer.Callers
	registered bool
	signatures consumer.Signatures
}

func (w *worker) callerSource() (callerSource, error) {
	c := &w.cfg.Callers
	source := callerSource{callers: callerRules{c, w.cfg.Topics.Prefix}}
	if c.InDatabase() {
		directory, err := callers.NewDirectory(callers.DirectoryConfig{Pool: w.pool})
		if err != nil {
			return source, err
		}
		source.registered = true
		source.callers = callers.NewRegister(directory, callers.Rules{
			Carries: func(topic, caller string) bool { return c.Carries(w.cfg.Topics.Prefix, topic, caller) }, Named: c.Named,
		})
	}
	if c.SigningKeysFile != "" {
		signatures, err := callers.NewSignatures(c.SigningKeysFile, c.RequireSignature)
		if err != nil {
			return source, asUsage(err)
		}
		source.signatures = signatures
	}
	return source, nil
}

// checkCallers compares what the settings and the table say about namespaces with
// each other and with the open payments: a payment that holds its obligation in
// another namespace would not stand in the way of a second one (G15).
func checkCallers(ctx context.Context, w *worker) error {
	directory, err := callers.NewDirectory(callers.DirectoryConfig{Pool: w.pool})
	if err != nil {
		return err
	}
	if err := directory.Refresh(ctx); err != nil {
		return explainPostgres(err)
	}
	table := directory.Callers()
	slices.SortFunc(table, func(a, b callers.Caller) int { return strings.Compare(a.Name, b.Name) })
	c := &w.cfg.Callers
	if !c.InDatabase() {
		if err := sameNamespaces(c, table); err != nil {
			return err
		}
		return explainPostgres(w.store.OpenElsewhere(ctx, c.Namespaces, c.Anyone()))
	}
	namespaces := make(map[string]string, len(table))
	for _, entry := range table {
		namespaces[entry.Name] = entry.Namespace
	}
	if len(namespaces) == 0 {
		w.log.Warn().Msg("callers-from is database and there are no callers: every command is a dead letter, add them with `settleonce callers add`")
	}
	return explainPostgres(w.store.OpenElsewhere(ctx, namespaces, false))
}

// callerNamespaces maps every caller that was ever let in to its namespace; nil where
// everybody is.
func callerNamespaces(ctx context.Context, pool *pgxpool.Pool, c *config.Config) (map[string]string, error) {
	if !c.Callers.InDatabase() {
		return c.Callers.Namespaces, nil
	}
	directory, err := callers.NewDirectory(callers.DirectoryConfig{Pool: pool})
	if err != nil {
		return nil, err
	}
	if err := directory.Refresh(ctx); err != nil {
		return nil, explainPostgres(err)
	}
	known := map[string]string{}
	for _, entry := range directory.Callers() {
		known[entry.Name] = entry.Namespace
	}
	return known, nil
}

// sameNamespaces lets the table stand beside the settings, for the edge and while
// an installation changes over, as long as both say the same.
func sameNamespaces(c *config.Callers, table []callers.Caller) error {
	for _, entry := range table {
		_, listed := c.Namespaces[entry.Name]
		configured, _ := c.Namespace(entry.Name)
		if entry.Revoked || !listed && !c.Anyone() || configured == entry.Namespace {
			continue
		}
		return fmt.Errorf("caller %s has namespace %s in the database and %s by the settings: set callers-from to database in every process, or make them equal",
			entry.Name, entry.Namespace, configured)
	}
	return nil
}

// signingKey is the key with which this process signs; the zero value where it does
// not.
func signingKey(c *config.Config) (producer.SigningKey, error) {
	key, signs, err := c.Callers.Signer()
	if err != nil || !signs {
		return producer.SigningKey{}, asUsage(err)
	}
	return producer.SigningKey{ID: key.ID, Secret: key.Secret}, nil
}

// chooseCallers lets a developer's first `callers add` count at the next start, and
// whoever added none publish as anybody.
func (d *devRun) chooseCallers(ctx context.Context) error {
	if !d.unset("callers-from", "callers") {
		return nil
	}
	pool, err := openPool(ctx, &d.cfg, devRole)
	if err != nil {
		return err
	}
	defer pool.Close()
	directory, err := callers.NewDirectory(callers.DirectoryConfig{Pool: pool})
	if err != nil {
		return err
	}
	if err := directory.Refresh(ctx); err != nil {
		return explainPostgres(err)
	}
	if len(directory.Callers()) > 0 {
		d.cfg.Callers.From = config.CallersFromDatabase
	}
	return nil
}
