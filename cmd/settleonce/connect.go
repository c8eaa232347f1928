package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/internal/telemetry"
	"github.com/settleonce/settleonce/internal/topics"
	"github.com/settleonce/settleonce/outbox"
	"github.com/settleonce/settleonce/payment"
)

// newLogger returns the logger of a command. It writes to the process's stderr,
// so that stdout is free for results.
func newLogger(p process, c *config.Config) (zerolog.Logger, error) {
	log, err := telemetry.NewLogger(p.stderr, telemetry.LogConfig{Level: c.Log.Level, Format: c.Log.Format})
	return log, asUsage(err)
}

// kafkaConfig reads the certificate files.
func kafkaConfig(c *config.Config, log zerolog.Logger) (kafka.Config, error) {
	encryption, err := c.Kafka.TLSConfig()
	if err != nil {
		return kafka.Config{}, asUsage(err)
	}
	return kafka.Config{
		Brokers: c.Kafka.Brokers, ClientID: c.Kafka.ClientID, TLS: encryption, Logger: log,
		SASL: kafka.SASL{Mechanism: c.Kafka.SASLMechanism, Username: c.Kafka.SASLUsername, Password: c.Kafka.SASLPassword},
	}, nil
}

// openKafka returns a client that has reached the cluster.
func openKafka(ctx context.Context, c *config.Config, log zerolog.Logger) (*kafka.Client, error) {
	cfg, err := kafkaConfig(c, log)
	if err != nil {
		return nil, err
	}
	client, err := kafka.NewClient(cfg)
	if err != nil {
		return nil, asUsage(err)
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, explainKafka(err)
	}
	return client, nil
}

// openPool returns a pool that has reached the database. The role shows in
// pg_stat_activity.
func openPool(ctx context.Context, c *config.Config, role string) (*pgxpool.Pool, error) {
	dsn, err := c.Postgres.ConnString()
	if err != nil {
		return nil, asUsage(err)
	}
	pool, err := store.OpenPool(ctx, store.PoolConfig{
		DSN: withStatementTimeout(dsn, c), MaxConns: c.Postgres.PoolSize, ApplicationName: "settleonce-" + role,
	})
	return pool, explainPostgres(err)
}

// withStatementTimeout bounds every statement on the server's side. Migrations
// connect without it: they may take long.
func withStatementTimeout(dsn string, c *config.Config) string {
	timeout := strconv.FormatInt(c.Postgres.StatementTimeout.Milliseconds(), 10)
	if !strings.Contains(dsn, "://") {
		return dsn + " statement_timeout=" + timeout
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return dsn // the driver says what is wrong with it
	}
	query := u.Query()
	query.Set("statement_timeout", timeout)
	u.RawQuery = query.Encode()
	return u.String()
}

// topicNames are the names of the topics, those of callers with their own among them.
func topicNames(c *config.Config) payment.Topics {
	return payment.NewTopics(c.Topics.Prefix).WithOwn(c.Callers.OwnTopics)
}

func topicPolicy(c *config.Config) topics.Policy {
	return topics.Policy{
		Prefix: c.Topics.Prefix, Commands: c.Callers.CommandTopics(c.Topics.Prefix), Own: c.Callers.OwnTopics, Partitions: outbox.Shards, Replication: c.Topics.Replication,
		Window: c.Consumer.Window, CommandsRetention: c.Topics.CommandsRetention, RequeryRetention: c.Topics.RequeryRetention,
		OutputRetention: c.Topics.OutputRetention, DeadRetention: c.Topics.DeadRetention, MaxCommandBytes: c.Topics.MaxCommandBytes,
	}
}

// checkTopics asks the cluster and compares.
func checkTopics(ctx context.Context, client *kafka.Client, c *config.Config) ([]topics.Finding, error) {
	policy := topicPolicy(c)
	found, err := client.DescribeTopics(ctx, policy.Names())
	if err != nil {
		return nil, fmt.Errorf("check topics: %w", err)
	}
	return policy.Check(found), nil
}
