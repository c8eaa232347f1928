package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/channel"
	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/producer/edge"
)

// example is <!-- run: STATUS [TEXT] [with WORLD] -->, then a block of shell. What
// its last curl gets has the status, and TEXT somewhere in header or body.
var example = regexp.MustCompile("(?m)^<!-- run: (\\d{3})(?: (.*?))??(?: with (\\w+))? -->\n```sh\n((?s:.*?))```$")

// docsShell makes curl write what it gets, last, where the test finds it. What a delivery was
// told is in the history once it was consumed, and no answer waits for that.
const docsShell = `set -eu -o pipefail
curl() {
  case "$*" in */history*)
    tries=0
    until command curl -sS "$@" | grep -F -- "$WANT" > /dev/null; do
      tries=$((tries + 1))
      [ "$tries" -lt 1000 ]
      sleep 0.1
    done ;;
  esac
  command curl -sS "$@" | tee "$OUT"
}
`

// Each line of docs/http.md is run as it stands there, with a real curl.
func TestDocsHTTP(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	page, err := os.ReadFile("../../docs/http.md")
	require.NoError(t, err)
	examples := example.FindAllStringSubmatch(string(page), -1)
	require.Len(t, examples, strings.Count(string(page), "```sh\n"), "a block without <!-- run: STATUS -->")

	worlds := shared(t).docsWorlds()
	out := filepath.Join(t.TempDir(), "out")
	var script strings.Builder
	script.WriteString(docsShell)
	for i, e := range examples {
		script.WriteString("EDGE=" + worlds[e[3]][0] + " TOKEN=" + worlds[e[3]][1] + " OUT=" + out + strconv.Itoa(i) + " WANT='" + e[2] + "'\n" + e[4])
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	said, err := shell.CombinedOutput()
	require.NoError(t, err, string(said))
	for i, e := range examples {
		got, err := os.ReadFile(out + strconv.Itoa(i))
		require.NoError(t, err, e[4])
		lines := regexp.MustCompile(`(?m)^HTTP/1.1 (\d{3}) `).FindAllStringSubmatch(string(got), -1)
		require.NotEmpty(t, lines, "%s\n%s", e[4], got)
		require.Equal(t, e[1], lines[len(lines)-1][1], "%s\n%s", e[4], got)
		require.Contains(t, string(got), e[2], e[4])
	}
}

// docsWorlds are the edges that the page's examples talk to, and the credentials
// that they show there.
func (s *stack) docsWorlds() map[string][2]string {
	s.t.Helper()
	nobody := s.toNobody()
	adapter, err := sim.NewAdapter(sim.AdapterConfig{
		BaseURL: "http://" + s.front.addr, Callbacks: channel.CallbackSigning{Secrets: []string{whsec}},
	})
	require.NoError(s.t, err)
	s.t.Cleanup(adapter.Close)
	registry, err := channel.NewRegistry(map[string]channel.Entry{
		"sim": {Adapter: adapter, Capabilities: s.set.behaviour.Capabilities("sim:test")},
	})
	require.NoError(s.t, err)
	callbacks, err := edge.NewCallbackHandler(edge.CallbackConfig{Channels: registry, Store: s.store, Logger: s.logs.logger()})
	require.NoError(s.t, err)
	usual := s.openDoor(func(c *edge.Config) { c.Callbacks = callbacks }).url
	return map[string][2]string{
		"": {usual, tokenShop}, "legacy": {usual, tokenLegacy}, "callbacks": {usual, "none"},
		"limited": {s.openDoor(func(c *edge.Config) { c.Callers = limited{c.Callers} }).url, tokenShop},
		"nokafka": {s.openDoor(func(c *edge.Config) { c.Sender = nobody }).url, tokenShop},
	}
}
