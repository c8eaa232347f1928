package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
)

//go:generate sh -c "go run . config --markdown > ../../docs/configuration.md.new && mv ../../docs/configuration.md.new ../../docs/configuration.md"

func newConfig(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Show the settings in effect and where they came from", GroupID: sectionTools,
		Example: "  settleonce config                                  what is in effect, secrets masked\n" +
			"  settleonce config --config settleonce.yaml         check a file before it is rolled out\n" +
			"  settleonce config -o json\n" +
			"  settleonce config --markdown > configuration.md    the reference",
		Args: cobra.NoArgs,
	}
	offerOutput(cmd)
	markdown := cmd.Flags().Bool("markdown", false, "print the reference of all settings instead")
	offerAll(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *markdown {
			_, err := fmt.Fprint(cmd.OutOrStdout(), config.Markdown())
			return err
		}
		return showConfig(cmd, p)
	}
	return cmd
}

func showConfig(cmd *cobra.Command, p process) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	return show(cmd, l.Values(), func(t *table, values []config.Value) {
		t.row("SETTING", "VALUE", "FROM")
		for _, v := range values {
			t.row(v.Name, v.Value, v.Source)
		}
	})
}
