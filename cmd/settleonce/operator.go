package main

import (
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/store"
	"github.com/settleonce/settleonce/payment"
)

// operator is what tools work with that need both Kafka and the database.
type operator struct {
	cfg    *config.Config
	log    zerolog.Logger
	kafka  *kafka.Client
	store  *store.Store
	topics payment.Topics
}

// withOperator connects, and hands the connections to do.
func withOperator(cmd *cobra.Command, p process, name string, do func(*operator) error) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	o := &operator{cfg: &l.Config, topics: topicNames(&l.Config)}
	if o.log, err = newLogger(p, o.cfg); err != nil {
		return err
	}
	if o.kafka, err = openKafka(cmd.Context(), o.cfg, o.log); err != nil {
		return err
	}
	defer o.kafka.Close()
	pool, err := openPool(cmd.Context(), o.cfg, name)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := checkMigrations(cmd.Context(), pool); err != nil {
		return err
	}
	o.store = store.New(store.Config{Pool: pool, Topics: o.topics, Logger: zerolog.Nop()})
	return explainPostgres(do(o))
}
