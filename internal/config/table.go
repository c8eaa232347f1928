package config

import "slices"

// table is every setting. The documentation, the flags, the variables and the
// keys of the file are all made from it.
var table = slices.Concat(
	kafkaSettings, topicSettings, postgresSettings, callerSettings, consumerSettings, relaySettings,
	reconcilerSettings, channelSettings, gatewaySettings, simSettings, adminSettings, logSettings, tracingSettings, devSettings,
)

var kafkaSettings = []Setting{
	{
		Name: "kafka-brokers", Group: GroupKafka, Default: "localhost:9092",
		Doc:    "Bootstrap addresses, host:port, separated by commas. The rest of the cluster is discovered from any of them.",
		target: func(c *Config) any { return &c.Kafka.Brokers },
	},
	{
		Name: "kafka-client-id", Group: GroupKafka, Default: "settleonce",
		Doc:    "Name in the broker's logs and quotas.",
		target: func(c *Config) any { return &c.Kafka.ClientID },
	},
	{
		Name: "kafka-tls", Group: GroupKafka, Default: off,
		Doc:    "Encrypt every connection to the brokers. Certificates are always checked; there is no setting that skips it.",
		target: func(c *Config) any { return &c.Kafka.TLS },
	},
	{
		Name: "kafka-tls-ca", Group: GroupKafka,
		Doc:    "PEM file of the authorities that may sign the brokers' certificates. Empty: those of the system.",
		target: func(c *Config) any { return &c.Kafka.TLSCA },
	},
	{
		Name: "kafka-tls-cert", Group: GroupKafka,
		Doc:    "PEM file of the client certificate, where brokers ask for one. Needs kafka-tls-key.",
		target: func(c *Config) any { return &c.Kafka.TLSCert },
	},
	{
		Name: "kafka-tls-key", Group: GroupKafka,
		Doc:    "PEM file of the client certificate's key.",
		target: func(c *Config) any { return &c.Kafka.TLSKey },
	},
	{
		Name: "kafka-tls-server-name", Group: GroupKafka,
		Doc:    "Name that the brokers' certificates must carry. Empty: the host part of each broker's address.",
		target: func(c *Config) any { return &c.Kafka.TLSServerName },
	},
	{
		Name: "kafka-sasl-mechanism", Group: GroupKafka,
		Doc:    "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Empty: no authentication. PLAIN sends the password itself: use it with kafka-tls only.",
		target: func(c *Config) any { return &c.Kafka.SASLMechanism },
	},
	{
		Name: "kafka-sasl-username", Group: GroupKafka,
		Doc:    "User to authenticate as.",
		target: func(c *Config) any { return &c.Kafka.SASLUsername },
	},
	{
		Name: "kafka-sasl-password", Group: GroupKafka, hide: hideAll,
		Doc:    "Password of the user. Prefer the file: flags can be read by every user of the machine.",
		target: func(c *Config) any { return &c.Kafka.SASLPassword },
	},
	{
		Name: "kafka-sasl-password-file", Group: GroupKafka,
		Doc:    "File that holds the password; the end of line is cut off. Instead of kafka-sasl-password.",
		target: func(c *Config) any { return &c.Kafka.SASLPasswordFile },
	},
}

