package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/check"
	"github.com/settleonce/settleonce/internal/config"
)

func newCheck(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "Check from outside that every guarantee held: ledger, topics and tables", GroupID: sectionTools,
		Example: "  settleonce check                                   an installation at work\n" +
			"  settleonce check --drained                         nothing is under way: everything must be settled\n" +
			"  settleonce check --kafka-brokers a:9092 --postgres-dsn postgres://… --channel-url http://… -o json",
		Long: "Reads the channel's own ledger, all topics and the tables, and holds them against each other. Nothing is\n" +
			"written, and no worker is asked. It keeps what it needs of each payment in memory, about 3 KB. Ledgers are\n" +
			"those that channel simulators show; what could not be looked at is listed with the reason. Exit code 1 when\n" +
			"something is wrong, or a place could not be read.",
		Args: cobra.NoArgs,
	}
	offerOutput(cmd)
	grace := cmd.Flags().Duration("grace", time.Minute, "how old a command may be without an answer while the installation is at work")
	drained := cmd.Flags().Bool("drained", false, "nothing is under way: what has no end by now never will")
	offer(cmd, config.GroupKafka, config.GroupTopics, config.GroupPostgres, config.GroupCallers, config.GroupConsumer, config.GroupReconciler,
		config.GroupChannel, config.GroupLog)
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
	if err := checkMigrations(cmd.Context(), pool); err != nil {
		return err
	}
	client, err := openKafka(cmd.Context(), &l.Config, log)
	if err != nil {
		return err
	}
	defer client.Close()
	c := &l.Config
	known, err := callerNamespaces(cmd.Context(), pool, c)
	if err != nil {
		return err
	}
	verdict, err := check.Inspect(cmd.Context(), check.Installation{
		Client: client, Database: pool, Topics: topicNames(c), CommandTopics: c.Callers.CommandTopics(c.Topics.Prefix),
		Group: c.Topics.Prefix + "settleonce-consumer", Ledgers: ledgers(c), Grace: grace, Rules: checkRules(c, known),
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
	case errors.Is(err, check.ErrNothing):
		return fmt.Errorf("%w: check topic-prefix and postgres-dsn, or publish a command first", err)
	case errors.Is(err, check.ErrChannel):
		return fmt.Errorf("%w: check that the simulator runs there and channel-url is right", err)
	default:
		return explainPostgres(explainKafka(err))
	}
}

// ledgers are where the channels show theirs: simulators do.
func ledgers(c *config.Config) map[string]string {
	urls := map[string]string{}
	for name, channel := range c.Channels {
		if channel.Type == config.ChannelSim {
			urls[name] = channel.URL
		}
	}
	return urls
}

func checkRules(c *config.Config, known map[string]string) check.Rules {
	rules := check.Rules{
		Namespaces: known, Own: c.Callers.OwnTopics, RepayNamed: c.Callers.RepayNamed, Window: c.Consumer.Window, Skew: c.Consumer.Skew,
		Share: c.Reconciler.QueryShare, Floor: c.Reconciler.QueryFloor, Blind: map[string]string{}, Prompted: map[string]string{},
		Limits: map[string]float64{},
	}
	for caller := range known {
		rules.Callers = append(rules.Callers, caller)
	}
	for name, channel := range c.Channels {
		if limit := channel.Capabilities.RateLimit; limit > 0 {
			rules.Limits[name] = limit
		}
		if channel.Type != config.ChannelSim {
			rules.Blind[name] = "a channel of type " + channel.Type + " shows no ledger"
		}
		if len(channel.CallbackSecrets) > 0 || channel.CallbackSecretFile != "" {
			rules.Prompted[name] = "its callbacks make us ask at once"
		}
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
	t.row("violations", len(v.Violations), "of what was checked")
}

// guaranteeRows list the guarantees, what was not looked at, and the first
// violations.
func guaranteeRows(t *table, v check.Verdict) {
	for _, h := range v.Guarantees {
		mark := "✓"
		if h.Violations > 0 {
			mark = "✗"
		}
		t.row(mark+" "+h.Guarantee+" "+h.Name, fmt.Sprintf("%6d", h.Checked), h.Of)
	}
	if len(v.Unchecked) > 0 {
		t.row("NOT CHECKED")
	}
	for _, u := range v.Unchecked {
		t.row("– "+u.Guarantee, "", u.What+": "+u.Why)
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
