package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/settleonce/settleonce/internal/childproc"
)

// Channel is one of several channels of a fleet.
type Channel struct {
	// Name is what commands call it.
	Name string
	// Behaviour is its simulator's, as JSON. Empty is a provider at its best.
	Behaviour string
	// Promises are what workers are told of it, by the keys that a channel has in the
	// configuration file. What is left out, nobody documented.
	Promises map[string]string
}

// Sim is the simulator of one channel.
type Sim struct {
	*Child

	// Channel is the name of its channel, URL its address.
	Channel, URL string
}

// onlyChannel is the name of the channel of a fleet that has one.
const onlyChannel = "sim"

// Sims are the simulators, in the order of the configuration.
func (f *Fleet) Sims() []*Sim { return f.sims }

// SimURL is the address of the first simulator.
func (f *Fleet) SimURL() string { return f.sims[0].URL }

func (f *Fleet) startSims(ctx context.Context) error {
	if len(f.cfg.Channels) == 0 {
		return f.startSim(ctx, Channel{Name: onlyChannel, Behaviour: f.cfg.SimBehaviour}, "sim", "ledger")
	}
	for _, c := range f.cfg.Channels {
		if err := f.startSim(ctx, c, "sim-"+c.Name, "ledger-"+c.Name); err != nil {
			return err
		}
	}
	return f.DescribeChannels(nil)
}

func (f *Fleet) startSim(ctx context.Context, c Channel, name, ledger string) error {
	f.cfg.Say("starting the channel simulator " + c.Name)
	port, err := childproc.FreePort(ctx)
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	url := "http://" + address
	s := &Sim{Channel: c.Name, URL: url, Child: &Child{
		Name: name, Admin: address, fleet: f, args: []string{"sim"}, ready: url + "/healthz",
		env: []string{
			"SETTLEONCE_SIM_LISTEN=" + address, "SETTLEONCE_SIM_LEDGER=" + filepath.Join(f.cfg.Dir, ledger), "SETTLEONCE_SIM_BEHAVIOUR=" + c.Behaviour,
		},
	}}
	f.sims = append(f.sims, s)
	return f.launch(ctx, s.Child)
}

// DescribeChannels writes the file that tells workers of several channels. A name
// in urls is reached there instead of at its simulator, for instance through a
// proxy. Workers read it when they start.
func (f *Fleet) DescribeChannels(urls map[string]string) error {
	section := map[string]map[string]string{}
	for i, c := range f.cfg.Channels {
		url, ok := urls[c.Name]
		if !ok {
			url = f.sims[i].URL
		}
		section[c.Name] = map[string]string{"type": "sim", "url": url, "identity": "sim fleet " + c.Name}
		maps.Copy(section[c.Name], c.Promises)
	}
	text, err := yaml.Marshal(map[string]any{"channels": section})
	if err != nil {
		return fmt.Errorf("describe the channels: %w", err)
	}
	if err := os.WriteFile(f.channelsFile(), text, 0o600); err != nil {
		return fmt.Errorf("describe the channels: %w", err)
	}
	return nil
}

func (f *Fleet) channelsFile() string { return filepath.Join(f.cfg.Dir, "channels.yaml") }

// channelEnv are the settings that tell a worker of the channels.
func (f *Fleet) channelEnv() []string {
	if len(f.cfg.Channels) > 0 {
		return []string{"SETTLEONCE_CONFIG=" + f.channelsFile()}
	}
	return []string{"SETTLEONCE_CHANNEL_URL=" + f.SimURL(), "SETTLEONCE_CHANNEL_IDENTITY=sim fleet"}
}