var topicSettings = []Setting{
	{
		Name: "topic-prefix", Group: GroupTopics,
		Doc: "Put before every topic and consumer group name, so that several installations share a cluster. " +
			"Two installations with one prefix would answer each other's commands.",
		target: func(c *Config) any { return &c.Topics.Prefix },
	},
	{
		Name: "replication", Group: GroupTopics, Default: "3",
		Doc: "Copies of every partition that `topics ensure` asks for. From 3 on it sets min.insync.replicas=2, so that an " +
			"acknowledged record survives one broker. Below 3 is for development.",
		target: func(c *Config) any { return &c.Topics.Replication },
	},
	{
		Name: "commands-retention", Group: GroupTopics, Default: "336h",
		Doc: "How long the command topic keeps records. At most the window, else a command could come back after its key was " +
			"forgotten; at least the longest outage you want to survive.",
		target: func(c *Config) any { return &c.Topics.CommandsRetention },
	},
	{
		Name: "requery-retention", Group: GroupTopics, Default: "24h",
		Doc:    "How long the delay topics keep records. They only wake up; the truth is in the database.",
		target: func(c *Config) any { return &c.Topics.RequeryRetention },
	},
	{
		Name: "output-retention", Group: GroupTopics, Default: "720h",
		Doc:    "How long events, replies and callbacks are kept: the longest time that somebody downstream may be away.",
		target: func(c *Config) any { return &c.Topics.OutputRetention },
	},
	{
		Name: "deadletter-retention", Group: GroupTopics, Default: "2160h",
		Doc:    "How long dead letters are kept for an operator to look at.",
		target: func(c *Config) any { return &c.Topics.DeadRetention },
	},
	{
		Name: "max-command-bytes", Group: GroupTopics, Default: "1048576",
		Doc: "max.message.bytes of the command topic. The dead-letter topic gets twice as much, so that the largest command and its " +
			"headers still fit.",
		target: func(c *Config) any { return &c.Topics.MaxCommandBytes },
	},
}

var postgresSettings = []Setting{
	{
		Name: "postgres-dsn", Group: GroupPostgres, hide: hideDSN,
		Default: "postgres://settleonce@localhost:5432/settleonce",
		Doc:     "Where the database is: a URL or key=value pairs, as libpq takes them.",
		target:  func(c *Config) any { return &c.Postgres.DSN },
	},
	{
		Name: "postgres-dsn-file", Group: GroupPostgres,
		Doc:    "File that holds the DSN. Instead of postgres-dsn.",
		target: func(c *Config) any { return &c.Postgres.DSNFile },
	},
	{
		Name: "postgres-password-file", Group: GroupPostgres,
		Doc:    "File that holds the password; it replaces one in the DSN.",
		target: func(c *Config) any { return &c.Postgres.PasswordFile },
	},
	{
		Name: "postgres-sslmode", Group: GroupPostgres,
		Doc: "sslmode of the connection: verify-full in production; disable only on one machine. Empty: what the DSN says, " +
			"else libpq's prefer, which a machine in the middle can talk down.",
		target: func(c *Config) any { return &c.Postgres.SSLMode },
	},
	{
		Name: "postgres-tls-ca", Group: GroupPostgres,
		Doc:    "PEM file of the authorities that may sign the server's certificate (sslrootcert).",
		target: func(c *Config) any { return &c.Postgres.TLSCA },
	},
	{
		Name: "postgres-tls-cert", Group: GroupPostgres,
		Doc:    "PEM file of the client certificate (sslcert). Needs postgres-tls-key.",
		target: func(c *Config) any { return &c.Postgres.TLSCert },
	},
	{
		Name: "postgres-tls-key", Group: GroupPostgres,
		Doc:    "PEM file of the client certificate's key (sslkey).",
		target: func(c *Config) any { return &c.Postgres.TLSKey },
	},
	{
		Name: "postgres-pool-size", Group: GroupPostgres, Default: "24",
		Doc: "Connections of one process. All processes together must stay below the server's max_connections, with room for " +
			"operators. Claimers, finalizers and the relay each use one while they work.",
		target: func(c *Config) any { return &c.Postgres.PoolSize },
	},
	{
		Name: "postgres-statement-timeout", Group: GroupPostgres, Default: "15s",
		Doc:    "The server ends a statement that takes longer. It bounds how long a stuck database holds up a drain.",
		target: func(c *Config) any { return &c.Postgres.StatementTimeout },
	},
	{
		Name: "postgres-allow-unsafe-durability", Group: GroupPostgres, Default: off,
		Doc: "Start although fsync, synchronous_commit or full_page_writes is off. Committed payments can then be lost in a " +
			"crash, and a lost claim is a second charge. Never in production.",
		target: func(c *Config) any { return &c.Postgres.AllowUnsafeDurability },
	},
}
