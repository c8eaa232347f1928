package config

import (
	"maps"
	"slices"
	"strings"
)

// defaultCommands is the command topic that needs no setting.
const defaultCommands = "payment.commands"

// CommandTopics returns the command topics under a prefix, sorted.
func (c *Callers) CommandTopics(prefix string) []string {
	if len(c.Topics) == 0 {
		return []string{prefix + defaultCommands}
	}
	topics := slices.Sorted(maps.Keys(c.Topics))
	for i := range topics {
		topics[i] = prefix + topics[i]
	}
	return topics
}

// May reports whether a topic, named with its prefix, may carry a caller's
// commands (G12).
func (c *Callers) May(prefix, topic, caller string) bool {
	if _, listed := c.Namespaces[caller]; !listed && len(c.Namespaces) > 0 {
		return false
	}
	if len(c.Topics) == 0 {
		return true
	}
	return slices.Contains(strings.Split(c.Topics[strings.TrimPrefix(topic, prefix)], "+"), caller)
}

// Namespace returns the namespace of a caller's obligations, the caller itself
// unless configured, and whether it is set to "repay: named" (G15).
func (c *Callers) Namespace(caller string) (name string, repayNamed bool) {
	name = caller
	if configured, ok := c.Namespaces[caller]; ok {
		name = configured
	}
	return name, slices.Contains(c.RepayNamed, name)
}
