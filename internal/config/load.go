package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Input is where values may come from.
type Input struct {
	// Flags are the flags that were given, by setting name.
	Flags map[string]string
	// Env is the environment, as os.Environ returns it.
	Env []string
	// File is the path of the YAML file. Empty: the variable SETTLEONCE_CONFIG,
	// else none.
	File string
	// Used are the names of the settings that matter to the caller; nil: all. The
	// others keep their defaults, so that a fault in them stops nobody who has no
	// use for them.
	Used []string
}

func (in *Input) uses(name string) bool { return in.Used == nil || slices.Contains(in.Used, name) }

// Loaded is the effective configuration and where each value came from.
type Loaded struct {
	Config Config
	// File is the file that was read; empty for none.
	File string

	values  map[string]string
	sources map[string]string
}

// Value is one effective setting, fit to be printed.
type Value struct {
	Name string `json:"name"`
	// Value is masked where it is a secret.
	Value string `json:"value"`
	// Source is "default", "flag", the name of a variable, or file and line.
	Source string `json:"source"`
}

// Load finds the value of every setting, reads the files of secrets, and checks
// the rules. Its error holds one sentence per fault, one line each.
func Load(in Input) (*Loaded, error) {
	l := &Loaded{values: make(map[string]string), sources: make(map[string]string)}
	env, err := environment(in.Env)
	if err != nil {
		return nil, err
	}
	l.File = cmp.Or(in.File, env[EnvPrefix+strings.ToUpper(FileSetting)])
	file, err := readFile(l.File)
	if err != nil {
		return nil, err
	}
	if err := l.fill(&in, env, file); err != nil {
		return nil, err
	}
	if err := l.complete(&in, file); err != nil {
		return nil, err
	}
	if err := errors.Join(l.Config.Validate(), l.Config.validateAcross(&in)); err != nil {
		return nil, err
	}
	return l, nil
}

// Values lists every setting in the order of the table.
func (l *Loaded) Values() []Value {
	values := make([]Value, 0, len(table))
	for _, s := range table {
		values = append(values, Value{Name: s.Name, Value: s.Shown(format(s.target(&l.Config))), Source: l.sources[s.Name]})
	}
	return values
}

// Source tells where a setting's value came from.
func (l *Loaded) Source(name string) string { return l.sources[name] }

func (l *Loaded) fill(in *Input, env map[string]string, file *document) error {
	var errs []error
	for _, s := range table {
		text, source := s.Default, defaultSource
		if in.uses(s.Name) {
			text, source = pick(s, in.Flags, env, file)
		}
		l.sources[s.Name] = source
		if err := parse(s.target(&l.Config), text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %q (from %s) is not valid: %w", s.Name, s.Shown(text), source, err))
		}
	}
	for name := range in.Flags {
		if _, ok := Find(name); !ok {
			errs = append(errs, fmt.Errorf("flag --%s is not known, did you mean --%s", name, Nearest(name, names())))
		}
	}
	return errors.Join(errs...)
}

// defaultSource is the source of a value that nobody set.
const defaultSource = "default"

func pick(s Setting, flags, env map[string]string, file *document) (text, source string) {
	if v, ok := flags[s.Name]; ok {
		return v, "flag"
	}
	if v, ok := env[s.Env()]; ok {
		return v, s.Env()
	}
	if v, ok := file.values[s.Name]; ok {
		return v.text, v.source
	}
	return s.Default, defaultSource
}

// complete adds what does not stand in one setting: secrets in files, and the channels.
func (l *Loaded) complete(in *Input, file *document) error {
	return errors.Join(l.readSecrets(), l.setChannels(in, file))
}

func (l *Loaded) readSecrets() error {
	c := &l.Config
	if c.Kafka.SASLPasswordFile != "" {
		if c.Kafka.SASLPassword != "" {
			return errors.New("kafka-sasl-password and kafka-sasl-password-file are both set: keep one")
		}
		if err := readSecret("kafka-sasl-password-file", c.Kafka.SASLPasswordFile, &c.Kafka.SASLPassword); err != nil {
			return err
		}
	}
	if c.Postgres.DSNFile != "" {
		if l.sources["postgres-dsn"] != defaultSource {
			return errors.New("postgres-dsn and postgres-dsn-file are both set: keep one")
		}
		return readSecret("postgres-dsn-file", c.Postgres.DSNFile, &c.Postgres.DSN)
	}
	return nil
}

func readSecret(name, path string, target *string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s: the file cannot be read, check path and rights: %w", name, err)
	}
	*target = strings.TrimRight(string(raw), "\r\n")
	if *target == "" {
		return fmt.Errorf("%s: %s is empty, write the secret into it", name, path)
	}
	return nil
}

// setChannels takes the file's section, or the one channel of the settings.
func (l *Loaded) setChannels(in *Input, file *document) error {
	if file.section == nil || !in.uses("channel-url") {
		l.dropPromises()
		l.Config.Channels = map[string]Channel{l.Config.Channel.Name: l.Config.Channel.withDefaults()}
		return nil
	}
	for _, s := range GroupSettings(GroupChannel) {
		if l.sources[s.Name] != defaultSource {
			return fmt.Errorf("%s (from %s) and the section channels of %s are both set: describe channels in one place",
				s.Name, l.sources[s.Name], l.File)
		}
	}
	var err error
	l.Config.Channels, err = readChannels(l.File, file.section)
	return err
}

// dropPromises takes back what a channel promises by default only together with
// something that was switched off: one setting is enough to say that a provider
// has no lookup.
func (l *Loaded) dropPromises() {
	c := &l.Config.Channel.Capabilities
	byDefault := func(name string) bool { return l.sources[name] == defaultSource }
	if !c.IdempotentSubmit && byDefault("channel-key-memory") {
		c.KeyMemory = 0
	}
	if !c.IdempotentSubmit && byDefault("channel-pins-failures") {
		c.PinsFailures = false
	}
	if !c.Query && byDefault("channel-visibility-lag") {
		c.VisibilityLag = 0
	}
	if !c.Query && byDefault("channel-query-reach") {
		c.QueryReach = 0
	}
	if byDefault("channel-not-found-is-proof") && (!c.Query || c.VisibilityLag == 0 || c.LongestExecution == 0) {
		c.NotFoundIsProof = false
	}
}

// withDefaults derives the identity that was left open. It changes with the
// endpoint, which is the safe way round: payments claimed at the old one wait.
func (c Channel) withDefaults() Channel {
	if c.Capabilities.Identity == "" && c.URL != "" {
		c.Capabilities.Identity = c.Type + " " + c.URL
	}
	c.Capabilities = c.Capabilities.WithDefaults()
	return c
}

// serviceLink matches what Kubernetes puts into the environment for a service
// named settleonce: those variables are not ours to refuse.
var serviceLink = regexp.MustCompile(`^SETTLEONCE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// testPrefix starts the variables of our own tests, which their child processes
// inherit.
const testPrefix = EnvPrefix + "TEST_"

func environment(environ []string) (map[string]string, error) {
	known := make([]string, 0, len(table)+1)
	for _, s := range table {
		known = append(known, s.Env())
	}
	known = append(known, EnvPrefix+strings.ToUpper(FileSetting))
	env := make(map[string]string)
	var errs []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case !strings.HasPrefix(name, EnvPrefix), strings.HasPrefix(name, testPrefix):
		case slices.Contains(known, name):
			env[name] = value
		case !serviceLink.MatchString(name):
			errs = append(errs, fmt.Errorf("variable %s is not known, did you mean %s", name, Nearest(name, known)))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return env, errors.Join(errs...)
}
