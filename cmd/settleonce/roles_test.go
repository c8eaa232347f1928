package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/settleonce/settleonce/channel/sim"
	"github.com/settleonce/settleonce/internal/pgtest"
)

// services are what roles need: a broker, an empty database that is not
// durable, and a provider.
type services struct {
	env []string
	sim *sim.Server
}

func startServices(t *testing.T, brokers string) services {
	t.Helper()
	provider, err := sim.NewServer("", sim.DefaultBehaviour())
	require.NoError(t, err)
	server := httptest.NewServer(provider)
	t.Cleanup(func() {
		server.Close()
		require.NoError(t, provider.Close())
	})
	return services{sim: provider, env: []string{
		"SETTLEONCE_KAFKA_BROKERS=" + brokers, "SETTLEONCE_TOPIC_PREFIX=t" + uuid.NewString()[:8] + ".", "SETTLEONCE_POSTGRES_DSN=" + pgtest.DSN(t, nil),
		"SETTLEONCE_REPLICATION=1", "SETTLEONCE_CHANNEL_URL=" + server.URL, "SETTLEONCE_ADMIN_ADDRESS=127.0.0.1:0",
		"SETTLEONCE_CALLERS=shop=shop", "SETTLEONCE_SWEEP_INTERVAL=50ms",
		// Calls outlast a pause of the machine: what was sent is answered in time.
		"SETTLEONCE_LEASE=50s", "SETTLEONCE_CHANNEL_SUBMIT_TIMEOUT=25s", "SETTLEONCE_CHANNEL_QUERY_TIMEOUT=25s",
	}}
}

func embeddedKafka(t *testing.T) string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

// What fails for every topic is said once, after what to do.
func TestTopicsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	for fault, want := range map[*kerr.Error]string{
		kerr.InvalidReplicationFactor: "settleonce: start 3 brokers, or set replication to what there are (1 for development): ",
		kerr.TopicAuthorizationFailed: "settleonce: grant this user Create on the topics, or run it as one who has it: ",
	} {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		require.NoError(t, err)
		t.Cleanup(cluster.Close)
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: fault, Count: -1})
		r := runCommand(t, nil, "topics", "ensure", "--kafka-brokers", cluster.ListenAddrs()[0])
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.stderr, want+"topics that were not created: payment.commands, payment.replies, ")
		require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	}
}

// apacheKafka is a real broker, which `make test` starts where it can.
func apacheKafka(t *testing.T) string {
	t.Helper()
	brokers := os.Getenv("SETTLEONCE_TEST_KAFKA")
	if brokers == "" {
		t.Skip("SETTLEONCE_TEST_KAFKA names no Apache Kafka")
	}
	return brokers
}

// TestStartIsRefused walks through what a new installation forgets, one after
// the other; each sentence says what to do next.
func TestStartIsRefused(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	refused := func(want string, env ...string) {
		t.Helper()
		for _, role := range []string{"consumer", "outbox", "reconciler", "all"} {
			r := runCommand(t, append(env, s.env...), role)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.stderr, want)
		}
	}
	refused("run `settleonce migrate` first")
	requireOK(t, runCommand(t, s.env, "migrate"))
	refused("the database may lose committed claims, and a lost claim is a second charge")
	const unsafe = "SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true"
	refused("payment.events does not exist: run `settleonce topics ensure`", unsafe)
	requireOK(t, runCommand(t, s.env, "topics", "ensure"))
	refused("keeps records longer than the window of 200h:", unsafe, "SETTLEONCE_WINDOW=200h", "SETTLEONCE_COMMANDS_RETENTION=200h")

	r := runCommand(t, s.env, "consumer", "--postgres-dsn", "postgres://nobody@127.0.0.1:1/x?sslmode=disable")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "check that Postgres runs there and postgres-dsn is right")
	r = runCommand(t, s.env, "consumer", "--kafka-brokers", "127.0.0.1:1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "check that Kafka runs there and kafka-brokers is right")
}

var adminLine = regexp.MustCompile(`"address":"([^"]+)"`)

// adminURL waits until a role is at work.
func adminURL(t *testing.T, r *running, env []string) string {
	t.Helper()
	var address string
	require.Eventually(t, func() bool {
		if found := adminLine.FindStringSubmatch(r.stderr.String()); found != nil {
			address = found[1]
		}
		return address != "" && runCommand(t, env, "health", "--ready", "--admin-address", address).code == 0
	}, patience, 50*time.Millisecond, r.stderr)
	return "http://" + address
}

// patience is for what must come; nothing is timed by it.
const patience = 2 * time.Minute

// scraped waits until the metrics hold all of these: they are counted beside what they count.
func scraped(t *testing.T, url string, parts ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		metrics := scrape(t, url)
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(metrics, part) })
	}, patience, 100*time.Millisecond, parts)
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", http.NoBody)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// Every role on its own, as in the compose file: commands go in, one charge per
// key comes out, and a lost answer is asked about.
func TestRolesApart(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		testRolesApart(t, startServices(t, embeddedKafka(t)))
	})
	t.Run("apache", func(t *testing.T) {
		t.Parallel()
		testRolesApart(t, startServices(t, apacheKafka(t)))
	})
}

