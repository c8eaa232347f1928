package demo

import (
	"context"
	"fmt"
	"slices"
)

// openEdge starts the gateways, and has the channels call back; nil where no payment goes over HTTP.
func openEdge(ctx context.Context, cfg *Config, team *crew, who *roster, env []string) (*clients, error) {
	if cfg.EdgeShare == 0 {
		return nil, nil //nolint:nilnil // there is no edge
	}
	f := team.fleet
	var urls []string
	for n := range cfg.Each {
		g, err := f.StartGateway(ctx, n+1, slices.Concat(env, who.edgeEnv())...)
		if err != nil {
			return nil, err
		}
		team.add(RoleGateway, g.Child)
		urls = append(urls, g.URL)
	}
	if cfg.Gateways != nil {
		var err error
		if urls, err = cfg.Gateways(ctx, urls); err != nil {
			return nil, err
		}
	}
	for i, s := range f.Sims() {
		if !cfg.Channels[i].CallsBack {
			continue
		}
		if err := callBack(ctx, s.URL, urls[i%len(urls)]+"/v1/callbacks/"+s.Channel, callbackSecret(s.Channel)); err != nil {
			return nil, fmt.Errorf("channel %s: %w", s.Channel, err)
		}
	}
	return newClients(cfg.Seed, cfg.EdgeShare, urls, who.clientTokens()), nil
}

// callbackSecret is what a channel signs its callbacks with.
func callbackSecret(channel string) string { return "the-callback-secret-of-" + channel }
