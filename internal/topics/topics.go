// Package topics knows which topics settleonce needs and how they must be
// configured, so that no guarantee rests on a setting that nobody looked at.
//
// Plan says what to create, Check compares what is there, and each finding says
// what to do.
package topics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settleonce/settleonce/internal/kafka"
	"github.com/settleonce/settleonce/payment"
)

// Policy is what the topics must agree with.
type Policy struct {
	// Prefix stands before every name.
	Prefix string
	// Commands are the command topics, with their prefix. Defaults to
	// payment.commands under the prefix.
	Commands []string
	// Own maps callers to the endings of their own topics for replies and events.
	Own map[string]string
	// Partitions of every topic, and shards of the outbox.
	Partitions int
	// Replication is the number of copies.
	Replication int
	// Window is the age after which an unknown command is stale (G14).
	Window time.Duration
	// CommandsRetention, RequeryRetention, OutputRetention and DeadRetention are
	// how long the kinds of topics keep records.
	CommandsRetention, RequeryRetention, OutputRetention, DeadRetention time.Duration
	// MaxCommandBytes is max.message.bytes of the command topic.
	MaxCommandBytes int
}

// deadLetterRoom is how much larger a dead letter may be than a command: the
// same bytes, and headers about them.
const deadLetterRoom = 2

// minInsync is how many replicas must have an acknowledged record.
const minInsync = 2

// Plan returns the topics that are to be created, in a fixed order.
func (p Policy) Plan() []kafka.TopicSpec {
	names := payment.NewTopics(p.Prefix).WithOwn(p.Own)
	var specs []kafka.TopicSpec
	for _, name := range p.commands() {
		specs = append(specs, p.spec(name, p.CommandsRetention, p.MaxCommandBytes))
	}
	for _, name := range slices.Concat(names.AllReplies(), names.AllEvents()) {
		specs = append(specs, p.spec(name, p.OutputRetention, 0))
	}
	for _, name := range names.Requery {
		specs = append(specs, p.spec(name, p.RequeryRetention, 0))
	}
	return append(specs,
		p.spec(names.Callbacks, p.OutputRetention, 0),
		p.spec(names.DeadLetter, p.DeadRetention, deadLetterRoom*p.MaxCommandBytes),
	)
}

func (p Policy) commands() []string {
	if len(p.Commands) > 0 {
		return p.Commands
	}
	return []string{payment.NewTopics(p.Prefix).Commands}
}

// Names returns the names of all topics, in the order of Plan.
func (p Policy) Names() []string {
	plan := p.Plan()
	names := make([]string, len(plan))
	for i, s := range plan {
		names[i] = s.Name
	}
	return names
}

func (p Policy) spec(name string, retention time.Duration, maxBytes int) kafka.TopicSpec {
	s := kafka.TopicSpec{
		Name: name, Partitions: p.Partitions, Replication: p.Replication,
		Config: map[string]string{
			"cleanup.policy":                 "delete",
			"retention.ms":                   strconv.FormatInt(retention.Milliseconds(), 10),
			"unclean.leader.election.enable": "false",
		},
	}
	if p.Replication > minInsync {
		s.Config["min.insync.replicas"] = strconv.Itoa(minInsync)
	}
	if maxBytes > 0 {
		s.Config["max.message.bytes"] = strconv.Itoa(maxBytes)
	}
	return s
}

// Severity says whether a finding breaks a guarantee.
type Severity string

// The severities.
const (
	// Fault: a guarantee does not hold; roles refuse to start.
	Fault Severity = "fault"
	// Warning: a precondition is weaker than production needs.
	Warning Severity = "warning"
)

// Finding is one thing about a topic that is not as it must be.
type Finding struct {
	Topic    string   `json:"topic"`
	Severity Severity `json:"severity"`
	// Text says what is wrong and what to do.
	Text string `json:"text"`
}

// Faults are the findings that break a guarantee.
func Faults(findings []Finding) []Finding {
	var faults []Finding
	for _, f := range findings {
		if f.Severity == Fault {
			faults = append(faults, f)
		}
	}
	return faults
}

