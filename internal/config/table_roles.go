package config

var consumerSettings = []Setting{
	{
		Name: "window", Group: GroupConsumer, Default: "336h",
		Doc: "Commands that are older when they are first seen are rejected as stale, never charged. At least the retention of the " +
			"command topic; a key is kept for the window after its end, so longer costs disk.",
		target: func(c *Config) any { return &c.Consumer.Window },
	},
	{
		Name: "skew", Group: GroupConsumer, Default: "5m",
		Doc:    "How far a command's issuedAt may lie in the future of the database's clock.",
		target: func(c *Config) any { return &c.Consumer.Skew },
	},
	{
		Name: "lease", Group: GroupConsumer, Default: "30s",
		Doc: "How long a worker may act on a payment before others look at it. At least twice the channel's submit timeout. " +
			"Longer: a dead worker's payments wait longer.",
		target: func(c *Config) any { return &c.Consumer.Lease },
	},
	{
		Name: "claim-batch", Group: GroupConsumer, Default: "256",
		Doc:    "Commands claimed in one transaction, at most. Batches form under load only; they cost no latency without.",
		target: func(c *Config) any { return &c.Consumer.Batch },
	},
	{
		Name: "claimers", Group: GroupConsumer, Default: "3",
		Doc:    "Claim transactions at once, per process.",
		target: func(c *Config) any { return &c.Consumer.Claimers },
	},
	{
		Name: "finalizers", Group: GroupConsumer, Default: "3",
		Doc:    "Transactions that store outcomes at once, per process.",
		target: func(c *Config) any { return &c.Consumer.Finalizers },
	},
	{
		Name: "finalize-batch", Group: GroupConsumer, Default: "256",
		Doc:    "Outcomes stored in one transaction, at most.",
		target: func(c *Config) any { return &c.Consumer.FinalizeBatch },
	},
	{
		Name: "session-timeout", Group: GroupConsumer, Default: "10s",
		Doc: "How long a consumer group waits for a silent member before its partitions go to the others. Shorter: a killed worker's " +
			"partitions wait less, and a slow network takes more members for dead. The broker's group.min.session.timeout.ms is the least.",
		target: func(c *Config) any { return &c.Consumer.SessionTimeout },
	},
	{
		Name: "announce-accepted", Group: GroupConsumer, Default: off,
		Doc: "Publish payment.accepted and an accepted reply when a command is claimed. Kafka's acknowledgement already says that " +
			"it is durable; two more messages per payment cost throughput.",
		target: func(c *Config) any { return &c.Consumer.Announce },
	},
	{
		Name: "drain-timeout", Group: GroupConsumer, Default: "10s",
		Doc: "How long calls under way may take to end at a shutdown or a rebalance. What is not done then is unknown and " +
			"re-queried, never lost.",
		target: func(c *Config) any { return &c.Consumer.DrainTimeout },
	},
	{
		Name: "stall-timeout", Group: GroupConsumer, Default: "2m",
		Doc: "A partition whose oldest record makes no progress for so long ends the process, so that its supervisor starts it " +
			"again: heartbeats alone would keep a hung worker in the group for ever.",
		target: func(c *Config) any { return &c.Consumer.StallTimeout },
	},
}

var relaySettings = []Setting{
	{
		Name: "relay-lease", Group: GroupRelay, Default: "10s",
		Doc:    "How long a relay owns a shard of the outbox without renewing. Longer: a dead relay's messages wait longer.",
		target: func(c *Config) any { return &c.Relay.Lease },
	},
	{
		Name: "relay-batch", Group: GroupRelay, Default: "500",
		Doc:    "Messages of one shard taken in one read; up to four times as many while the shard is behind.",
		target: func(c *Config) any { return &c.Relay.Batch },
	},
	{
		Name: "relay-poll", Group: GroupRelay, Default: "100ms",
		Doc: "How often an idle relay looks without being woken. The wake-up is only a hint, so this is the latency when a hint " +
			"is lost.",
		target: func(c *Config) any { return &c.Relay.Poll },
	},
}

