package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/schemas"
)

func newMigrate(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the database to the version of this binary", GroupID: sectionTools,
		Example: "  settleonce migrate --postgres-dsn 'postgres://settleonce@db:5432/settleonce?sslmode=verify-full'\n" +
			"  settleonce migrate status",
		Long: "Creates and changes the tables in schema settleonce. It may be repeated, and run from several\n" +
			"places at once; one of them works. Roles refuse to start on a database of another version.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return migrate(cmd, p) },
	}
	status := &cobra.Command{
		Use: "status", Short: "List the migrations and which of them the database has",
		Example: "  settleonce migrate status\n  settleonce migrate status -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return migrationStatus(cmd, p) },
	}
	for _, c := range []*cobra.Command{cmd, status} {
		offerOutput(c)
		offer(c, config.GroupPostgres)
	}
	cmd.AddCommand(status)
	return cmd
}

func migrate(cmd *cobra.Command, p process) error {
	dsn, err := loadDSN(cmd, p)
	if err != nil {
		return err
	}
	steps, err := schemas.Migrate(cmd.Context(), dsn)
	if err != nil {
		return explainPostgres(err)
	}
	if asJSON, err := wantsJSON(cmd); err == nil && !asJSON && len(steps) == 0 {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "the database is up to date")
		return err
	}
	return showMigrations(cmd, steps)
}

func migrationStatus(cmd *cobra.Command, p process) error {
	dsn, err := loadDSN(cmd, p)
	if err != nil {
		return err
	}
	steps, err := schemas.MigrationStatus(cmd.Context(), dsn)
	if err != nil {
		return explainPostgres(err)
	}
	return showMigrations(cmd, steps)
}

type migrationRow struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	Applied bool   `json:"applied"`
}

func showMigrations(cmd *cobra.Command, steps []schemas.Migration) error {
	rows := make([]migrationRow, 0, len(steps))
	for _, s := range steps {
		rows = append(rows, migrationRow(s))
	}
	return show(cmd, rows, func(t *table, rows []migrationRow) {
		t.row("VERSION", "NAME", "APPLIED")
		for _, r := range rows {
			t.row(r.Version, r.Name, r.Applied)
		}
	})
}

func loadDSN(cmd *cobra.Command, p process) (string, error) {
	l, err := load(cmd, p)
	if err != nil {
		return "", err
	}
	dsn, err := l.Config.Postgres.ConnString()
	return dsn, asUsage(err)
}