// Check compares what the cluster says with the policy. A setting that the
// broker does not tell is not judged.
func (p Policy) Check(found []kafka.TopicDescription) []Finding {
	var findings []Finding
	names := payment.NewTopics(p.Prefix)
	for i := range found {
		d := &found[i]
		look := inspection{policy: p, topic: d, findings: &findings}
		if d.Hidden {
			look.fault("is hidden from this user: grant it Describe and DescribeConfigs on the topic")
			continue
		}
		if !d.Exists {
			look.fault("does not exist: run `settleonce topics ensure`")
			continue
		}
		look.partitions()
		look.cleanup()
		look.durability()
		if slices.Contains(p.commands(), d.Name) {
			look.commandRetention()
		}
		if d.Name == names.DeadLetter {
			look.deadLetterSize(found)
		}
	}
	return findings
}

// inspection looks at one topic.
type inspection struct {
	policy   Policy
	topic    *kafka.TopicDescription
	findings *[]Finding
}

func (i inspection) fault(text string) { i.add(Fault, text) }

func (i inspection) add(severity Severity, text string) {
	*i.findings = append(*i.findings, Finding{Topic: i.topic.Name, Severity: severity, Text: text})
}

// number returns a numeric setting, and whether the broker told it.
func (i inspection) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(i.topic.Config[name], 10, 64)
	return n, err == nil
}

// partitions must be the same everywhere: a key's shard in the outbox, and its
// place in every topic, is one function of their number (G10).
func (i inspection) partitions() {
	if i.topic.Partitions != i.policy.Partitions {
		i.fault("has " + strconv.Itoa(i.topic.Partitions) + " partitions instead of " + strconv.Itoa(i.policy.Partitions) +
			": while it is empty, delete it and run `settleonce topics ensure`")
	}
}

// cleanup: compaction drops earlier commands of a key, and the last word on a
// payment must not be dropped for the next key's sake (G5).
func (i inspection) cleanup() {
	if policy := i.topic.Config["cleanup.policy"]; strings.Contains(policy, "compact") {
		i.fault("has cleanup.policy=" + policy + ", which drops records: set cleanup.policy=delete")
	}
}

func (i inspection) durability() {
	if i.topic.Config["unclean.leader.election.enable"] == "true" {
		i.fault("allows unclean leader election, which loses acknowledged records: set unclean.leader.election.enable=false")
	}
	if i.topic.Replication < i.policy.Replication {
		i.add(Warning, "has "+strconv.Itoa(i.topic.Replication)+" replicas instead of "+strconv.Itoa(i.policy.Replication)+
			": add some, so that an acknowledged record survives a broker")
	}
	if i.topic.Replication <= minInsync {
		return // nothing that min.insync.replicas could save
	}
	insync, told := i.number("min.insync.replicas")
	switch {
	case told && insync < minInsync:
		i.fault("has min.insync.replicas=" + strconv.FormatInt(insync, 10) +
			", so that one broker may hold the only copy of an acknowledged record: set it to 2")
	case told && insync >= int64(i.topic.Replication):
		i.add(Warning, "has as many min.insync.replicas as replicas: set 2, or one broker that is down stops everything")
	}
}

// commandRetention: a record must not outlive the memory of its key (G14).
func (i inspection) commandRetention() {
	ms, told := i.number("retention.ms")
	window := i.policy.Window.Milliseconds()
	if told && (ms < 0 || ms > window) {
		i.fault("keeps records longer than the window of " + payment.DurationText(i.policy.Window) + ": set retention.ms to " +
			strconv.FormatInt(window, 10) + " or less, or raise window")
	}
}

// deadLetterSize: the largest command must fit, with its headers (G5).
func (i inspection) deadLetterSize(found []kafka.TopicDescription) {
	room, told := i.number("max.message.bytes")
	if !told {
		return
	}
	for j := range found {
		if !slices.Contains(i.policy.commands(), found[j].Name) {
			continue
		}
		if need, err := strconv.ParseInt(found[j].Config["max.message.bytes"], 10, 64); err == nil && room <= need {
			i.fault("takes messages up to " + strconv.FormatInt(room, 10) + " bytes, as small as a command may be: set max.message.bytes to " +
				strconv.FormatInt(deadLetterRoom*need, 10))
		}
	}
}
