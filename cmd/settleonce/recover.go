package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/internal/config"
	"github.com/settleonce/settleonce/internal/store"
)

func newRecover(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "recover", Short: "Acknowledge that the database may have lost commits, and send again without asking first",
		GroupID: sectionOperators,
		Example: "  settleonce recover                                                     what is suspected\n" +
			"  settleonce recover --actor ada --reason 'standby promoted, no loss: INC-42'",
		Long: "After a restore, a failover, or an offset that went back, nothing new is sent before its provider was\n" +
			"asked; where it cannot be asked, a person is. That lasts until an operator has made sure what was lost\n" +
			"and acknowledges it here. Who and why goes into the audit.",
		Args: cobra.NoArgs,
	}
	offerOutput(cmd)
	actor := cmd.Flags().String("actor", "", "who acknowledges")
	reason := cmd.Flags().String("reason", "", "what happened, and why it is safe to go on")
	offer(cmd, config.GroupPostgres)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return recoverCommits(cmd, p, *actor, *reason) }
	return cmd
}

// recovery is what -o json prints.
type recovery struct {
	Suspect      string `json:"suspect"`
	Acknowledged bool   `json:"acknowledged"`
}

func recoverCommits(cmd *cobra.Command, p process, actor, reason string) error {
	if (actor == "") != (reason == "") {
		return asUsage(errors.New("--actor and --reason belong together: give both to acknowledge, none to look"))
	}
	var r recovery
	err := withStore(cmd, p, "recover", func(s *store.Store, _ *config.Config) error {
		var err error
		r, err = askRecovery(cmd.Context(), s, actor, reason)
		return err
	})
	if err != nil {
		return err
	}
	next := fmt.Sprintf("make sure what was lost, then: %s --actor NAME --reason TEXT", cmd.CommandPath())
	return show(cmd, r, func(t *table, r recovery) { r.fill(t, next) })
}

// askRecovery looks, or acknowledges where somebody says so.
func askRecovery(ctx context.Context, s *store.Store, actor, reason string) (recovery, error) {
	if actor == "" {
		in, err := s.CheckInstallation(ctx)
		return recovery{Suspect: in.Suspect}, err
	}
	suspect, err := s.Recover(ctx, actor, reason)
	return recovery{Suspect: suspect, Acknowledged: err == nil && suspect != ""}, err
}

func (r recovery) fill(t *table, next string) {
	switch {
	case r.Suspect == "":
		t.row("nothing is suspected")
	case r.Acknowledged:
		t.row("acknowledged", r.Suspect)
	default:
		t.row("suspected", r.Suspect)
		t.row("next", next)
	}
}
