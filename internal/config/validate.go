package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/settleonce/settleonce/payment"
)

// rule is one demand: broken says when it does not hold, and the sentence says
// what to change.
type rule struct {
	broken   func(c *Config) bool
	sentence string
}

// rules are the demands that need no more than the settings themselves.
var rules = slices.Concat(connectionRules, topicRules, roleRules, gatewayRules, tracingRules)

var connectionRules = []rule{
	{
		func(c *Config) bool { return len(c.Kafka.Brokers) == 0 },
		"kafka-brokers is empty: name at least one broker as host:port",
	},
	{
		func(c *Config) bool { return !slices.Contains(mechanisms, c.Kafka.SASLMechanism) },
		"kafka-sasl-mechanism is not known: use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or leave it empty",
	},
	{
		func(c *Config) bool { return c.Kafka.SASLMechanism != "" && c.Kafka.SASLUsername == "" },
		"kafka-sasl-mechanism needs kafka-sasl-username: set it",
	},
	{
		func(c *Config) bool { return c.Kafka.SASLMechanism != "" && c.Kafka.SASLPassword == "" },
		"kafka-sasl-mechanism needs a password: set kafka-sasl-password-file",
	},
	{func(c *Config) bool {
		return c.Kafka.SASLMechanism == "" && (c.Kafka.SASLUsername != "" || c.Kafka.SASLPassword != "")
	}, "kafka-sasl-username or -password is set without kafka-sasl-mechanism: set the mechanism that the brokers offer"},
	{
		func(c *Config) bool { return (c.Kafka.TLSCert == "") != (c.Kafka.TLSKey == "") },
		"kafka-tls-cert and kafka-tls-key belong together: set both or none",
	},
	{func(c *Config) bool {
		return !c.Kafka.TLS && (c.Kafka.TLSCA != "" || c.Kafka.TLSCert != "" || c.Kafka.TLSServerName != "")
	}, "kafka-tls-ca, -cert or -server-name is set but kafka-tls is off: set kafka-tls to true"},
	{
		func(c *Config) bool { return c.Postgres.DSN == "" },
		"postgres-dsn is empty: set it, like postgres://settleonce@db:5432/settleonce?sslmode=verify-full",
	},
	{
		func(c *Config) bool { return c.Postgres.DSN != "" && !isDSN(c.Postgres.DSN) },
		"postgres-dsn is neither a postgres:// address nor key=value pairs: write it like postgres://settleonce@db:5432/settleonce",
	},
	{
		func(c *Config) bool { return !slices.Contains(sslModes, c.Postgres.SSLMode) },
		"postgres-sslmode is not known: use verify-full, verify-ca, require, prefer, allow or disable",
	},
	{
		func(c *Config) bool { return (c.Postgres.TLSCert == "") != (c.Postgres.TLSKey == "") },
		"postgres-tls-cert and postgres-tls-key belong together: set both or none",
	},
	{
		func(c *Config) bool {
			return c.Postgres.SSLMode == "disable" && (c.Postgres.TLSCA != "" || c.Postgres.TLSCert != "")
		},
		"postgres-sslmode is disable but certificates are set: use verify-full",
	},
	{
		func(c *Config) bool { return c.Postgres.StatementTimeout < time.Second },
		"postgres-statement-timeout is below 1s: use 5s to 60s, or healthy batches are cut off",
	},
	{
		func(c *Config) bool { return c.Admin.Address != "" && !isAddress(c.Admin.Address) },
		"admin-address is not host:port: write it like :9464 or 127.0.0.1:9464",
	},
	{
		func(c *Config) bool { return !isAddress(c.Sim.Listen) },
		"sim-listen is not host:port: write it like :8090 or 127.0.0.1:8090",
	},
	{
		func(c *Config) bool { return !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) },
		"log-level is not known: use debug, info, warn or error",
	},
	{
		func(c *Config) bool { return !slices.Contains([]string{"json", "console"}, c.Log.Format) },
		"log-format is not known: use json or console",
	},
}

