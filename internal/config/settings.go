package config

import (
	"slices"
	"strings"
)

// EnvPrefix starts the name of every environment variable of settleonce.
const EnvPrefix = "SETTLEONCE_"

// FileSetting is the name of the flag (and, with EnvPrefix, of the variable)
// that points to the configuration file. It is not a setting of the file.
const FileSetting = "config"

// Group is a family of settings; commands offer the flags of the groups they use.
type Group string

// The groups, in the order of the documentation.
const (
	GroupKafka      Group = "kafka"
	GroupTopics     Group = "topics"
	GroupPostgres   Group = "postgres"
	GroupCallers    Group = "callers"
	GroupConsumer   Group = "consumer"
	GroupRelay      Group = "relay"
	GroupReconciler Group = "reconciler"
	GroupChannel    Group = "channel"
	GroupGateway    Group = "gateway"
	GroupSim        Group = "sim"
	GroupAdmin      Group = "admin"
	GroupLog        Group = "log"
	GroupTracing    Group = "tracing"
	GroupDev        Group = "dev"
)

// GroupTitle is a group and its heading.
type GroupTitle struct {
	Group Group
	Title string
}

// Groups returns the groups with their headings, in the order of the documentation.
func Groups() []GroupTitle { return slices.Clone(groupTitles) }

var groupTitles = []GroupTitle{
	{GroupKafka, "Kafka"},
	{GroupTopics, "Topics"},
	{GroupPostgres, "Postgres"},
	{GroupCallers, "Callers"},
	{GroupConsumer, "Consumer"},
	{GroupRelay, "Outbox relay"},
	{GroupReconciler, "Reconciler and retention"},
	{GroupChannel, "Channel"},
	{GroupGateway, "HTTP edge"},
	{GroupSim, "Channel simulator"},
	{GroupAdmin, "Health, metrics, profiles"},
	{GroupLog, "Logs"},
	{GroupTracing, "Traces"},
	{GroupDev, "Development stack"},
}

// off is the default of what has to be switched on.
const off = "false"

// Setting is one line of the table.
type Setting struct {
	// Name is the flag's name and the key in the file.
	Name string
	// Group is the family it belongs to.
	Group Group
	// Default is the value without any source, as text.
	Default string
	// Doc says what it means, its unit, and what follows from it.
	Doc string

	// hide turns the value into what may be printed; nil shows it as it is.
	hide   func(string) string
	target func(*Config) any
}

// Env is the name of the setting's environment variable.
func (s Setting) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Type is the name of the setting's type in the documentation.
func (s Setting) Type() string { return typeName(s.target(&Config{})) }

// Secret reports whether the value is never printed as it is.
func (s Setting) Secret() bool { return s.hide != nil }

// Shown returns a value of this setting as it may be printed.
func (s Setting) Shown(value string) string {
	if s.hide == nil || value == "" {
		return value
	}
	return s.hide(value)
}

// Settings returns the table: every setting, in the order of the documentation.
func Settings() []Setting { return slices.Clone(table) }

// GroupSettings returns the settings of some groups, in the order of the table.
func GroupSettings(groups ...Group) []Setting {
	return slices.DeleteFunc(Settings(), func(s Setting) bool { return !slices.Contains(groups, s.Group) })
}

// Find returns the setting of a name.
func Find(name string) (Setting, bool) {
	i := slices.IndexFunc(table, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return table[i], true
}

func names() []string {
	all := make([]string, 0, len(table))
	for _, s := range table {
		all = append(all, s.Name)
	}
	return all
}

// Default returns a Config of defaults only. It is what the table says, so it
// is valid but for what has no default.
func Default() Config {
	var c Config
	for _, s := range table {
		// A test holds that every default parses.
		_ = parse(s.target(&c), s.Default)
	}
	return c
}
