package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/settleonce/settleonce/internal/config"
)

// The headings under which `settleonce help` lists the commands.
const (
	sectionStart = "start"
	sectionRoles = "roles"
	sectionTools = "tools"
	// sectionOperators are for the bad night.
	sectionOperators = "operators"
)

// newRoot builds the command line. Nothing happens before it is executed.
func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "settleonce",
		Short: "Settle payment commands at most once, on Kafka and Postgres",
		Example: "  settleonce dev                 everything on this machine, for trying it out\n" +
			"  settleonce publish --help      send a payment command\n" +
			"  settleonce status KEY          what became of it",
		SilenceErrors: true, SilenceUsage: true,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(p.args)
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentFlags().String(config.FileSetting, "", "YAML file of settings (variable SETTLEONCE_CONFIG)")
	root.AddGroup(
		&cobra.Group{ID: sectionStart, Title: "Start here:"},
		&cobra.Group{ID: sectionRoles, Title: "Roles:"},
		&cobra.Group{ID: sectionOperators, Title: "For operators:"},
		&cobra.Group{ID: sectionTools, Title: "Tools:"},
	)
	root.SetHelpCommandGroupID(sectionTools)
	root.SetFlagErrorFunc(explainFlag)
	for _, add := range commands {
		root.AddCommand(add(p))
	}
	root.SetHelpFunc(help)
	root.SetUsageFunc(func(cmd *cobra.Command) error { help(cmd, nil); return nil })
	markUsage(root)
	return root
}

// commands build the sub-commands, in the order of the help.
var commands = []func(p process) *cobra.Command{
	newDev, newDemo, newPublish, newStatus,
	newConsumer, newOutbox, newReconciler, newGateway, newAll, newSim,
	newDoctor, newLag, newReview, newReplay, newDeadLetter, newRecover,
	newMigrate, newTopics, newCallers, newBackfill, newCheck, newBench, newTorture, newDownstream, newConfig, newHealth, newVersion,
}

// knownCommand refuses words that are no sub-command, with the one probably meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			known = append(known, sub.Name())
		}
	}
	return fmt.Errorf("command %q is not known, did you mean %q", args[0], config.Nearest(args[0], known))
}

// markUsage makes every fault that is found before a command runs a fault of usage.
func markUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return asUsage(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// explainFlag names the flag that was probably meant.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return asUsage(fmt.Errorf("%w: see `%s --help`", err, cmd.CommandPath()))
	}
	name := unknown.GetSpecifiedName()
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if _, ok := config.Find(name); ok {
		return asUsage(fmt.Errorf("flag --%s is a setting that %q does not use: leave it out, or see `%s --help`",
			name, cmd.Name(), cmd.CommandPath()))
	}
	return asUsage(fmt.Errorf("flag --%s is not known, did you mean --%s: see `%s --help`",
		name, config.Nearest(name, known), cmd.CommandPath()))
}

// help prints examples first: they are what most people came for.
func help(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	if example := strings.TrimRight(cmd.Example, "\n"); example != "" {
		fmt.Fprintf(out, "Examples:\n%s\n\n", example)
	}
	fmt.Fprintln(out, strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)))
	fmt.Fprintf(out, "\nUsage:\n  %s\n", cmd.UseLine())
	printCommands(out, cmd)
	printFlags(out, "Flags", cmd.Flags(), "")
	for _, group := range config.Groups() {
		printFlags(out, group.Title, cmd.Flags(), group.Group)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nMore about one: %s COMMAND --help\n", cmd.CommandPath())
	}
}

func printCommands(out io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	groups := cmd.Groups()
	if len(groups) == 0 {
		groups = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, g := range groups {
		fmt.Fprintf(out, "\n%s\n", g.Title)
		for _, sub := range cmd.Commands() {
			if sub.GroupID == g.ID && !sub.Hidden {
				fmt.Fprintf(out, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
	}
}

// printFlags prints the flags of one family of settings, or those that are none.
func printFlags(out io.Writer, title string, flags *pflag.FlagSet, group config.Group) {
	family := pflag.NewFlagSet(title, pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		s, ok := config.Find(f.Name)
		if _, setting := f.Value.(*textValue); !setting {
			ok = false
		}
		if (!ok && group == "") || (ok && s.Group == group) {
			family.AddFlag(f)
		}
	})
	if !family.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(out, "\n%s:\n%s", title, family.FlagUsagesWrapped(helpWidth))
}

const helpWidth = 110