var reconcilerSettings = []Setting{
	{
		Name: "query-share", Group: GroupReconciler, Default: "0.2",
		Doc: "Re-queries per channel as a share of its recent submissions, over all instances (the retry budget). Higher resolves " +
			"faster after an outage and strains a provider that is just coming back.",
		target: func(c *Config) any { return &c.Reconciler.QueryShare },
	},
	{
		Name: "query-floor", Group: GroupReconciler, Default: "5",
		Doc:    "Re-queries per second and channel that are always allowed, so that a quiet channel's unknowns resolve too.",
		target: func(c *Config) any { return &c.Reconciler.QueryFloor },
	},
	{
		Name: "parked-limit", Group: GroupReconciler, Default: "2h",
		Doc: "A payment that waited so long for its channel, and was never sent, is rejected as CHANNEL_UNAVAILABLE and frees its " +
			"obligation.",
		target: func(c *Config) any { return &c.Reconciler.ParkedLimit },
	},
	{
		Name: "review-after", Group: GroupReconciler, Default: "15m",
		Doc: "A payment without an answer for so long after its send is put before a person. It stays unresolved: age is never " +
			"evidence.",
		target: func(c *Config) any { return &c.Reconciler.ReviewAfter },
	},
	{
		Name: "watch-first", Group: GroupReconciler, Default: "1m",
		Doc:    "First pause of the slow watch over payments in review; it doubles up to watch-max.",
		target: func(c *Config) any { return &c.Reconciler.WatchFirst },
	},
	{
		Name: "watch-max", Group: GroupReconciler, Default: "30m",
		Doc:    "Longest pause of the slow watch, which goes on until there is evidence.",
		target: func(c *Config) any { return &c.Reconciler.WatchMax },
	},
	{
		Name: "sweep-interval", Group: GroupReconciler, Default: "250ms",
		Doc:    "How often the database is searched for payments that are due without a wake-up.",
		target: func(c *Config) any { return &c.Reconciler.SweepEvery },
	},
	{
		Name: "sweep-batch", Group: GroupReconciler, Default: "200",
		Doc:    "Overdue payments taken in one sweep, at most.",
		target: func(c *Config) any { return &c.Reconciler.SweepBatch },
	},
	{
		Name: "query-max-in-flight", Group: GroupReconciler, Default: "128",
		Doc:    "Queries at once, per process.",
		target: func(c *Config) any { return &c.Reconciler.MaxInFlight },
	},
	{
		Name: "retention-interval", Group: GroupReconciler, Default: "1h",
		Doc:    "How often keys past their time are removed. Less often: more rows to remove at once.",
		target: func(c *Config) any { return &c.Reconciler.RetentionEvery },
	},
	{
		Name: "callback-unmatched-after", Group: GroupReconciler, Default: "4h",
		Doc: "How long a provider's callback may match no payment before it becomes a review item. It is matched again all the same, " +
			"until retention removes it.",
		target: func(c *Config) any { return &c.Reconciler.UnmatchedAfter },
	},
	{
		Name: "review-second-person", Group: GroupReconciler, Default: off,
		Doc: "Every 'settleonce review resolve' and 'settleonce review attempt' needs a second person (--second-actor). Without it only what " +
			"rests on a provider's written statement does.",
		target: func(c *Config) any { return &c.Reconciler.ReviewSecondPerson },
	},
}

var adminSettings = []Setting{
	{
		Name: "admin-address", Group: GroupAdmin, Default: ":9464",
		Doc: "Where /healthz, /readyz and /metrics are served, host:port. Port 0 takes a free one, which is logged. It shows no " +
			"payment data and asks for no password: keep it inside your network.",
		target: func(c *Config) any { return &c.Admin.Address },
	},
	{
		Name: "pprof", Group: GroupAdmin, Default: off,
		Doc:    "Serve /debug/pprof on the admin address. Profiles show memory contents in part.",
		target: func(c *Config) any { return &c.Admin.PProf },
	},
}

var logSettings = []Setting{
	{
		Name: "log-level", Group: GroupLog, Default: "info",
		Doc:    "debug, info, warn or error. info is one line per payment transition.",
		target: func(c *Config) any { return &c.Log.Level },
	},
	{
		Name: "log-format", Group: GroupLog, Default: "json",
		Doc:    "json, one object per line, or console, for people.",
		target: func(c *Config) any { return &c.Log.Format },
	},
}

var devSettings = []Setting{
	{
		Name: "data-dir", Group: GroupDev, Default: ".settleonce",
		Doc: "Where `dev` keeps the embedded broker, the private Postgres and the simulator's ledger. As root it must lie where an " +
			"unprivileged user can reach it, since Postgres refuses to run as root.",
		target: func(c *Config) any { return &c.Dev.DataDir },
	},
}
