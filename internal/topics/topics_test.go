package topics_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/internal/leaktest"
	"github.com/settleonce/settleonce/internal/topics"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func policy() topics.Policy {
	const day = 24 * time.Hour
	return topics.Policy{
		Prefix: "t.", Partitions: 16, Replication: 3, Window: 14 * day, CommandsRetention: 14 * day, RequeryRetention: day,
		OutputRetention: 30 * day, DeadRetention: 90 * day, MaxCommandBytes: 1 << 20,
	}
}

// made is what a cluster says after Plan was carried out.
func made(p topics.Policy) []kafka.TopicDescription {
	var found []kafka.TopicDescription
	for _, s := range p.Plan() {
		found = append(found, kafka.TopicDescription{
			Name: s.Name, Exists: true, Partitions: s.Partitions, Replication: s.Replication, Config: maps.Clone(s.Config),
		})
	}
	return found
}

func TestPlanPassesItsOwnCheck(t *testing.T) {
	t.Parallel()
	p := policy()
	require.Len(t, p.Plan(), 8)
	require.Equal(t, "t.payment.commands", p.Names()[0])
	require.Empty(t, p.Check(made(p)))
	p.Replication = 1
	require.Empty(t, p.Check(made(p)), "one replica was asked for")
	require.NotContains(t, p.Plan()[0].Config, "min.insync.replicas")
}

func TestFindings(t *testing.T) {
	t.Parallel()
	const commands, events, dead = 0, 2, 7
	set := func(i int, name, value string) func([]kafka.TopicDescription) {
		return func(found []kafka.TopicDescription) { found[i].Config[name] = value }
	}
	cases := []struct {
		name   string
		change func([]kafka.TopicDescription)
		topic  string
		fault  bool
		want   string
	}{
		{"missing", func(f []kafka.TopicDescription) { f[events].Exists = false }, "t.payment.events", true, "run `settleonce topics ensure`"},
		{
			"hidden", func(f []kafka.TopicDescription) {
				f[events] = kafka.TopicDescription{Name: f[events].Name, Hidden: true}
			},
			"t.payment.events", true, "grant it Describe",
		},
		{"partitions", func(f []kafka.TopicDescription) { f[events].Partitions = 8 }, "t.payment.events", true, "has 8 partitions instead of 16"},
		{"compaction", set(commands, "cleanup.policy", "compact,delete"), "t.payment.commands", true, "set cleanup.policy=delete"},
		{"unclean", set(events, "unclean.leader.election.enable", "true"), "t.payment.events", true, "set unclean.leader.election.enable=false"},
		{"insync", set(events, "min.insync.replicas", "1"), "t.payment.events", true, "set it to 2"},
		{"all insync", set(events, "min.insync.replicas", "3"), "t.payment.events", false, "stops everything"},
		{"kept too long", set(commands, "retention.ms", "1209600001"), "t.payment.commands", true, "set retention.ms to 1209600000"},
		{"kept for ever", set(commands, "retention.ms", "-1"), "t.payment.commands", true, "or raise window"},
		{"events kept for ever", set(events, "retention.ms", "-1"), "", false, ""},
		{"small dead letters", set(dead, "max.message.bytes", "1048576"), "t.payment.deadletter", true, "set max.message.bytes to 2097152"},
		{"replicas", func(f []kafka.TopicDescription) { f[events].Replication = 2 }, "t.payment.events", false, "has 2 replicas instead of 3"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := policy()
			found := made(p)
			c.change(found)
			findings := p.Check(found)
			if c.want == "" {
				require.Empty(t, findings)
				return
			}
			require.Len(t, findings, 1)
			require.Equal(t, c.topic, findings[0].Topic)
			require.Contains(t, findings[0].Text, c.want)
			require.Equal(t, c.fault, len(topics.Faults(findings)) == 1)
		})
	}
}

// Every command topic is bound by the window, and fits into the dead letters.
func TestSeveralCommandTopics(t *testing.T) {
	t.Parallel()
	p := policy()
	p.Commands = []string{"t.a", "t.b"}
	require.Len(t, p.Plan(), 9)
	found := made(p)
	require.Empty(t, p.Check(found))
	found[1].Config["retention.ms"] = "-1"
	found[1].Config["max.message.bytes"] = "9000000"
	findings := p.Check(found)
	require.Len(t, findings, 2)
	require.Equal(t, "t.b", findings[0].Topic)
	require.Equal(t, "t.payment.deadletter", findings[1].Topic)
}

// A setting that the broker hides from this user is not a fault.
func TestUntoldSettingsAreNotJudged(t *testing.T) {
	t.Parallel()
	p := policy()
	found := made(p)
	for i := range found {
		found[i].Config = nil
	}
	require.Empty(t, p.Check(found))
}
