package main

import (
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/topics"
)

func newTopics(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topics", Short: "Create the topics, or check that they keep what the guarantees need", GroupID: sectionTools,
		Example: "  settleonce topics ensure --kafka-brokers kafka:9092\n  settleonce topics check",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	ensure := &cobra.Command{
		Use: "ensure", Short: "Create the topics that are missing, then check all of them",
		Example: "  settleonce topics ensure --kafka-brokers kafka:9092\n" +
			"  settleonce topics ensure --replication 1            a single broker, for development",
		Long: "Creates what is missing and never changes what exists: what differs is reported, for a person to\n" +
			"decide. It may be repeated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return ensureTopics(cmd, p) },
	}
	check := &cobra.Command{
		Use: "check", Short: "Compare the topics with what the guarantees need",
		Example: "  settleonce topics check\n  settleonce topics check -o json",
		Long: "Prints one line per finding, with what to do. Exit code 1: there is a fault, and roles refuse to\n" +
			"start. A warning is a precondition that is weaker than production needs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return showTopicCheck(cmd, p) },
	}
	for _, c := range []*cobra.Command{ensure, check} {
		offerOutput(c)
		offer(c, config.GroupKafka, config.GroupTopics, config.GroupCallers)
		offerOne(c, "window")
		cmd.AddCommand(c)
	}
	return cmd
}

// topicReport is what both commands print.
type topicReport struct {
	Created  []string         `json:"created,omitempty"`
	Existing []string         `json:"existing,omitempty"`
	Findings []topics.Finding `json:"findings"`
}

func ensureTopics(cmd *cobra.Command, p process) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	client, err := openKafka(cmd.Context(), &l.Config, zerolog.Nop())
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := client.EnsureTopics(cmd.Context(), topicPolicy(&l.Config).Plan())
	if err != nil {
		return fmt.Errorf("%w: check the rights of this user, and that the cluster has %d brokers (replication)", err, l.Config.Topics.Replication)
	}
	report := topicReport{Findings: []topics.Finding{}}
	for _, r := range results {
		if r.Created {
			report.Created = append(report.Created, r.Name)
		} else {
			report.Existing = append(report.Existing, r.Name)
		}
	}
	if report.Findings, err = checkTopics(cmd.Context(), client, &l.Config); err != nil {
		return err
	}
	return report.show(cmd)
}

func showTopicCheck(cmd *cobra.Command, p process) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	client, err := openKafka(cmd.Context(), &l.Config, zerolog.Nop())
	if err != nil {
		return err
	}
	defer client.Close()
	findings, err := checkTopics(cmd.Context(), client, &l.Config)
	if err != nil {
		return err
	}
	return topicReport{Findings: findings}.show(cmd)
}

// show prints the report; a fault among the findings is an error.
func (r topicReport) show(cmd *cobra.Command) error {
	if r.Findings == nil {
		r.Findings = []topics.Finding{}
	}
	err := show(cmd, r, func(t *table, r topicReport) {
		for _, name := range r.Created {
			t.row("created", name)
		}
		for _, name := range r.Existing {
			t.row("exists", name)
		}
		for _, f := range r.Findings {
			t.row(f.Severity, f.Topic, f.Text)
		}
		if len(r.Findings) == 0 {
			t.row("ok", "the topics keep what the guarantees need")
		}
	})
	if faults := topics.Faults(r.Findings); err == nil && len(faults) > 0 {
		return fmt.Errorf("%d of the topics' settings break a guarantee: correct them as the lines above say", len(faults))
	}
	return err
}
