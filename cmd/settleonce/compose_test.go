package main

import (
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/config"
)

// The machines of the tests have no Docker, so what the file says is compared
// with the binary, the image's recipe and the scrape configuration.

const (
	composeFile = "../../docker-compose.yml"
	entrypoint  = "/settleonce"
)

func loadCompose(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{composeFile}, cli.WithName("settleonce"))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

// ours are the services that run this binary.
func ours(p *types.Project) []types.ServiceConfig {
	var list []types.ServiceConfig
	for _, s := range p.Services {
		if s.Build != nil {
			list = append(list, s)
		}
	}
	return list
}

func serviceEnv(s *types.ServiceConfig) []string {
	var env []string
	for name, value := range s.Environment {
		if value != nil {
			env = append(env, name+"="+*value)
		}
	}
	return env
}

// requireCommand parses a command line of the binary as cobra would.
func requireCommand(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := newRoot(process{}).Find(args)
	require.NoError(t, err)
	require.True(t, cmd.HasParent(), "%v names no command", args)
	require.NoError(t, cmd.ParseFlags(rest), args)
	require.Empty(t, cmd.Flags().Args(), args)
}

func TestComposeServicesAreThere(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	for _, name := range []string{"kafka", "postgres", "migrate", "topics", "sim", "consumer", "outbox", "reconciler", "gateway", "prometheus"} {
		require.Contains(t, p.Services, name)
	}
	require.Len(t, ours(p), 7)
	for _, s := range p.Services {
		require.NotEmpty(t, s.User, s.Name)
		require.NotContains(t, []string{"root", "0"}, strings.Split(s.User, ":")[0], s.Name)
		require.Regexp(t, `^[a-z/]+:(v?\d+\.\d+[\w.-]*|local)$`, s.Image, "a pinned tag: %s", s.Name)
		require.NotNil(t, s.HealthCheck, s.Name)
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, "%s must be open to this machine only", s.Name)
		}
	}
}

func TestComposeKnowsTheBinary(t *testing.T) {
	t.Parallel()
	for _, s := range ours(loadCompose(t)) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, s.Entrypoint)
			requireCommand(t, s.Command)
			_, err := config.Load(config.Input{Env: serviceEnv(&s)})
			require.NoError(t, err, "every variable is known, every value is valid")
			if s.HealthCheck.Disable {
				require.Contains(t, []string{"migrate", "topics"}, s.Name, "only one-shot services go without")
				return
			}
			require.Equal(t, []string{"CMD", entrypoint}, []string(s.HealthCheck.Test[:2]))
			requireCommand(t, s.HealthCheck.Test[2:])
		})
	}
}

// The probes must ask where something answers.
func TestComposeProbesHitRealEndpoints(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), `ENTRYPOINT ["`+entrypoint+`"]`)
	require.Contains(t, string(dockerfile), "USER 65532:65532")
	require.Contains(t, string(dockerfile), `CMD ["/settleonce", "health"]`)
	for _, name := range []string{"consumer", "outbox", "reconciler"} {
		s := p.Services[name]
		require.Equal(t, []string{"CMD", entrypoint, "health"}, []string(s.HealthCheck.Test), "the admin endpoints of the same container")
		require.Contains(t, []string{"consumer", "outbox", "reconciler"}, s.Command[0])
		require.Equal(t, 2, s.GetScale())
	}
	gateway := p.Services["gateway"]
	require.Equal(t, []string{"CMD", entrypoint, "health"}, []string(gateway.HealthCheck.Test))
	require.Equal(t, 1, gateway.GetScale(), "its port can be published once")
	edge, err := config.Load(config.Input{Env: serviceEnv(&gateway)})
	require.NoError(t, err)
	require.Equal(t, ":"+strconv.Itoa(int(gateway.Ports[0].Target)), edge.Config.Gateway.Listen)
	simulator := p.Services["sim"]
	args := []string(simulator.HealthCheck.Test)
	target, err := url.Parse(args[len(args)-1])
	require.NoError(t, err)
	loaded, err := config.Load(config.Input{Env: serviceEnv(&simulator)})
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(loaded.Config.Sim.Listen)
	require.NoError(t, err)
	require.Equal(t, port, target.Port())
	handler, err := sim.NewServer("", sim.DefaultBehaviour())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, handler.Close()) })
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	requireOK(t, runCommand(t, nil, "health", "--url", server.URL+target.Path))
	channelURL, err := url.Parse(loaded.Config.Channels["sim"].URL)
	require.NoError(t, err)
	require.Equal(t, "sim:"+port, channelURL.Host, "the workers find the simulator")
}

func TestComposeOrder(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	const healthy, done = types.ServiceConditionHealthy, types.ServiceConditionCompletedSuccessfully
	roles := map[string]string{"kafka": healthy, "postgres": healthy, "topics": done, "migrate": done, "sim": healthy}
	want := map[string]map[string]string{
		"migrate": {"postgres": healthy}, "topics": {"kafka": healthy},
		"consumer": roles, "outbox": roles, "reconciler": roles, "gateway": roles,
	}
	for name, conditions := range want {
		got := make(map[string]string)
		for other, d := range p.Services[name].DependsOn {
			got[other] = d.Condition
		}
		require.Equal(t, conditions, got, name)
	}
}

func TestPrometheusScrapesTheRoles(t *testing.T) {
	t.Parallel()
	p := loadCompose(t)
	raw, err := os.ReadFile("../../deploy/prometheus/prometheus.yml")
	require.NoError(t, err)
	var scrape struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			DNS []struct {
				Names []string
				Port  string
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &scrape))
	dns := scrape.ScrapeConfigs[0].DNS[0]
	require.Equal(t, []string{"consumer", "outbox", "reconciler", "gateway"}, dns.Names)
	for _, name := range dns.Names {
		s := p.Services[name]
		loaded, err := config.Load(config.Input{Env: serviceEnv(&s)})
		require.NoError(t, err)
		require.Equal(t, ":"+dns.Port, loaded.Config.Admin.Address)
	}
	require.Equal(t, []string{"alerts.yml"}, scrape.RuleFiles)
}
