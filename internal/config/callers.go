package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/settleonce/settleonce/internal/callers/signing"
)

// Where the callers stand.
const (
	// CallersFromSettings is the setting callers.
	CallersFromSettings = "settings"
	// CallersFromDatabase is the table that `settleonce callers` changes.
	CallersFromDatabase = "database"
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

// InDatabase reports whether the table of callers is the truth.
func (c *Callers) InDatabase() bool { return c.From == CallersFromDatabase }

// Anyone reports whether every caller is accepted.
func (c *Callers) Anyone() bool { return !c.InDatabase() && len(c.Namespaces) == 0 }

// May reports whether a topic, named with its prefix, may carry a caller's
// commands, by the settings (G12).
func (c *Callers) May(prefix, topic, caller string) bool {
	if _, listed := c.Namespaces[caller]; !listed && len(c.Namespaces) > 0 {
		return false
	}
	return c.Carries(prefix, topic, caller)
}

// Carries reports whether a topic, named with its prefix, is one of a caller's,
// whoever the caller is.
func (c *Callers) Carries(prefix, topic, caller string) bool {
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
	return name, c.Named(name)
}

// Named reports whether a namespace is set to "repay: named" (G15).
func (c *Callers) Named(namespace string) bool { return slices.Contains(c.RepayNamed, namespace) }

// Endings are the endings of callers' own topics, sorted and each once.
func (c *Callers) Endings() []string {
	return slices.Compact(slices.Sorted(maps.Values(c.OwnTopics)))
}

// Signer returns the key with which this process signs; false where it does not.
// It reads the file.
func (c *Callers) Signer() (signing.Key, bool, error) {
	if c.SigningKey == "" {
		return signing.Key{}, false, nil
	}
	text, err := os.ReadFile(c.SigningKeysFile)
	if err != nil {
		return signing.Key{}, false, fmt.Errorf("signing-keys-file: the file cannot be read, check path and rights: %w", err)
	}
	ring, err := signing.Parse(string(text))
	if err != nil {
		return signing.Key{}, false, fmt.Errorf("signing-keys-file: %w", err)
	}
	key, ok := ring[c.SigningKey]
	if !ok {
		return signing.Key{}, false, fmt.Errorf("signing-key: %s holds no key %q: name one that is there, or make it with `settleonce callers signing-key`",
			c.SigningKeysFile, c.SigningKey)
	}
	return key, true, nil
}

// callerRules are the demands on the settings of callers.
var callerRules = []rule{
	{
		func(c *Config) bool {
			return c.Callers.From != CallersFromSettings && c.Callers.From != CallersFromDatabase
		},
		"callers-from is not known: use settings or database",
	},
	{
		func(c *Config) bool { return c.Callers.InDatabase() && len(c.Callers.Namespaces) > 0 },
		"callers is set but callers-from is database: remove callers, and add them with `settleonce callers add`",
	},
	{
		func(c *Config) bool { return len(c.Callers.RequireSignature) > 0 && c.Callers.SigningKeysFile == "" },
		"require-signature needs signing-keys-file: name the file of keys",
	},
	{
		func(c *Config) bool { return c.Callers.SigningKey != "" && c.Callers.SigningKeysFile == "" },
		"signing-key needs signing-keys-file: name the file that holds the key",
	},
}

func (c *Config) validateCallers() error {
	var errs []error
	for _, r := range callerRules {
		if r.broken(c) {
			errs = append(errs, errors.New(r.sentence))
		}
	}
	for _, ending := range c.Callers.Endings() {
		if !topicPrefix(ending) || len(c.Topics.Prefix)+len("payment.replies.")+len(ending) > maxTopicName {
			errs = append(errs, fmt.Errorf("caller-topics: %q cannot end the name of a topic: use letters, digits, dots, dashes and underscores", ending))
		}
	}
	if len(c.Callers.Namespaces) > 0 {
		errs = append(errs, c.validateListed())
	}
	return errors.Join(errs...)
}

// maxTopicName is Kafka's limit.
const maxTopicName = 249

// validateListed: whoever is named elsewhere must be in the list.
func (c *Config) validateListed() error {
	var errs []error
	listed := func(setting, caller string) {
		if _, ok := c.Callers.Namespaces[caller]; !ok {
			errs = append(errs, fmt.Errorf("%s caller %q, which callers does not list: add it there", setting, caller))
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Callers.Topics)) {
		for caller := range strings.SplitSeq(c.Callers.Topics[topic], "+") {
			listed("command-topics: "+topic+" carries", caller)
		}
	}
	for _, caller := range slices.Sorted(maps.Keys(c.Callers.OwnTopics)) {
		listed("caller-topics names", caller)
	}
	for _, caller := range c.Callers.RequireSignature {
		if caller != signing.Everyone {
			listed("require-signature names", caller)
		}
	}
	known := slices.Compact(slices.Sorted(maps.Values(c.Callers.Namespaces)))
	for _, namespace := range c.Callers.RepayNamed {
		if !slices.Contains(known, namespace) {
			errs = append(errs, fmt.Errorf("repay-named: no caller has namespace %q: use one of %s", namespace, strings.Join(known, ", ")))
		}
	}
	return errors.Join(errs...)
}
