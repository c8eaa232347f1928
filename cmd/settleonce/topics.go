package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/topics"
)

func newTopics(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "topics", Short: "Create the topics, or check that they keep what the guarantees need", GroupID: sectionTools,
		Example: "  settleonce topics ensure --kafka-brokers kafka:9092\n  settleonce topics check",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range []*cobra.Command{newTopicsEnsure(p), newTopicsCheck(p)} {
		offerOutput(c)
		offer(c, config.GroupKafka, config.GroupTopics, config.GroupCallers)
		offerOne(c, "window")
		cmd.AddCommand(c)
	}
	return cmd
}

func newTopicsEnsure(p process) *cobra.Command {
	return &cobra.Command{
		Use: "ensure", Short: "Create the topics that are missing, then check all of them",
		Example: "  settleonce topics ensure --kafka-brokers kafka:9092\n" +
			"  settleonce topics ensure --replication 1            a single broker, for development",
		Long: "Creates what is missing and never changes what exists: what differs is reported, for a person to\n" +
			"decide. It may be repeated.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return ensureTopics(cmd, p) },
	}
}

func newTopicsCheck(p process) *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Compare the topics with what the guarantees need",
		Example: "  settleonce topics check\n  settleonce topics check -o json",
		Long: "Prints one line per finding, with what to do. Exit code 1: there is a fault, and roles refuse to\n" +
			"start. A warning is a precondition that is weaker than production needs.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return showTopicCheck(cmd, p) },
	}
}

// topicReport is what both commands print.
type topicReport struct {
	Created  []string         `json:"created,omitempty"`
	Existing []string         `json:"existing,omitempty"`
	Findings []topics.Finding `json:"findings"`
}

func ensureTopics(cmd *cobra.Command, p process) error {
	return withKafka(cmd, p, func(client *kafka.Client, c *config.Config) error {
		results, err := createTopics(cmd.Context(), client, c)
		if err != nil {
			return err
		}
		var report topicReport
		for _, r := range results {
			if r.Created {
				report.Created = append(report.Created, r.Name)
			} else {
				report.Existing = append(report.Existing, r.Name)
			}
		}
		return report.check(cmd, client, c)
	})
}

func showTopicCheck(cmd *cobra.Command, p process) error {
	return withKafka(cmd, p, func(client *kafka.Client, c *config.Config) error {
		return topicReport{}.check(cmd, client, c)
	})
}

// withKafka connects for one question.
func withKafka(cmd *cobra.Command, p process, ask func(*kafka.Client, *config.Config) error) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	client, err := openKafka(cmd.Context(), &l.Config, zerolog.Nop())
	if err != nil {
		return err
	}
	defer client.Close()
	return ask(client, &l.Config)
}

// createTopics makes the topics that are missing.
func createTopics(ctx context.Context, client *kafka.Client, c *config.Config) ([]kafka.TopicResult, error) {
	results, err := client.EnsureTopics(ctx, topicPolicy(c).Plan())
	if err == nil {
		return results, nil
	}
	var names []string
	for _, r := range results {
		if r.Err != nil {
			names = append(names, r.Name)
			err = errors.Unwrap(r.Err) // nearly always the same for all: one is enough
		}
	}
	if len(names) > 0 {
		err = fmt.Errorf("topics that were not created: %s: %w", strings.Join(names, ", "), err)
	}
	switch {
	case errors.Is(err, kafka.ErrTooFewBrokers):
		return nil, fmt.Errorf("start %d brokers, or set replication to what there are (1 for development): %w", c.Topics.Replication, err)
	case errors.Is(err, kafka.ErrUnauthorized):
		return nil, fmt.Errorf("grant this user Create on the topics, or run it as one who has it: %w", err)
	default:
		return nil, err
	}
}

// check adds the findings and prints the report.
func (r topicReport) check(cmd *cobra.Command, client *kafka.Client, c *config.Config) error {
	findings, err := checkTopics(cmd.Context(), client, c)
	if err != nil {
		return err
	}
	r.Findings = append([]topics.Finding{}, findings...) // [] in JSON, never null
	return r.show(cmd)
}

// show prints the report; a fault among the findings is an error.
func (r topicReport) show(cmd *cobra.Command) error {
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
