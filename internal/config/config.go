package config

import (
	"time"

	"github.com/settleonce/settleonce/channel"
)

// Config is every setting, with its effective value. The table (Settings) says
// what each one means; a Config comes from Load.
type Config struct {
	Kafka      Kafka
	Topics     Topics
	Postgres   Postgres
	Callers    Callers
	Consumer   Consumer
	Relay      Relay
	Reconciler Reconciler
	Channel    Channel
	Channels   map[string]Channel
	Sim        Sim
	Gateway    Gateway
	Admin      Admin
	Log        Log
	Tracing    Tracing
	Dev        Dev
}

// Kafka says which cluster to talk to and as whom.
type Kafka struct {
	Brokers                []string
	ClientID               string
	TLS                    bool
	TLSCA, TLSCert, TLSKey string
	TLSServerName          string
	SASLMechanism          string
	SASLUsername           string
	SASLPassword           string
	SASLPasswordFile       string
}

// Topics says how the topics are named and made.
type Topics struct {
	Prefix            string
	Replication       int
	CommandsRetention time.Duration
	RequeryRetention  time.Duration
	OutputRetention   time.Duration
	DeadRetention     time.Duration
	MaxCommandBytes   int
}

// Postgres says which database to use and how.
type Postgres struct {
	DSN, DSNFile           string
	PasswordFile           string
	SSLMode                string
	TLSCA, TLSCert, TLSKey string
	PoolSize               int
	StatementTimeout       time.Duration
	AllowUnsafeDurability  bool
}

// Callers says who may publish commands, and which of them pay for the same
// obligations.
type Callers struct {
	// From is CallersFromSettings or CallersFromDatabase.
	From string
	// Namespaces maps a caller to the namespace of its obligations. Empty: every
	// caller is accepted and is its own namespace.
	Namespaces map[string]string
	// Topics maps a command topic, without prefix, to the callers it may carry,
	// joined by "+". Empty: payment.commands carries every caller.
	Topics map[string]string
	// RepayNamed lists the namespaces in which a paid obligation is paid again
	// only by a command that names the payment it follows (G15).
	RepayNamed []string
	// OwnTopics maps a caller to the ending of its own topics for replies and events.
	OwnTopics map[string]string
	// SigningKeysFile holds the keys that sign commands (G12).
	SigningKeysFile string
	// RequireSignature lists the callers that must sign; "*" stands for all.
	RequireSignature []string
	// SigningKey is the id of the key with which this process signs.
	SigningKey string
}

// The types of channels.
const (
	// ChannelSim is the channel simulator, over HTTP.
	ChannelSim = "sim"
	// ChannelInstant settles everything inside the worker's own process, and
	// forgets it with the process: for benchmarks only.
	ChannelInstant = "instant"
)

// Consumer tunes the role that claims commands and calls channels.
type Consumer struct {
	Window, Skew, Lease  time.Duration
	Batch, FinalizeBatch int
	Claimers, Finalizers int
	DrainTimeout         time.Duration
	StallTimeout         time.Duration
	SessionTimeout       time.Duration
	Announce             bool
}

// Relay tunes the role that publishes the outbox.
type Relay struct {
	Lease, Poll time.Duration
	Batch       int
}

// Reconciler tunes the role that finds out what became of unknown payments.
type Reconciler struct {
	QueryShare, QueryFloor  float64
	ParkedLimit             time.Duration
	ReviewAfter             time.Duration
	WatchFirst, WatchMax    time.Duration
	SweepEvery              time.Duration
	SweepBatch, MaxInFlight int
	RetentionEvery          time.Duration
	UnmatchedAfter          time.Duration
	// ReviewSecondPerson asks for two persons to close payments and to open attempts.
	ReviewSecondPerson bool
}

// Channel is one payment provider and what it is known to promise.
type Channel struct {
	// Name is what commands call it.
	Name string
	// Type is the adapter; "sim", or "instant", which only the benchmark has a use for.
	Type string
	// URL is where the provider answers.
	URL string
	// Capabilities drive every policy of the channel.
	Capabilities channel.Capabilities
	// CallbackSecrets, or the lines of CallbackSecretFile, sign its callbacks;
	// see CallbackSigning.
	CallbackSecrets    []string
	CallbackSecretFile string
	// CallbackNames keeps the provider's names of payments that end.
	CallbackNames bool
	// CallbackMaxAge bounds the age of a signature.
	CallbackMaxAge time.Duration
}

// Sim says where the channel simulator listens and keeps its ledger.
type Sim struct {
	Listen, Ledger, Behaviour string
	// CallbackURL is where callbacks go; see CallbackKey for the secret.
	CallbackURL, CallbackSecret, CallbackSecretFile string
}

// Admin says where health, metrics and profiles are served.
type Admin struct {
	Address string
	PProf   bool
}

// Log says what is logged and how.
type Log struct {
	Level, Format string
}

// Dev says where the development stack keeps its data.
type Dev struct {
	DataDir string
}