var topicRules = []rule{
	{
		func(c *Config) bool { return !topicPrefix(c.Topics.Prefix) },
		"topic-prefix holds a character that Kafka refuses, or is too long: use at most 200 letters, digits, dots, dashes and underscores",
	},
	{
		func(c *Config) bool { return c.Topics.Replication < 1 || c.Topics.Replication > 9 },
		"replication is out of range: use 3 in production, 1 for development",
	},
	{
		func(c *Config) bool { return c.Topics.MaxCommandBytes < 16<<10 || c.Topics.MaxCommandBytes > 16<<20 },
		"max-command-bytes is out of range: use 16384 to 16777216",
	},
	{
		func(c *Config) bool { return c.Topics.CommandsRetention < time.Hour },
		"commands-retention is below 1h: use the longest outage you want to survive, 336h by default",
	},
	{
		func(c *Config) bool { return c.Topics.RequeryRetention < time.Minute },
		"requery-retention is below 1m: use 24h",
	},
	{
		func(c *Config) bool { return c.Topics.OutputRetention < time.Hour },
		"output-retention is below 1h: use the longest time that somebody downstream may be away",
	},
	{
		func(c *Config) bool { return c.Topics.DeadRetention < 24*time.Hour },
		"deadletter-retention is below 24h: use long enough for an operator to look, 2160h by default",
	},
}

var roleRules = []rule{
	{
		func(c *Config) bool { return c.Consumer.Window < time.Hour },
		"window is below 1h: use 336h, or commands that waited for a short outage are refused",
	},
	{
		func(c *Config) bool { return c.Consumer.Skew < 0 || c.Consumer.Skew > time.Hour },
		"skew is out of range: use 5m, at most 1h",
	},
	{
		func(c *Config) bool { return c.Consumer.Batch < 1 || c.Consumer.Batch > 5000 },
		"claim-batch is out of range: use 1 to 5000",
	},
	{
		func(c *Config) bool { return c.Consumer.FinalizeBatch < 1 || c.Consumer.FinalizeBatch > 5000 },
		"finalize-batch is out of range: use 1 to 5000",
	},
	{
		func(c *Config) bool { return c.Consumer.Claimers < 1 || c.Consumer.Finalizers < 1 },
		"claimers or finalizers is below 1: use 1 or more of each",
	},
	{
		func(c *Config) bool {
			return c.Consumer.DrainTimeout <= 0 || c.Consumer.DrainTimeout > c.Consumer.Lease
		},
		"drain-timeout must be above 0 and at most lease: lower drain-timeout or raise lease",
	},
	{
		func(c *Config) bool { return c.Consumer.StallTimeout < 2*c.Consumer.Lease },
		"stall-timeout must be at least twice lease: raise it, or a slow channel looks like a hung worker",
	},
	{
		func(c *Config) bool { return c.Relay.Lease < time.Second },
		"relay-lease is below 1s: use 5s to 30s",
	},
	{
		func(c *Config) bool { return c.Relay.Batch < 1 || c.Relay.Batch > 5000 },
		"relay-batch is out of range: use 1 to 5000",
	},
	{
		func(c *Config) bool { return c.Relay.Poll <= 0 || c.Relay.Poll > c.Relay.Lease/3 },
		"relay-poll must be above 0 and at most a third of relay-lease: lower relay-poll",
	},
	{
		func(c *Config) bool { return c.Reconciler.QueryShare <= 0 || c.Reconciler.QueryShare > 1 },
		"query-share is out of range: use a share above 0 and at most 1, like 0.2",
	},
	{
		func(c *Config) bool { return c.Reconciler.QueryFloor <= 0 },
		"query-floor must be above 0: use 1 to 20, or a quiet channel's unknown payments never resolve",
	},
	{
		func(c *Config) bool { return c.Reconciler.ParkedLimit < time.Minute },
		"parked-limit is below 1m: use 2h, or every short outage rejects payments",
	},
	{
		func(c *Config) bool { return c.Reconciler.ReviewAfter < time.Minute },
		"review-after is below 1m: use 15m, or every slow answer asks a person",
	},
	{
		func(c *Config) bool {
			return c.Reconciler.WatchFirst < time.Second || c.Reconciler.WatchFirst > c.Reconciler.WatchMax
		},
		"watch-first must be at least 1s and at most watch-max: swap or change them",
	},
	{
		func(c *Config) bool {
			return c.Reconciler.SweepEvery < 10*time.Millisecond || c.Reconciler.SweepEvery > time.Minute
		},
		"sweep-interval is out of range: use 250ms, 10ms to 1m",
	},
	{
		func(c *Config) bool { return c.Reconciler.SweepBatch < 1 || c.Reconciler.MaxInFlight < 1 },
		"sweep-batch or query-max-in-flight is below 1: use 200 and 128",
	},
	{
		func(c *Config) bool { return c.Reconciler.UnmatchedAfter < time.Minute },
		"callback-unmatched-after is below 1m: use 4h, or every callback that is a little early asks a person",
	},
	{
		func(c *Config) bool { return c.Reconciler.RetentionEvery < time.Second },
		"retention-interval is below 1s: use 1h",
	},
}

