package planted

// charges are bugs that take money twice, or say that it was not taken (G1, G3, G4).
var charges = []Bug{
	{
		Name: "claim-result-ignored", Guarantee: "G1",
		What: "a key that is there already is claimed again",
		File: "internal/store/claim_sql.go", Guard: "claimInsert",
		Old:     "ON CONFLICT (id) DO NOTHING\n    RETURNING id, namespace",
		New:     "ON CONFLICT (id) DO UPDATE SET state = 1, ended_at = NULL, sends = excluded.sends\n    RETURNING id, namespace",
		Torture: "--seed 4 --payments 600 --faults replay", Shows: []string{"G9", "G10"},
	},
	{
		Name: "fresh-provider-key", Guarantee: "G1",
		What: "a claim that is made again mints another provider key",
		File: "payment/identity.go", Guard: "Identity.ProviderKey",
		Old:  "return derive(\"provider\", append(i.fields(), strconv.Itoa(attempt))...)",
		New:  "_ = attempt\n\treturn uuid.New()",
		Test: "./payment -run TestIdentityVectors",
	},
	{
		Name: "fresh-key-per-send", Guarantee: "G1",
		What: "each send of an attempt has a provider key of its own",
		File: "internal/settle/settler.go", Guard: "request",
		Old:     "ProviderKey: p.ProviderKey, PaymentID: p.ID, Amount: p.Amount, Currency: p.Currency,\n\t\tOrderID",
		New:     "ProviderKey: p.Identity.ProviderKey(p.Sends), PaymentID: p.ID, Amount: p.Amount, Currency: p.Currency,\n\t\tOrderID",
		Torture: "--seed 3 --payments 900 --faults channel,cut-channel", Shows: []string{"G3"},
	},
	{
		Name: "permit-unasked", Guarantee: "G1",
		What: "a further send is permitted whatever the channel can do",
		File: "internal/settle/checks.go", Guard: "Rules.permit",
		Old:   "l.Now, deadline); !ok {\n\t\treturn r.review",
		New:   "l.Now, deadline); !ok && deadline.IsZero() {\n\t\treturn r.review",
		Model: "settle -DSENTONCE=0 -DIDEMP=0", Test: "./internal/settle -run TestWorlds$",
	},
	{
		Name: "memory-rule-off", Guarantee: "G1",
		What: "a send may be executed after the provider forgot the key",
		File: "channel/rules.go", Guard: "Capabilities.PermitsSend",
		Old:   "if !c.remembersUntil(s, now) || !c.remembersUntil(s, c.allDead(with)) {",
		New:   "if with.Count < 0 {",
		Model: "settle -DMEMORY=0 -DFORGET", Test: "./internal/settle -run TestWorlds$",
	},
	{
		Name: "send-starts-late", Guarantee: "G3",
		What: "a worker that was stopped sends when it wakes up, however late",
		File: "internal/settle/settler.go", Guard: "Settler.send",
		Old:   "if !gate.enter(s.alive, p.Start) {",
		New:   "if !gate.enter(s.alive, time.Now().Add(time.Hour)) {",
		Model: "settle -DSTART=0", Test: "./internal/e2e -run TestP23_",
	},
	{
		Name: "transport-retries", Guarantee: "G1",
		What: "a request whose connection died is sent again below us",
		File: "channel/wire/client.go", Guard: "Client.Do",
		Old: "return c.exchange(ctx, conn, deadline)",
		New: `first := c.exchange(ctx, conn, deadline)
	if first.Fate != NoAnswer || ctx.Err() != nil {
		return first
	}
	if conn, err = c.connect(ctx); err != nil {
		return first
	}
	conn.out = c.encode(conn.out[:0], r)
	return c.exchange(ctx, conn, deadline)`,
		Torture: "--seed 4 --payments 600 --faults channel", Model: "settle -DONCE=0 -DIDEMP=0",
	},
	{
		Name: "resend-on-unknown", Guarantee: "G1",
		What: "no answer is taken for \"not sent\", and sent again",
		File: "internal/settle/rules.go", Guard: "Rules.submitAnswer",
		Old:     "case a.Class.EndsPermit():\n\t\treturn r.notSent(l, p, a)",
		New:     "case a.Class.EndsPermit() || a.Class == payment.ClassUnknown:\n\t\treturn r.notSent(l, p, a)",
		Torture: "--seed 4 --payments 600 --faults channel", Model: "settle -DTIMEOUT=0 -DIDEMP=0",
	},
	{
		Name: "resume-unasked", Guarantee: "G1",
		What: "a payment whose worker stopped is sent again without a query",
		File: "internal/settle/checks.go", Guard: "Rules.nextPending",
		Old: "default:\n\t\treturn ActionOrphan",
		New: "default:\n\t\treturn ActionPermit",
		Also: []Edit{{
			File: "internal/settle/checks.go",
			Old:  "l.Now, deadline); !ok {\n\t\treturn r.review",
			New:  "l.Now, deadline); !ok && deadline.IsZero() {\n\t\treturn r.review",
		}},
		Torture: "--seed 4 --payments 900 --faults crash,kill",
	},
	{
		Name: "sent-unasked-after-failover", Guarantee: "G1",
		What: "claims in a database that lost commits are sent without asking the provider first",
		File: "internal/store/judge.go", Guard: "claimRun.judge",
		Old:   "if run.suspect && !run.batch.QueryFirst {",
		New:   "if run.suspect && run.now.IsZero() {",
		Model: "settle -DFIRST=0 -DAMNESIA -DIDEMP=0 -DTRACE", Test: "./internal/store -run TestFailover",
	},
	{
		Name: "permit-unasked-after-failover", Guarantee: "G2",
		What: "a parked payment is sent without asking after a failover",
		File: "internal/settle/checks.go", Guard: "unasked",
		Old:   "return l.Suspect && l.Open.Sends.Count == 0 && l.Open.Sends.LastDeadline.IsZero()",
		New:   "return l.Suspect && l.Open.Sends.Count < 0",
		Model: "settle -DASK=0 -DAMNESIA=2 -DROUNDS=2 -DIDEMP=0", Test: "./internal/settle -run TestWorlds$|TestLostPermitIsAskedAboutFirst",
	},

	{
		Name: "unknown-is-declined", Guarantee: "G3",
		What: "an answer that says nothing is taken for a decline",
		File: "payment/classify.go", Guard: "Classify",
		Old:     "\t}\n\treturn ClassUnknown\n}",
		New:     "\t}\n\treturn ClassDeclined\n}",
		Torture: "--seed 8 --payments 400 --faults channel", Model: "settle -DTIMEOUT=2",
	},
	{
		Name: "give-up-is-declined", Guarantee: "G3",
		What: "three queries without an answer end as declined",
		File: "internal/settle/rules.go", Guard: "Rules.unanswered",
		Old:     "return r.review(l, open, \"no answer after three queries: \"+cause, \"\")",
		New:     "return &store.Change{To: payment.Declined, Cause: cause, Event: payment.EventDeclined, Reply: payment.ReplyOutcome}",
		Torture: "--seed 8 --payments 400 --faults channel", Model: "settle -DGIVEUP=0",
	},
	{
		Name: "decline-at-once", Guarantee: "G3",
		What: "a decline is concluded while an older send may still be executed",
		File: "internal/settle/rules.go", Guard: "Rules.declined",
		Old:   "if caps.ConcludesDecline(sends, l.Now) || byQuery {",
		New:   "if caps.ConcludesDecline(sends, l.Now) || byQuery || !l.Now.IsZero() {",
		Model: "settle -DDECLINE=0", Test: "./internal/settle -run TestWorlds$",
	},
	{
		Name: "two-dead-sends-are-one", Guarantee: "G3",
		What: "a decline of one of several sends counts for all",
		File: "channel/rules.go", Guard: "Capabilities.ConcludesDecline",
		Old:   "if s.Count == 1 {\n\t\treturn true",
		New:   "if s.Count >= 1 {\n\t\treturn true",
		Model: "settle -DDECLINE=0", Test: "./internal/settle -run TestWorlds$",
	},
	{
		Name: "decline-query-too-early", Guarantee: "G3",
		What: "the query that concludes a decline does not wait for the lookup",
		File: "channel/rules.go", Guard: "Capabilities.DeclineQueryAfter",
		Old:   "return dead.Add(c.VisibilityLag)\n",
		New:   "return dead.Add(-c.LongestExecution)\n",
		Model: "settle -DWAIT=0 -DLAG", Test: "./internal/settle -run TestWorlds$",
	},
	{
		Name: "not-found-inside-the-lag", Guarantee: "G3",
		What: "\"not found\" counts although the lookup may lag",
		File: "channel/rules.go", Guard: "Capabilities.NotFound",
		Old:  "case queryStarted.After(after):",
		New:  "case queryStarted.After(s.First):",
		Test: "./channel -run TestNotFound|TestRulesHoldInEveryWorld",
	},
	{
		Name: "lost-sends-forgotten", Guarantee: "G3",
		What: "after lost commits the one send on record is believed to be the only one",
		File: "internal/settle/checks.go", Guard: "Rules.sends",
		Old:   "known.Count++ // the permit of a further send may be lost (G3)",
		New:   "known.Count += 0",
		Model: "settle -DDOUBT=0 -DAMNESIA -DIDEMP=0", Test: "./internal/settle -run TestG3_DeclineAfterAFailover",
	},
	{
		Name: "lost-deadline-forgotten", Guarantee: "G3",
		What: "and its deadline: the query that concludes a decline does not wait for a send that a failover took away",
		File: "internal/settle/checks.go", Guard: "Rules.doubted",
		Old:   "if l.Suspect && l.Open.Sends.Count > 0 && !l.Open.NoMoreSends {",
		New:   "if l.Suspect && l.Open.Sends.Count < 0 {",
		Model: "settle -DDEADLINE=0 -DAMNESIA=2 -DROUNDS=2", Test: "./internal/settle -run TestG3_DeclineAfterAFailover",
	},

	{
		Name: "declined-goes-back", Guarantee: "G4",
		What: "the table of states lets a declined payment be sent again",
		File: "payment/state.go", Guard: "transitions",
		Old:  "Review:  {Succeeded, Declined},",
		New:  "Review:  {Succeeded, Declined}, Declined: {Pending, Unknown},",
		Test: "./payment -run TestTerminalIsSticky|TestTransitionTable",
	},
	{
		Name: "decline-forbids-nothing", Guarantee: "G4",
		What: "a decline that waits for its query does not forbid the next send",
		File: "internal/settle/rules.go", Guard: "Rules.holdDecline",
		Old:   "open.NoMoreSends, open.DeclineCause, open.DeclineReference = true, a.Cause, a.Reference",
		New:   "open.DeclineCause, open.DeclineReference = a.Cause, a.Reference",
		Model: "settle -DNOMORE=0 -DAMNESIA -DPROOF=0", Test: "./internal/settle -run TestWorlds$",
	},
}
