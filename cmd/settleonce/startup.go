package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/topics"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/schemas"
)

// The preconditions of every guarantee (DESIGN section 2) are looked at before
// a role does anything: what loses money stops the start, what is weaker than
// production needs is said loudly.

// checkStart runs all checks of a role's start.
func checkStart(ctx context.Context, w *worker) error {
	if !w.quiet {
		for _, sentence := range w.cfg.Warnings() {
			w.log.Warn().Msg(sentence)
		}
	}
	if err := checkMigrations(ctx, w.pool); err != nil {
		return err
	}
	if err := checkDurability(ctx, w.pool, w.cfg, w.log); err != nil {
		return err
	}
	if err := checkInstallation(ctx, w.store, w.log); err != nil {
		return err
	}
	return requireTopics(ctx, w.kafka, w.cfg, w.log)
}

// checkMigrations wants every migration this binary knows. Newer ones may be
// there too: the database is migrated first and the processes are rolled after
// it, so for a while the older binary runs on the newer schema, unless a migration
// said that it cannot.
func checkMigrations(ctx context.Context, pool *pgxpool.Pool) error {
	known, err := schemas.Versions()
	if err != nil {
		return err
	}
	newest := known[len(known)-1]
	var have int64
	var missing []int64
	err = pool.QueryRow(ctx, `SELECT coalesce(max(version_id), 0), ARRAY(SELECT k FROM unnest($1::bigint[]) AS k
		WHERE NOT EXISTS (SELECT FROM settleonce.schema_migrations m WHERE m.version_id = k AND m.is_applied) ORDER BY k)
		FROM settleonce.schema_migrations WHERE is_applied`, known).Scan(&have, &missing)
	switch {
	case err != nil:
		return explainPostgres(fmt.Errorf("read the database's version: %w", err))
	case len(missing) > 0 && have < newest:
		return fmt.Errorf("the database is at version %d and this binary needs %d: run `settleonce migrate` first", have, newest)
	case len(missing) > 0:
		return fmt.Errorf("the database lacks the migrations %v of this binary: run `settleonce migrate` first", missing)
	case have == newest:
		return nil
	}
	return checkOldest(ctx, pool, have, newest)
}

// checkOldest asks a newer schema whether this binary may run on it.
func checkOldest(ctx context.Context, pool *pgxpool.Pool, have, newest int64) error {
	var oldest int64
	if err := pool.QueryRow(ctx, `SELECT oldest_binary FROM settleonce.installation`).Scan(&oldest); err != nil {
		return explainPostgres(fmt.Errorf("read which binaries may run on the database: %w", err))
	}
	if oldest > newest {
		return fmt.Errorf("the database is at version %d, and no longer for binaries that know %d only: deploy a newer binary", have, newest)
	}
	return nil
}

// durable are the server's settings without which a committed claim can be lost.
var durable = map[string][]string{
	"fsync":              {"on"},
	"full_page_writes":   {"on"},
	"synchronous_commit": {"on", "local", "remote_write", "remote_apply"},
}

// checkDurability: a claim that is lost in a crash is a second charge (G1).
func checkDurability(ctx context.Context, pool *pgxpool.Pool, c *config.Config, log zerolog.Logger) error {
	settings, err := serverSettings(ctx, pool)
	if err != nil {
		return err
	}
	var weak []string
	for name, good := range durable {
		if !slices.Contains(good, settings[name]) {
			weak = append(weak, name+"="+settings[name])
		}
	}
	sayStandby(settings, log)
	if len(weak) == 0 {
		return nil
	}
	sentence := "the database may lose committed claims, and a lost claim is a second charge (" + strings.Join(weak, ", ") + "): set them to on"
	if c.Postgres.AllowUnsafeDurability {
		log.Warn().Msg(sentence)
		return nil
	}
	return errors.New(sentence)
}

// sayStandby tells what a failover can lose.
func sayStandby(settings map[string]string, log zerolog.Logger) {
	standbys := settings["synchronous_standby_names"]
	switch commit := settings["synchronous_commit"]; {
	case standbys == "":
		log.Info().Msg("the database has no synchronous standby: a failover to another server can lose committed claims; " +
			"after one, nothing is sent before its provider was asked")
	case commit == "local" || commit == "remote_write":
		log.Warn().Msg("synchronous_commit is " + commit + ": a commit does not wait until the standby has it, set it to on")
	}
}

func serverSettings(ctx context.Context, pool *pgxpool.Pool) (map[string]string, error) {
	rows, err := pool.Query(ctx, `SELECT name, setting FROM pg_settings
		WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names')`)
	if err != nil {
		return nil, explainPostgres(fmt.Errorf("read the server's settings: %w", err))
	}
	settings := make(map[string]string)
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		settings[name] = value
		return nil
	})
	if err != nil {
		return nil, explainPostgres(fmt.Errorf("read the server's settings: %w", err))
	}
	return settings, nil
}

// checkInstallation: shards are fixed at installation (G10), and lost commits are
// noticed by the identity of the server.
func checkInstallation(ctx context.Context, s *store.Store, log zerolog.Logger) error {
	installed, err := s.CheckInstallation(ctx)
	if err != nil {
		return explainPostgres(err)
	}
	if installed.Shards != outbox.Shards {
		return fmt.Errorf("the database was installed with %d shards and this binary has %d: run the version that installed it",
			installed.Shards, outbox.Shards)
	}
	if installed.Suspect != "" {
		log.Error().Str("reason", installed.Suspect).
			Msg("commits may be lost: nothing new is sent before its provider was asked; look into it, then run `settleonce recover`")
	}
	return nil
}

func requireTopics(ctx context.Context, client *kafka.Client, c *config.Config, log zerolog.Logger) error {
	findings, err := checkTopics(ctx, client, c)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Severity == topics.Warning {
			log.Warn().Str("topic", f.Topic).Msg("topic " + f.Text)
		}
	}
	faults := topics.Faults(findings)
	if len(faults) == 0 {
		return nil
	}
	errs := make([]error, 0, len(faults))
	for _, f := range faults {
		errs = append(errs, fmt.Errorf("topic %s %s", f.Topic, f.Text))
	}
	return errors.Join(errs...)
}

// remember spares what a check asks: within ttl the last answer is given again.
func remember(ttl time.Duration, check func(context.Context) error) func(context.Context) error {
	var at time.Time
	var last error
	// The admin endpoints never run one check twice at once.
	return func(ctx context.Context) error {
		if time.Since(at) >= ttl {
			last, at = check(ctx), time.Now()
		}
		return last
	}
}