var (
	mechanisms = []string{"", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
	sslModes   = []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
)

// Validate reports every rule that is broken, one sentence each that says what
// to change. Rules between groups are Load's: it knows what is used.
func (c *Config) Validate() error {
	var errs []error
	for _, r := range rules {
		if r.broken(c) {
			errs = append(errs, errors.New(r.sentence))
		}
	}
	for _, b := range c.Kafka.Brokers {
		if host, _, err := net.SplitHostPort(b); err != nil || host == "" {
			errs = append(errs, fmt.Errorf("kafka-brokers: %q is not an address: write it as host:port", b))
		}
	}
	return errors.Join(append(errs, c.validateCallers(), c.validateChannels())...)
}

// validateAcross checks the rules between groups. Who does not use both sides
// sees a default on one, and cannot judge.
func (c *Config) validateAcross(in *Input) error {
	errs := []error{c.validatePool(in)}
	if in.uses("window") && in.uses("commands-retention") && c.Topics.CommandsRetention > c.Consumer.Window {
		errs = append(errs, errors.New("commands-retention is longer than window: raise window or lower commands-retention, "+
			"else a record can outlive its key"))
	}
	if in.uses("lease") && in.uses("channel-submit-timeout") {
		errs = append(errs, c.validateLease())
	}
	return errors.Join(errs...)
}

func (c *Config) validateLease() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		if least := 2 * c.Channels[name].Capabilities.SubmitTimeout; c.Consumer.Lease < least {
			errs = append(errs, fmt.Errorf("channel %s: lease is %s: raise it to at least %s, twice the submit timeout, or lower the submit timeout",
				name, payment.DurationText(c.Consumer.Lease), payment.DurationText(least)))
		}
	}
	return errors.Join(errs...)
}

// validatePool: workers that wait for each other's connections stand still. Who
// asks one question needs one.
func (c *Config) validatePool(in *Input) error {
	least := 1
	if in.uses("relay-lease") || in.uses("sweep-interval") {
		least = 8
	}
	if in.uses("claimers") {
		least += c.Consumer.Claimers + c.Consumer.Finalizers
	}
	if c.Postgres.PoolSize < least {
		return fmt.Errorf("postgres-pool-size is %d: use at least %d; a worker needs claimers, finalizers and 8 more for the relay and the sweep",
			c.Postgres.PoolSize, least)
	}
	return nil
}

func (c *Config) validateChannels() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		for _, err := range channelFaults(c.Channels[name]) {
			errs = append(errs, fmt.Errorf("channel %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func channelFaults(ch Channel) []error {
	var errs []error
	if ch.Name == "" {
		errs = append(errs, errors.New("the name is empty: give it one"))
	}
	if ch.Type != ChannelSim && ch.Type != ChannelInstant {
		errs = append(errs, fmt.Errorf("type %q is not known: use %s", ch.Type, ChannelSim))
	}
	if u, err := url.Parse(ch.URL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		errs = append(errs, errors.New("url is not a web address: write it like http://localhost:8090"))
	}
	if ch.CallbackMaxAge < 0 || ch.CallbackMaxAge > 24*time.Hour {
		errs = append(errs, errors.New("callback-max-age is out of range: use 5m, at most 24h"))
	}
	if err := ch.Capabilities.Validate(); err != nil {
		errs = append(errs, errors.New(settingNames.Replace(err.Error())))
	}
	return errs
}

// settingNames turns the words of a capability record into those of its settings.
var settingNames = strings.NewReplacer(
	"EquivalentIdentities", "equivalent-identities", "Identity", "identity", "IdempotentSubmit", "idempotent-submit",
	"KeyMemory", "key-memory", "PinsFailures", "pins-failures", "QueryTimeout", "query-timeout", "QueryReach", "query-reach",
	"Query", "query", "VisibilityLag", "visibility-lag", "NotFoundIsProof", "not-found-is-proof",
	"LongestExecution", "longest-execution", "MaxInFlight", "max-in-flight", "SubmitTimeout", "submit-timeout",
	"set it to 0", "set it to undocumented", "set them to 0", "set them to undocumented", " or use WithDefaults", "",
	"Forever", "forever", "Immediate", "immediate",
)

func isDSN(dsn string) bool {
	scheme, _, isURL := strings.Cut(dsn, "://")
	if isURL && !strings.Contains(scheme, "=") {
		return scheme == "postgres" || scheme == "postgresql"
	}
	return strings.Contains(dsn, "=")
}

func isAddress(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port != ""
}

func topicPrefix(prefix string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return len(prefix) <= 200 && strings.Trim(prefix, allowed) == ""
}
