package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/payment"
)

func newCheck(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check from outside that every guarantee held: ledger, topics and tables", GroupID: sectionTools,
		Example: "  settleonce check                                   an installation at work\n" +
			"  settleonce check --drained                         nothing is under way: everything must be settled\n" +
			"  settleonce check --kafka-brokers a:9092 --postgres-dsn postgres://… --channel-url http://… -o json",
		Long: "Reads the channel's own ledger, all topics and the tables, and holds them against each other. Nothing is\n" +
			"written, and no worker is asked. It keeps what it reads in memory, about 10 KB per payment. The ledger is\n" +
			"one that the channel simulator shows. Exit code 1 when something is wrong, or could not be looked at.",
		Args: cobra.NoArgs,
	}
	offerOutput(cmd)
	grace := cmd.Flags().Duration("grace", time.Minute, "how old a command may be without an answer while the installation is at work")
	drained := cmd.Flags().Bool("drained", false, "nothing is under way: what has no end by now never will")
	offer(cmd, config.GroupKafka, config.GroupTopics, config.GroupPostgres, config.GroupCallers, config.GroupChannel, config.GroupLog)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *grace <= 0 {
			return asUsage(fmt.Errorf("--grace %s is not a time to wait: use a positive one, or --drained", *grace))
		}
		if *drained {
			*grace = 0
		}
		return runCheck(cmd, p, *grace)
	}
	return cmd
}

func runCheck(cmd *cobra.Command, p process, grace time.Duration) error {
	if _, err := wantsJSON(cmd); err != nil {
		return err
	}
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	log, err := newLogger(p, &l.Config)
	if err != nil {
		return err
	}
	pool, err := openPool(cmd.Context(), &l.Config, "check")
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := openKafka(cmd.Context(), &l.Config, log)
	if err != nil {
		return err
	}
	defer client.Close()
	c := &l.Config
	verdict, err := check.Inspect(cmd.Context(), check.Installation{
		Client: client, Database: pool, Topics: payment.NewTopics(c.Topics.Prefix), CommandTopics: c.Callers.CommandTopics(c.Topics.Prefix),
		Group: c.Topics.Prefix + "settleonce-consumer", ChannelURL: c.Channel.URL, Grace: grace, Rules: checkRules(c),
	})
	if err != nil {
		return explainCheck(err)
	}
	if err := show(cmd, verdict, checkTable); err != nil {
		return err
	}
	return checkError(verdict)
}

// explainCheck says what to do about what could not be looked at.
func explainCheck(err error) error {
	switch {
	case errors.Is(err, check.ErrNotInstalled):
		return err // it says so itself
	case errors.Is(err, check.ErrChannel):
		return fmt.Errorf("%w: check that the simulator runs there and channel-url is right", err)
	default:
		return explainPostgres(explainKafka(err))
	}
}

func checkRules(c *config.Config) check.Rules {
	rules := check.Rules{Namespaces: c.Callers.Namespaces}
	for caller := range c.Callers.Namespaces {
		rules.Callers = append(rules.Callers, caller)
	}
	return rules
}

// checkError names what was broken.
func checkError(v check.Verdict) error {
	if v.Holds() {
		return nil
	}
	var broken []string
	for _, h := range v.Guarantees {
		if h.Violations > 0 {
			broken = append(broken, h.Guarantee+" ("+h.Name+")")
		}
	}
	return errors.New("broken: " + strings.Join(broken, ", "))
}

func checkTable(t *table, v check.Verdict) {
	c := v.Counts
	t.row("commands", c.Records, fmt.Sprintf("%d payments", c.Keys))
	t.row("charges", c.Charges, fmt.Sprintf("%d keys charged twice, %d submits arrived, %d queries", c.DoubleCharged, c.ChannelAsked, c.Queries))
	t.row("ended", c.Succeeded+c.Declined+c.Rejected,
		fmt.Sprintf("%d succeeded, %d declined, %d rejected; %d in review, %d without an end", c.Succeeded, c.Declined, c.Rejected, c.InReview, c.Unended))
	t.row("")
	guaranteeRows(t, v)
	t.row("violations", len(v.Violations), "")
}

// guaranteeRows list the guarantees, and the first violations.
func guaranteeRows(t *table, v check.Verdict) {
	for _, h := range v.Guarantees {
		mark := "✓"
		if h.Violations > 0 {
			mark = "✗"
		}
		t.row(mark+" "+h.Guarantee+" "+h.Name, fmt.Sprintf("%6d", h.Checked), h.Of)
	}
	t.row("")
	if len(v.Violations) > 0 {
		t.row("BROKEN")
	}
	for _, x := range v.Violations[:min(len(v.Violations), fewCommands)] {
		t.row("✗ "+x.Guarantee, "", strings.TrimSpace(x.Key+" "+x.Text))
	}
	if more := len(v.Violations) - fewCommands; more > 0 {
		t.row(fmt.Sprintf("  and %d more, see -o json", more))
	}
}
