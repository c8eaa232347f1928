package main

import (
	"encoding/json"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/config"
)

func newSim(p process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "sim", Short: "Run the channel simulator: a provider with a ledger, and faults on demand", GroupID: sectionRoles,
		Example: "  settleonce sim --sim-ledger ledger.jsonl\n" +
			"  settleonce sim --sim-behaviour '{\"latency\":\"50ms\"}'\n" +
			"  curl localhost:8090/ledger/summary\n" +
			"  curl -X PATCH localhost:8090/admin/behaviour -d '{\"rates\":{\"lost_answer\":0.05}}'",
		Long: "A payment provider for trials and tests. It counts the charges per provider key, which is what the\n" +
			"workers are judged by.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSim(cmd, p) },
	}
	offer(cmd, config.GroupSim, config.GroupLog)
	return cmd
}

func runSim(cmd *cobra.Command, p process) error {
	l, err := load(cmd, p)
	if err != nil {
		return err
	}
	log, err := newLogger(p, &l.Config)
	if err != nil {
		return err
	}
	cfg, err := simConfig(&l.Config)
	if err != nil {
		return err
	}
	cfg.Ready = func(_ *sim.Server, addr net.Addr) {
		log.Info().Stringer("address", addr).Msg("channel simulator is listening")
	}
	return sim.Run(cmd.Context(), cfg)
}

func simConfig(c *config.Config) (sim.Config, error) {
	behaviour := sim.DefaultBehaviour()
	if c.Sim.Behaviour != "" {
		if err := json.Unmarshal([]byte(c.Sim.Behaviour), &behaviour); err != nil {
			return sim.Config{}, asUsage(fmt.Errorf("sim-behaviour is not the JSON it takes, compare with GET /admin/behaviour: %w", err))
		}
	}
	if err := behaviour.Validate(); err != nil {
		return sim.Config{}, asUsage(fmt.Errorf("sim-behaviour: %w", err))
	}
	secret, err := c.Sim.CallbackKey()
	if err != nil {
		return sim.Config{}, asUsage(err)
	}
	callbacks := sim.CallbackTarget{URL: c.Sim.CallbackURL, Secret: secret}
	if err := callbacks.Validate(); err != nil {
		return sim.Config{}, asUsage(fmt.Errorf("sim-callback-url: %w", err))
	}
	return sim.Config{Addr: c.Sim.Listen, LedgerPath: c.Sim.Ledger, Behaviour: behaviour, Callbacks: callbacks}, nil
}
