package config

var callerSettings = []Setting{
	{
		Name: "callers-from", Group: GroupCallers, Default: CallersFromSettings,
		Doc: "Where the callers and their namespaces stand: settings (the setting callers), or database (`settleonce callers add`), which the " +
			"HTTP edge needs. Every process of an installation must have the same.",
		target: func(c *Config) any { return &c.Callers.From },
	},
	{
		Name: "callers", Group: GroupCallers,
		Doc: "Who may publish commands, and the namespace of each one's obligations: shop=shop,shop-cron=shop lets the scheduled job " +
			"pay for what the shop's customers did not. Commands of any other caller are dead letters. Empty: every caller is " +
			"accepted, each in a namespace of its own. The namespace of a caller that has open payments cannot be changed.",
		target: func(c *Config) any { return &c.Callers.Namespaces },
	},
	{
		Name: "command-topics", Group: GroupCallers,
		Doc: "Command topics and the callers whose commands each may carry, where callers distrust each other and the cluster's ACLs " +
			"keep them apart: payment.commands=shop+shop-cron,payment.commands.partner=partner. topic-prefix is put before the names. " +
			"Empty: payment.commands, for every caller.",
		target: func(c *Config) any { return &c.Callers.Topics },
	},
	{
		Name: "repay-named", Group: GroupCallers,
		Doc: "Namespaces in which a paid obligation is paid again only by a command whose `follows` names the latest payment. " +
			"Elsewhere a key issued later is enough, which a shopper who has not heard of the success can do by mistake.",
		target: func(c *Config) any { return &c.Callers.RepayNamed },
	},
	{
		Name: "caller-topics", Group: GroupCallers,
		Doc: "Callers whose replies and events go to topics of their own, so that ACLs keep callers apart that distrust each other: " +
			"partner=partner publishes to payment.replies.partner and payment.events.partner instead of payment.replies and payment.events. " +
			"Several callers may share one. Change it only while nothing of the caller is on its way.",
		target: func(c *Config) any { return &c.Callers.OwnTopics },
	},
	{
		Name: "signing-keys-file", Group: GroupCallers,
		Doc: "File of the keys that sign commands, one per line: id, callers joined by + (* for all), secret in hex; `settleonce callers signing-key` " +
			"makes one. A consumer with it refuses commands whose signature is wrong. It is read again when it changes.",
		target: func(c *Config) any { return &c.Callers.SigningKeysFile },
	},
	{
		Name: "require-signature", Group: GroupCallers,
		Doc: "Callers whose commands must carry a signature by a key of signing-keys-file; * for all of them. Unsigned ones are dead " +
			"letters. Empty: nobody must sign.",
		target: func(c *Config) any { return &c.Callers.RequireSignature },
	},
	{
		Name: "signing-key", Group: GroupCallers,
		Doc:    "Id of the key in signing-keys-file with which `publish` and the HTTP edge sign what they publish. Empty: they do not sign.",
		target: func(c *Config) any { return &c.Callers.SigningKey },
	},
}
