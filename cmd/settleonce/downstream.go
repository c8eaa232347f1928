package main

import (
	"context"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/crashpoint"
	"github.com/settleonce/settleonce/internal/downstream"
	"github.com/settleonce/settleonce/internal/telemetry"
)

// newDownstream is a part of `settleonce torture`, which starts it: a service that
// applies events through the inbox, in a database of its own.
func newDownstream(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: downstream.Name, Short: "Apply events once, as a service behind the torture run does", Hidden: true, Args: cobra.NoArgs,
		Example: "  settleonce " + downstream.Name + " --postgres-dsn postgres://localhost/downstream",
	}
	offer(cmd, config.GroupKafka, config.GroupPostgres, config.GroupAdmin, config.GroupLog)
	offerOne(cmd, "topic-prefix")
	offerOne(cmd, "session-timeout")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l, err := load(cmd, p)
		if err != nil {
			return err
		}
		if err := crashpoint.Arm(p.variable(crashpoint.Variable)); err != nil {
			return asUsage(err)
		}
		log, err := newLogger(p, &l.Config)
		if err != nil {
			return err
		}
		return runDownstream(cmd.Context(), &l.Config, log)
	}
	return cmd
}

func runDownstream(ctx context.Context, c *config.Config, log zerolog.Logger) error {
	tuneMemory()
	dsn, err := c.Postgres.ConnString()
	if err != nil {
		return asUsage(err)
	}
	admin, err := telemetry.NewAdmin(telemetry.AdminConfig{Address: c.Admin.Address, Metrics: telemetry.NewMetrics(buildInfo().Version), Log: log})
	if err != nil {
		return err
	}
	if err := admin.Listen(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return admin.Run(ctx) })
	group.Go(func() error {
		return downstream.Run(ctx, downstream.Config{
			DSN: dsn, Brokers: c.Kafka.Brokers, Prefix: c.Topics.Prefix, SessionTimeout: c.Consumer.SessionTimeout, Logger: log,
		})
	})
	return group.Wait()
}
