package config

// channelSettings describe the one channel that needs no file. The keys are
// also those of each entry of the file's `channels` section, without "channel-".
var channelSettings = []Setting{
	{
		Name: "channel-name", Group: GroupChannel, Default: "sim",
		Doc:    "What commands call the channel.",
		target: func(c *Config) any { return &c.Channel.Name },
	},
	{
		Name: "channel-type", Group: GroupChannel, Default: "sim",
		Doc:    "The adapter: sim, the channel simulator. (instant settles everything inside the worker, for benchmarks.)",
		target: func(c *Config) any { return &c.Channel.Type },
	},
	{
		Name: "channel-url", Group: GroupChannel, Default: "http://localhost:8090",
		Doc:    "Where the provider answers.",
		target: func(c *Config) any { return &c.Channel.URL },
	},
	{
		Name: "channel-identity", Group: GroupChannel,
		Doc: "Account, endpoint and mode, without credentials. Recorded with every claim; payments claimed under another identity " +
			"are neither queried nor resumed here. Empty: the type and the URL.",
		target: func(c *Config) any { return &c.Channel.Capabilities.Identity },
	},
	{
		Name: "channel-equivalent-identities", Group: GroupChannel,
		Doc:    "Earlier identities that are the same account, after a move of its endpoint.",
		target: func(c *Config) any { return &c.Channel.Capabilities.EquivalentIdentities },
	},
	{
		Name: "channel-idempotent-submit", Group: GroupChannel, Default: "true",
		Doc: "The provider executes a key once, as long as it remembers it. Without it nothing is ever sent twice, and a lost " +
			"answer waits for a query or a person.",
		target: func(c *Config) any { return &c.Channel.Capabilities.IdempotentSubmit },
	},
	{
		Name: "channel-key-memory", Group: GroupChannel, Default: "24h",
		Doc:    "How long the provider remembers a key. No send may be executed later: promise too much, and it charges twice.",
		target: func(c *Config) any { return (*promise)(&c.Channel.Capabilities.KeyMemory) },
	},
	{
		Name: "channel-pins-failures", Group: GroupChannel, Default: "true",
		Doc: "A failure is answered again to a repeat of its key. Only then does a decline count at once while an older request may " +
			"still be under way.",
		target: func(c *Config) any { return &c.Channel.Capabilities.PinsFailures },
	},
	{
		Name: "channel-query", Group: GroupChannel, Default: "true",
		Doc:    "A charge can be looked up by our key. Without it unknown payments wait for a person.",
		target: func(c *Config) any { return &c.Channel.Capabilities.Query },
	},
	{
		Name: "channel-visibility-lag", Group: GroupChannel, Default: "immediate",
		Doc:    "How far the lookup may lag behind an execution. Undocumented: \"not found\" proves nothing.",
		target: func(c *Config) any { return (*promise)(&c.Channel.Capabilities.VisibilityLag) },
	},
	{
		Name: "channel-query-reach", Group: GroupChannel, Default: "forever",
		Doc:    "How far back the lookup reaches.",
		target: func(c *Config) any { return (*promise)(&c.Channel.Capabilities.QueryReach) },
	},
	{
		Name: "channel-not-found-is-proof", Group: GroupChannel, Default: "true",
		Doc:    "\"Not found\" after the lag, with no send alive, proves that nothing was executed and nothing will be.",
		target: func(c *Config) any { return &c.Channel.Capabilities.NotFoundIsProof },
	},
	{
		Name: "channel-longest-execution", Group: GroupChannel, Default: "10s",
		Doc: "How long after a send's deadline the provider, or the network before it, may still execute the request. Too short " +
			"takes a send for dead that is not. Undocumented: a send is never known to be dead.",
		target: func(c *Config) any { return (*promise)(&c.Channel.Capabilities.LongestExecution) },
	},
	{
		Name: "channel-max-in-flight", Group: GroupChannel, Default: "256",
		Doc:    "Submits under way at once in each consumer and reconciler process: divide what the provider allows by their number.",
		target: func(c *Config) any { return &c.Channel.Capabilities.MaxInFlight },
	},
	{
		Name: "channel-rate-limit", Group: GroupChannel, Default: "0",
		Doc:    "Submits per second, over all instances. 0: no limit.",
		target: func(c *Config) any { return &c.Channel.Capabilities.RateLimit },
	},
	{
		Name: "channel-submit-timeout", Group: GroupChannel, Default: "10s",
		Doc:    "Deadline of one send. After it the answer is unknown and will be queried.",
		target: func(c *Config) any { return &c.Channel.Capabilities.SubmitTimeout },
	},
	{
		Name: "channel-query-timeout", Group: GroupChannel, Default: "5s",
		Doc:    "Deadline of one query.",
		target: func(c *Config) any { return &c.Channel.Capabilities.QueryTimeout },
	},
	{
		Name: "channel-throttle-not-applied", Group: GroupChannel, Default: "true",
		Doc:    "A request answered 429 was not executed and will not be. Without it such an answer is unknown.",
		target: func(c *Config) any { return &c.Channel.Capabilities.ThrottleNotApplied },
	},
	{
		Name: "channel-callback-secret", Group: GroupChannel, hide: hideAll,
		Doc: "What the provider signs its callbacks with, at least 16 characters. Several, separated by commas, are all valid: the new and " +
			"the old one while it is rotated. Empty: callbacks of this channel are refused.",
		target: func(c *Config) any { return &c.Channel.CallbackSecrets },
	},
	{
		Name: "channel-callback-secret-file", Group: GroupChannel,
		Doc:    "File that holds the secrets, one a line. Instead of channel-callback-secret. The gateway reads it, no other role.",
		target: func(c *Config) any { return &c.Channel.CallbackSecretFile },
	},
	{
		Name: "channel-callback-names", Group: GroupChannel, Default: off,
		Doc: "Callbacks of this provider repeat our provider key or only its own reference, not our payment id: keep both names of every " +
			"payment that ends, so that it is found. Two rows more per payment.",
		target: func(c *Config) any { return &c.Channel.CallbackNames },
	},
	{
		Name: "channel-callback-max-age", Group: GroupChannel, Default: "5m",
		Doc:    "How old a callback's signature may be, or how far in the future: bounds how long a callback that somebody caught can be replayed.",
		target: func(c *Config) any { return &c.Channel.CallbackMaxAge },
	},
}

