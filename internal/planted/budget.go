package planted

// budget are bugs in what bounds the queries (G13).
var budget = []Bug{
	{
		Name: "no-budget", Guarantee: "G13",
		What: "every query that is due is made",
		File: "internal/store/budget.go", Guard: "Budget.takeQueries",
		Old:     "got := min(want, int(b.Tokens))",
		New:     "got := want",
		Test:    "./internal/store -run TestG13_",
		Model:   "budget -DTOKENS=0",
		Torture: "--seed 8 --payments 500 --faults replay",
	},
	{
		Name: "breaker-not-asked", Guarantee: "G13",
		What: "a channel that is closed is queried",
		File: "internal/store/budget.go", Guard: "Store.TakeQueries",
		Old: "if got = 0; !now.Before(b.OpenUntil) {",
		New: "if got = 0; !now.IsZero() {",
		Also: []Edit{
			{
				File: "reconciler/check.go",
				Old:  "if gate, ok := r.cfg.Settler.Gate(channel); ok && !gate.Open() {",
				New:  "if _, ok := r.cfg.Settler.Gate(channel); ok {",
			},
			{
				File: "reconciler/callback_dispute.go",
				Old:  "if gate, ok := r.cfg.Settler.Gate(channel); ok && !gate.Open() {",
				New:  "if _, ok := r.cfg.Settler.Gate(channel); ok {",
			},
		},
		Torture: "--seed 8 --payments 500 --faults replay",
		Test:    "./internal/store -run TestG13_|TestBreaker",
		Model:   "budget -DBREAKER=0",
	},
	{
		Name: "budget-not-asked", Guarantee: "G13",
		What: "the reconciler does not keep to what the budget gave",
		File: "reconciler/check.go", Guard: "Reconciler.ask",
		Old:     "r.warn(ctx, err, \"take queries from the budget\")\n\t\t\treturn // the leases end, and the payments are picked again\n\t\t}",
		New:     "return\n\t\t}\n\t\tgot = len(ls)",
		Test:    "./internal/e2e -run TestG13_",
		Model:   "budget -DKEPT=0",
		Torture: "--seed 8 --payments 500 --faults replay",
	},
	{
		Name: "queries-past-the-limit", Guarantee: "G13",
		What: "queries do not count against the channel's rate limit",
		File: "internal/store/budget.go", Guard: "Budget.takeQueries",
		Old:     "if p.RateLimit > 0 {\n\t\trate = min(rate, p.RateLimit)",
		New:     "if p.RateLimit < 0 {\n\t\trate = min(rate, p.RateLimit)",
		Test:    "./internal/store -run TestG13_QueriesWithinTheRateLimit",
		Model:   "budget -DLIMIT=1 -DRATE=2 -DWITHIN=0",
		Torture: "--seed 8 --payments 500 --faults replay",
	},
	{
		Name: "put-off-counts", Guarantee: "G13",
		What: "a check that the budget stopped is one of the three",
		File: "internal/settle/checks.go", Guard: "Rules.PutOff",
		Old:     "return waited(l, time.Second, 10*time.Second)",
		New:     "return r.counted(l, \"put off\")",
		Test:    "./internal/settle -run TestG13_",
		Model:   "budget -DPUTOFF=0",
		Torture: "--seed 8 --payments 500 --faults replay",
	},
}