func testRolesApart(t *testing.T, s services) {
	t.Helper()
	requireOK(t, runCommand(t, s.env, "migrate"))
	requireOK(t, runCommand(t, s.env, "topics", "ensure"))
	requireOK(t, runCommand(t, s.env, "topics", "check"))
	env := append([]string{"SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true"}, s.env...)
	urls := make(map[string]string)
	roles := []string{"consumer", "outbox", "reconciler"}
	for _, name := range roles {
		r := start(t, env, name)
		t.Cleanup(func() { require.Zero(t, r.stop(t), r.stderr) })
		urls[name] = adminURL(t, r, env)
	}
	plain := publishOne(t, env, "--order", "order-1", "--amount", "1999")
	lost := publishOne(t, env, "--order", "order-2", "--amount", "2999", "--metadata", "sim=lost_answer@1")
	foreign := runCommand(t, env, "publish", "--caller", "stranger", "--order", "order-3", "--amount", "100")
	requireOK(t, foreign)
	for _, c := range []publishedCommand{plain, lost} {
		require.Eventually(t, func() bool {
			views := statusOf(t, env, c.Key.String(), "--caller", "shop")
			return len(views) == 1 && views[0]["state"] == "succeeded"
		}, patience, 100*time.Millisecond, c.Order)
	}
	scraped(t, urls["consumer"], `settleonce_dead_letters_total{reason="foreign_caller"} 1`)
	sum := s.sim.Summary()
	require.Equal(t, 2, sum.Charges, "a stranger pays nothing, a lost answer is charged once")
	require.Zero(t, sum.DoubleCharged)

	lag := `payment.commands"}` // of each partition
	scraped(t, urls["consumer"], `settleonce_commands_total{result="fresh"} 2`, lag, `settleonce_transitions_total{state="unknown"} 1`)
	scraped(t, urls["outbox"], `settleonce_relay_shards 16`)
	scraped(t, urls["reconciler"], `settleonce_query_budget_spent_total{channel="sim"} 1`, `settleonce_outbox_parked_messages 0`)
}

// A channel that promises nothing, and an answer that is lost: a person is told,
// and the gauges say so (G3).
func TestReviewIsShown(t *testing.T) {
	t.Parallel()
	s := startServices(t, embeddedKafka(t))
	requireOK(t, runCommand(t, s.env, "migrate"))
	requireOK(t, runCommand(t, s.env, "topics", "ensure"))
	env := append([]string{
		"SETTLEONCE_POSTGRES_ALLOW_UNSAFE_DURABILITY=true", "SETTLEONCE_CHANNEL_IDEMPOTENT_SUBMIT=false",
		"SETTLEONCE_CHANNEL_KEY_MEMORY=undocumented", "SETTLEONCE_CHANNEL_PINS_FAILURES=false", "SETTLEONCE_CHANNEL_QUERY=false",
		"SETTLEONCE_CHANNEL_VISIBILITY_LAG=undocumented", "SETTLEONCE_CHANNEL_QUERY_REACH=undocumented",
		"SETTLEONCE_CHANNEL_NOT_FOUND_IS_PROOF=false",
	}, s.env...)
	r := start(t, env, "all")
	t.Cleanup(func() { require.Zero(t, r.stop(t), r.stderr) })
	url := adminURL(t, r, env)
	c := publishOne(t, env, "--order", "order-1", "--amount", "1999", "--metadata", "sim=lost_answer@1")
	scraped(t, url, `settleonce_unresolved_payments{age="0-1m",state="review"} 1`)
	scraped(t, url, `settleonce_review_items{kind="unresolved"} 1`, `settleonce_unresolved_oldest_age_seconds{state="review"}`,
		`settleonce_query_budget_available{channel="sim"}`, `settleonce_postgres_connections_limit 24`)
	table := runCommand(t, env, "status", c.Key.String(), "--caller", "shop")
	requireOK(t, table)
	require.Contains(t, table.stdout, "next check")
	require.Contains(t, table.stdout, "19.99 EUR")
	require.Equal(t, 1, s.sim.Summary().Charges)
}

// A role that ends by itself must take the process with it.
func TestStages(t *testing.T) {
	t.Parallel()
	failed := io.ErrUnexpectedEOF
	var order []string
	waits := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			order = append(order, name)
			return ctx.Err()
		}
	}
	fails := func(context.Context) error { return failed }
	log := zerolog.Nop()
	err := runStages(t.Context(), []role{{name: "a", run: fails}, {name: "z", run: waits("z"), last: true}}, log)
	require.ErrorIs(t, err, failed)
	err = runStages(t.Context(), []role{{name: "a", run: waits("a")}, {name: "z", run: fails, last: true}}, log)
	require.ErrorIs(t, err, failed)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	order = nil
	require.NoError(t, runStages(ctx, []role{{name: "z", run: waits("z"), last: true}, {name: "a", run: waits("a")}}, log))
	require.Equal(t, []string{"a", "z"}, order, "what publishes ends after what writes")
}