var simSettings = []Setting{
	{
		Name: "sim-listen", Group: GroupSim, Default: ":8090",
		Doc:    "Where the channel simulator listens, host:port. Port 0 takes a free one, which is logged.",
		target: func(c *Config) any { return &c.Sim.Listen },
	},
	{
		Name: "sim-ledger", Group: GroupSim,
		Doc:    "Append-only file of its ledger, which survives its restart. Empty: in memory.",
		target: func(c *Config) any { return &c.Sim.Ledger },
	},
	{
		Name: "sim-behaviour", Group: GroupSim,
		Doc: "What it promises and how it misbehaves at first, as JSON: {\"latency\":\"50ms\",\"rates\":{\"lost_answer\":0.01}}. What is left " +
			"out is a provider at its best. PATCH /admin/behaviour changes it while it runs.",
		target: func(c *Config) any { return &c.Sim.Behaviour },
	},
	{
		Name: "sim-callback-url", Group: GroupSim,
		Doc:    "Where it sends callbacks, like http://localhost:8080/v1/callbacks/sim. Empty: it sends none. PUT /admin/callbacks changes it while it runs.",
		target: func(c *Config) any { return &c.Sim.CallbackURL },
	},
	{
		Name: "sim-callback-secret", Group: GroupSim, hide: hideAll,
		Doc:    "What it signs them with: one of channel-callback-secret.",
		target: func(c *Config) any { return &c.Sim.CallbackSecret },
	},
	{
		Name: "sim-callback-secret-file", Group: GroupSim,
		Doc:    "File that holds the secret, in its first line. Instead of sim-callback-secret.",
		target: func(c *Config) any { return &c.Sim.CallbackSecretFile },
	},
}
